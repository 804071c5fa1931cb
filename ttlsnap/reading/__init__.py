"""The content of a checkpoint, read without changing it."""
