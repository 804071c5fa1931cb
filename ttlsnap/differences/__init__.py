"""The differences between two states: of two batches of a checkpoint, or of two checkpoints."""
