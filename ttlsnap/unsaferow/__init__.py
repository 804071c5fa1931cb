"""Spark's UnsafeRow, read and written in batches with NumPy and Arrow.

``layout``  sizes and offsets of the format, shared by reader and writer
``rows``    a batch of rows anywhere in one buffer
``words``   the fast path: one 8-byte word of each row
``check``   checks of rows before their bytes are used
``decode``  rows to Arrow columns
``encode``  Arrow columns to rows, byte for byte as Spark writes them

``docs/unsaferow.md`` describes the format. Bytes from a checkpoint are not trusted: nothing here reads outside the row
that a value belongs to.
"""
