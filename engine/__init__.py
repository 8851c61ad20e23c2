"""Run a language model on this machine. Knows no HTTP, tenants or money: only opaque salts and fairness keys."""
