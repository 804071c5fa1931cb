"""The checksum of a state row: CRC32C over key bytes then value bytes, as a little-endian int32.

With ``spark.sql.streaming.stateStore.rowChecksum.enabled`` every put's value begins with it and every delete's
key does (there over the key alone). Source: Spark's ``KeyValueChecksum``.
"""

from __future__ import annotations

import google_crc32c
import numpy as np
import numpy.typing as npt

from ttlsnap.errors import CorruptionError
from ttlsnap.unsaferow.gather import at
from ttlsnap.unsaferow.rows import Rows

CHECKSUM_SIZE = 4


def row_checksums(keys: Rows, values: Rows) -> npt.NDArray[np.uint32]:
    """The checksum of each entry (uint32[n]); a delete's value has no bytes."""
    # Both loops run inside C: one call of the package for each row.
    of_keys = map(google_crc32c.value, _pieces(keys))
    sums = map(google_crc32c.extend, of_keys, _pieces(values))
    return np.fromiter(sums, np.uint32, len(keys))


def verify_row_checksums(keys: Rows, values: Rows, deleted: npt.NDArray[np.bool_], where: str) -> None:
    """Raise CorruptionError unless each entry's checksum, which lies just before its row, is right."""
    stored = at(keys.data, np.where(deleted, keys.start, values.start) - CHECKSUM_SIZE, "<u4")
    wrong = np.flatnonzero(stored != row_checksums(keys, values))
    if len(wrong):
        i = int(wrong[0])
        raise CorruptionError(
            f"{where}: {len(wrong)} of {len(keys)} rows in a block do not match their checksums; the first has the "
            f"key {bytes(keys.data[keys.start[i] : keys.start[i] + keys.size[i]]).hex()}"
        )


def _pieces(rows: Rows) -> list[bytes]:
    data = rows.data.tobytes()
    return [data[a:b] for a, b in zip(rows.start.tolist(), (rows.start + rows.size).tolist(), strict=True)]
