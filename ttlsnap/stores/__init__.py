"""State stores: one interface for the files of both of Spark's state store providers."""
