"""Batches: many requests in a file, answered at low priority in idle capacity, whatever stops in between."""
