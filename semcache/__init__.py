"""Has this question been answered already? Knows no HTTP, tenants or SQL sessions: partitions are opaque bytes."""
