"""The engines that run the partitions of a compaction: threads of this process, or Spark."""
