"""Spark's rows in Avro, as its RocksDB state store keeps them with ``encodingFormat`` avro; a batch at a time.

``types``      which type is written how, shared by reader and writer
``cursor``     where in each entry reading has come to; numbers, pieces and branches read there
``walk``       where the elements of arrays and maps begin
``decode``     Avro bytes to Arrow columns
``pieces``     bytes to be written, as columns of pieces that are put together row by row
``encode``     Arrow columns to Avro bytes, byte for byte as Spark would
``resolve``    values that were written with an older schema, as the current one has them
``values``     what is stored as a value: a version, the id of a schema, Avro
``keys``       what is stored as a key: plain, behind a prefix, or behind a number in order
``unsaferows`` all of that from and to UnsafeRows, which the rest of ttlsnap works with

The format is described in ``docs/rocksdb-state-store.md``. Bytes from a checkpoint are not trusted: nothing here reads
outside the entry a value belongs to, and what Spark would have written in other bytes is damage, so that what is read
can be written again as it was.
"""
