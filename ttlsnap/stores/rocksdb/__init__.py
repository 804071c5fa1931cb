"""The RocksDB state store: zips that share SST files, and changelogs. See ``docs/rocksdb-state-store.md``."""
