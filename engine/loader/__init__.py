"""From files on disk to a Checkpoint: config, weights by name, tokenizer and chat template. Knows nothing of requests."""
