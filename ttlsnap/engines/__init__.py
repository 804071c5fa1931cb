"""The engines that run the partitions of a compaction: processes on this machine, or Spark."""
