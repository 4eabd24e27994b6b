"""Reads a claude-mem database of any version. Knows nothing of this product but the shapes it returns."""
