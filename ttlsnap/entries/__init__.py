"""State entries as Arrow: the description of a state, batches of its entries, their timestamps, and JSON."""
