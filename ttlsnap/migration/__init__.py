"""Migration of a checkpoint: the same entries in another number of partitions."""
