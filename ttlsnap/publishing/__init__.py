"""The replacement of a checkpoint's files by a run: fence, journal and swap; and recovery and rollback."""
