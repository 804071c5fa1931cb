"""Spark's Avro encoding of state rows (``encodingFormat`` avro in RocksDB), read and written in batches.

``types``      the Avro encoding of each Spark type, shared by reader and writer
``cursor``     positions in a batch of entries; reads numbers, pieces and union bytes there
``walk``       positions of the elements of arrays and maps
``decode``     Avro bytes to Arrow columns
``pieces``     columns of byte pieces, joined row by row when they are written
``encode``     Arrow columns to Avro bytes, byte for byte as Spark writes them
``resolve``    conversion of values of an older schema to the current schema
``values``     stored values: a version, a schema id, Avro
``keys``       stored keys: plain, after a prefix, or after an ordered number
``unsaferows`` conversion of all that from and to UnsafeRows, which the rest of ttlsnap uses

``docs/rocksdb-state-store.md`` describes the format. Bytes from a checkpoint are not trusted: nothing here reads
outside the entry that a value belongs to. Bytes that Spark would have written differently count as damage. Every
decoded entry can therefore be encoded to the same bytes again.
"""
