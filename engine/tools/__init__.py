"""Tool calls: how each family of models writes them, is told of them, and is held to them. Knows no HTTP."""
