"""Run a language model on this machine. Knows nothing of HTTP, tenants or money: only opaque salts and fairness keys."""
