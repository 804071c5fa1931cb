"""The hash of a key in histories and ledgers: 64 bits, the same on every machine.

Two keys with one hash count as written when the later one was. So a collision can only keep an entry longer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ttlsnap.schema.types import BinaryType
from ttlsnap.stores.row_checksums import row_checksums
from ttlsnap.unsaferow.murmur3 import first_seeds, hash_columns
from ttlsnap.unsaferow.rows import Rows

Hashes = npt.NDArray[np.uint64]


def hash_keys(keys: Rows) -> Hashes:
    """Return the hash of each key: its CRC32C and its Murmur3 hash (uint64[n])."""
    nothing = Rows(np.zeros(0, np.uint8), np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64))
    checksums = row_checksums(keys, nothing).astype(np.uint64)
    hashes = hash_columns([keys.to_arrow()], [BinaryType()], first_seeds(len(keys)))
    return checksums << np.uint64(32) | hashes.astype(np.uint32).astype(np.uint64)
