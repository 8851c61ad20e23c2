"""One call in each notation: read while it is being written, and as a grammar. Knows nothing of its surroundings."""
