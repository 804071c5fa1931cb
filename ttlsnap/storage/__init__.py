"""The storage of files: local disks, object stores and HDFS behind one interface, ``Directory``."""
