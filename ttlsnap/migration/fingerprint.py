"""The fingerprint of a set of entries, whatever their order: it shows that none is lost, doubled or changed."""

from __future__ import annotations

import numpy as np

from ttlsnap.stores.row_checksums import row_checksums
from ttlsnap.unsaferow.rows import Rows

_MODULUS = 1 << 64


def fingerprint(keys: Rows, values: Rows) -> int:
    """Return the sum of the entries' own fingerprints, modulo 2^64; those of two sets add up to that of their union.

    An entry's fingerprint mixes two CRC32C sums, of key and value, and of value and key.
    """
    mixed = row_checksums(keys, values).astype(np.uint64) << np.uint64(32)
    mixed |= row_checksums(values, keys)
    # The last steps of MurmurHash3 (fmix64): without them, the sum would not notice bytes that two entries exchanged.
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(33)
    return int(mixed.sum(dtype=np.uint64)) if len(mixed) else 0


def add(first: int, second: int) -> int:
    """Return the fingerprint of the union of two sets."""
    return (first + second) % _MODULUS
