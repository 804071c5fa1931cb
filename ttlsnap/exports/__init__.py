"""State as tables: ``export`` writes each state of a checkpoint, as typed columns, for other tools to read."""
