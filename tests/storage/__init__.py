"""Object stores and HDFS: real servers, and the ways in which they fail."""
