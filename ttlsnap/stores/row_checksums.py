"""The checksum of a state row: CRC32C over key bytes then value bytes, as a little-endian int32.

With ``spark.sql.streaming.stateStore.rowChecksum.enabled`` the value of every put begins with it. A delete has no
value: its key begins with the checksum, which covers the key alone. Source: Spark's ``KeyValueChecksum``.

Without ``ttlsnap.native``, the words of all rows of a batch are processed in step, with one table per 16 bits. One call
of the CRC package per row took four times as long.
"""

from __future__ import annotations

from functools import cache

import google_crc32c
import numpy as np
import numpy.typing as npt

from ttlsnap import native
from ttlsnap.errors import CorruptionError
from ttlsnap.native import loops
from ttlsnap.quoting import quote
from ttlsnap.unsaferow.gather import interleave, read_at, word_columns
from ttlsnap.unsaferow.rows import Rows

CHECKSUM_SIZE = 4
_POLYNOMIAL = np.uint32(0x82F63B78)  # CRC32C, bits reversed
_LONG = 512  # bytes; the checksums of longer rows are computed one by one


def row_checksums(keys: Rows, values: Rows) -> npt.NDArray[np.uint32]:
    """Return the checksum of each entry (uint32[n]); a delete's value has no bytes."""
    if native.is_available():
        return loops.join_checksums((keys.data, keys.start, keys.size), (values.data, values.start, values.size))
    is_long = (keys.size > _LONG) | (values.size > _LONG)
    sums = np.full(len(keys), 0xFFFFFFFF, np.uint32)
    for rows in (keys, values):
        # UnsafeRows are whole words; RocksDB has a few bytes before them.
        head_sizes = np.where(is_long, 0, rows.size & 7)
        for place in range(int(head_sizes.max(initial=0))):
            rows_with_byte = np.flatnonzero(head_sizes > place)
            byte = rows.data[rows.start[rows_with_byte] + place]
            sums[rows_with_byte] = _table(8)[(sums[rows_with_byte] ^ byte) & 0xFF] ^ (
                sums[rows_with_byte] >> np.uint32(8)
            )
        for rows_with_byte, words in word_columns(
            rows.data, rows.start + head_sizes, np.where(is_long, 0, rows.size >> 3)
        ):
            words ^= sums[rows_with_byte]
            halves = words.view("<u2").reshape(-1, 4)
            sums[rows_with_byte] = np.bitwise_xor.reduce(
                [table[halves[:, number]] for number, table in enumerate(_tables())]
            )
    sums ^= np.uint32(0xFFFFFFFF)
    for number in np.flatnonzero(is_long).tolist():
        sums[number] = google_crc32c.extend(google_crc32c.value(_bytes(keys, number)), _bytes(values, number))
    return sums


@cache
def _table(bits: int) -> npt.NDArray[np.uint32]:
    """Return what each number of ``bits`` bits adds to the CRC."""
    crc = np.arange(1 << bits, dtype=np.uint32)
    for _ in range(bits):
        crc = np.where(crc & 1, (crc >> 1) ^ _POLYNOMIAL, crc >> 1)
    return crc


@cache
def _tables() -> list[npt.NDArray[np.uint32]]:
    """Return what each of a word's four 16-bit parts adds to the CRC of the word, the first part first."""
    crc = _table(16)
    tables = [crc]
    for _ in range(3):
        # The CRC after two more bytes, both zero.
        tables.insert(0, crc[tables[0] & 0xFFFF] ^ (tables[0] >> 16))
    return tables


def verify_row_checksums(keys: Rows, values: Rows, deleted: npt.NDArray[np.bool_], where: str) -> None:
    """Raise CorruptionError unless the checksum just before each row matches."""
    stored_sums = read_at(keys.data, np.where(deleted, keys.start, values.start) - CHECKSUM_SIZE, "<u4")
    wrong_rows = np.flatnonzero(stored_sums != row_checksums(keys, values))
    if len(wrong_rows):
        first_wrong = int(wrong_rows[0])
        raise CorruptionError(
            f"{where}: {len(wrong_rows)} of {len(keys)} rows in a block do not match their checksums; the first has "
            "the key "
            + quote(bytes(keys.data[keys.start[first_wrong] : keys.start[first_wrong] + keys.size[first_wrong]]).hex())
        )


def with_row_checksums(keys: Rows, values: Rows) -> Rows:
    """Return values of the HDFS-backed store with their checksums before them."""
    sums = row_checksums(keys, values).astype("<u4").view(np.uint8)
    place = np.arange(len(values), dtype=np.int64) * CHECKSUM_SIZE
    return Rows(*interleave((sums, place, CHECKSUM_SIZE), (values.data, values.start, values.size)))


def without_row_checksums(keys: Rows, values: Rows, where: str) -> Rows:
    """Return the values after their checksums; raises CorruptionError unless every checksum matches."""
    rows = Rows(values.data, values.start + CHECKSUM_SIZE, values.size - CHECKSUM_SIZE)
    if bool((read_at(values.data, values.start, "<u4") != row_checksums(keys, rows)).any()):
        raise CorruptionError(f"{where}: rows do not match their checksums")
    return rows


def _bytes(rows: Rows, number: int) -> bytes:
    return rows.data[rows.start[number] : rows.start[number] + rows.size[number]].tobytes()
