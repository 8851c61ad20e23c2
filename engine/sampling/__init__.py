"""From logits to the next tokens: what requests ask for, brought into columns for the sampling operations."""
