"""Which tier should answer? Knows nothing of HTTP, tenants, SQL or torch: text and an embedding in, a decision out."""
