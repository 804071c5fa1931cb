"""Migration of a checkpoint: its entries in other partitions, in another state store, or with another schema."""
