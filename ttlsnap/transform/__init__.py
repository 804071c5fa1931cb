"""The interfaces of transformers, and the chain that applies them to a batch of entries."""
