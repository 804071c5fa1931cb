"""State from tables: ``import`` fills states of a checkpoint with the rows of Parquet files or Delta tables."""
