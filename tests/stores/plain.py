"""A simple writer of state files, which follows ``docs/hdfs-state-store.md`` record by record."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import google_crc32c

Put = tuple[bytes, bytes | None]
"""A key and its value; None deletes the key."""

END = struct.pack(">i", -1)


def record(key: bytes, value: bytes | None) -> bytes:
    """Return the bytes of one record."""
    if value is None:
        return struct.pack(">i", len(key)) + key + struct.pack(">i", -1)
    return struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value


def state_file(puts: Iterable[Put], row_checksums: bool = False) -> bytes:
    """Return a complete file, uncompressed."""
    return b"".join(record(*(_with_checksum(*put) if row_checksums else put)) for put in puts) + END


def _with_checksum(key: bytes, value: bytes | None) -> Put:
    checksum = struct.pack("<I", google_crc32c.value(key if value is None else key + value))
    return (checksum + key, None) if value is None else (key, checksum + value)
