"""Limit for the records of a compressed file: a kilobyte may decompress to hundreds of millions of empty records."""

from __future__ import annotations

from ttlsnap.errors import CorruptionError

_ANY = 1 << 16  # records that a file of any size may have
_PER_BYTE = 4  # records for each byte of a file; different keys or values need a byte for each record


class RecordLimit:
    """Counter for the records of a file of ``size`` bytes; ``where`` names the file in errors."""

    def __init__(self, size: int, where: str) -> None:
        self._size, self._where = size, where
        self._records_left, self._empty_records_left = _ANY + _PER_BYTE * size, _ANY

    def count(self, records: int, empty_records: int) -> None:
        """Count records; ``empty_records`` of them have a key without fields, and only one such key exists.

        Raises CorruptionError for more records than Spark could have written.
        """
        self._records_left -= records
        self._empty_records_left -= empty_records
        if self._records_left < 0 or self._empty_records_left < 0:
            kind = "records" if self._records_left < 0 else "records whose key has no fields"
            raise CorruptionError(
                f"{self._where}: its {self._size:,} bytes decompress to more {kind} than Spark writes into a file of "
                "that size"
            )
