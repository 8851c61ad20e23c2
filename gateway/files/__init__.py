"""Files that tenants store: what batches read, and what they write."""
