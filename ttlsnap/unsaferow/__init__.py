"""Spark's UnsafeRow, read and written a batch at a time with NumPy and Arrow.

``layout``  the sizes and offsets of the format, shared by reader and writer
``rows``    a batch of rows lying anywhere in one buffer
``words``   the fast path: one 8-byte word of each row
``check``   what must hold before a byte is believed
``decode``  rows to Arrow columns
``encode``  Arrow columns to rows, byte for byte as Spark would

The format is described in ``docs/unsaferow.md``. Bytes from a checkpoint are not trusted: nothing here reads
outside the row a value belongs to.
"""
