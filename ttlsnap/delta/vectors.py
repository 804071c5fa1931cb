"""Deletion vectors: which rows of a data file are marked as deleted.

A vector is a set of row numbers, in the portable format of 64-bit Roaring bitmaps after a magic number. It is in the
log itself (``i``), in a file beside the data (``u``), or at an absolute path (``p``):

    inline: Z85 of  [magic: 4, little endian][bitmap]
    file:   [version: 1] ... at the offset: [size: 4, big endian][magic: 4][bitmap][CRC-32: 4, big endian]

Dangers: eight bytes of a bitmap mark 65,536 rows. So it is never expanded, except for the rows of one batch.

Source: delta-io/delta, PROTOCOL.md (Deletion Vectors), and vectors that Delta 4.4 wrote.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.parquet import size_of

if TYPE_CHECKING:
    from pyroaring import BitMap64

MAGIC = 1681511377
_MAX_BYTES = 1 << 30
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
# Python has no Z85, but Base85 with other characters, which is otherwise the same.
TO_B85 = str.maketrans(_Z85, _B85)
_UUID_CHARACTERS = 20


class DeletedRows:
    """The numbers of the deleted rows of a file."""

    def __init__(self, bitmap: BitMap64) -> None:
        self._bitmap = bitmap

    def __len__(self) -> int:
        return len(self._bitmap)

    @property
    def last(self) -> int:
        """The greatest number; -1 if there is none."""
        return int(self._bitmap.max()) if self._bitmap else -1

    def kept(self, first_row: int, size: int) -> npt.NDArray[np.bool_]:
        """Return which of ``size`` rows from number ``first_row`` on are not deleted."""
        from pyroaring import BitMap64

        kept = np.ones(size, np.bool_)
        kept[np.fromiter(self._bitmap & BitMap64(range(first_row, first_row + size)), np.int64) - first_row] = False
        return kept


def deleted_rows(files: Directory, vector: Mapping[str, Any]) -> DeletedRows:
    """Return the rows that a vector marks as deleted.

    Raise CorruptionError for a damaged vector, and UnsupportedError for one outside the table.
    """
    try:
        return _rows(files, vector)
    except (ValueError, KeyError, TypeError, struct.error, OverflowError) as error:
        raise CorruptionError(f"{files.root}: a deletion vector has an unknown form: {error!r}") from error


def _rows(files: Directory, vector: Mapping[str, Any]) -> DeletedRows:
    kind, where = str(vector["storageType"]), str(vector["pathOrInlineDv"])
    size, count = int(vector["sizeInBytes"]), int(vector["cardinality"])
    if not 0 < size <= _MAX_BYTES or count < 0:
        raise ValueError(f"{size} bytes for {count} rows")
    if kind == "i":
        # Z85 works on groups of four bytes, so the last one may be padded.
        data = _z85(where)[:size]
    elif kind == "u":
        path = vector_path(vector) or ""
        file_size = size_of(files, path)
        with files.open(path) as stream:
            stream.seek(int(vector.get("offset") or 0))
            (recorded_size,) = struct.unpack(">i", stream.read(4))
            data, checksum = stream.read(min(size, file_size)), stream.read(4)
        if recorded_size != size or len(data) != size or struct.unpack(">I", checksum)[0] != zlib.crc32(data):
            raise CorruptionError(f"{files.root}/{path} is damaged: its length or its checksum is wrong")
    else:
        raise UnsupportedError(f"{files.root}: a deletion vector has the unknown storage type {kind!r}")
    (magic,) = struct.unpack("<i", data[:4])
    if magic != MAGIC:
        raise UnsupportedError(f"{files.root}: a deletion vector has an unknown serialization ({magic})")
    from pyroaring import BitMap64  # installed with the extra for Delta only

    rows = DeletedRows(BitMap64.deserialize(data[4:]))
    if len(rows) != count:
        raise ValueError(f"{len(rows)} rows; {count} are expected")
    return rows


def vector_path(vector: Mapping[str, Any]) -> str | None:
    """Return the path of a vector's file from the table's folder; None if it is elsewhere."""
    if vector["storageType"] != "u":
        return None
    where = str(vector["pathOrInlineDv"])
    name, prefix = uuid.UUID(bytes=_z85(where[-_UUID_CHARACTERS:])), where[:-_UUID_CHARACTERS]
    return f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"


def _z85(text: str) -> bytes:
    return base64.b85decode(text.translate(TO_B85))
