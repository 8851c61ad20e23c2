"""Has this question been answered already? Knows nothing of HTTP, tenants or SQL sessions: partitions are opaque bytes."""
