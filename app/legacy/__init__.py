"""Reads a claude-mem database of any age. Knows nothing of this product but the shapes it returns."""
