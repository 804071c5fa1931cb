"""The HDFS-backed state store: deltas and snapshots of compressed records. See ``docs/hdfs-state-store.md``."""
