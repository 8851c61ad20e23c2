"""From files on disk to a Checkpoint: config, weights by name, tokenizer, chat template. Knows nothing of requests."""
