"""A run over a checkpoint: plan, scan and transform each partition, publish, report."""
