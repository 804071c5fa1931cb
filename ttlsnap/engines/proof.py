"""The proof that every entry of a move arrived, exactly once and unchanged, in whatever order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ttlsnap.errors import CorruptionError
from ttlsnap.stores.row_checksums import row_checksums
from ttlsnap.unsaferow.rows import Rows

_MODULUS = 1 << 64


@dataclass
class Fingerprint:
    """The number of entries in a set, and the sum of their own fingerprints, modulo 2^64, whatever their order."""

    entries: int = 0
    sum: int = 0

    def add(self, keys: Rows, values: Rows) -> None:
        """Add entries to the set."""
        self.entries += len(keys)
        self.sum = (self.sum + fingerprint(keys, values)) % _MODULUS

    @classmethod
    def of_all(cls, sets: Iterable[Fingerprint]) -> Fingerprint:
        """Return that of the union of sets."""
        fingerprints = list(sets)
        return cls(
            sum(subset.entries for subset in fingerprints), sum(subset.sum for subset in fingerprints) % _MODULUS
        )


def fingerprint(keys: Rows, values: Rows) -> int:
    """Return the sum of the entries' own fingerprints, modulo 2^64.

    An entry's fingerprint mixes two CRC32C sums, of key and value, and of value and key.
    """
    fingerprints = row_checksums(keys, values).astype(np.uint64) << np.uint64(32)
    fingerprints |= row_checksums(values, keys)
    # The last steps of MurmurHash3 (fmix64): without them, the sum would not notice bytes that two entries exchanged.
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        fingerprints ^= fingerprints >> np.uint64(33)
        fingerprints *= np.uint64(factor)
    fingerprints ^= fingerprints >> np.uint64(33)
    return int(fingerprints.sum(dtype=np.uint64)) if len(fingerprints) else 0


@dataclass(frozen=True)
class Sent:
    """What a source has for a group of targets: the number of entries for each of them, and all as one set."""

    entries: tuple[int, ...]
    fingerprint: Fingerprint


def require_all(where: str, what: str, sent: Sequence[Sent], received: Sequence[Fingerprint]) -> None:
    """Raise CorruptionError unless a group of targets received every entry, exactly once. ``what`` are the entries."""
    counts = np.sum([group.entries for group in sent], axis=0, dtype=np.int64).tolist() if sent else [0] * len(received)
    sent_set, received_set = Fingerprint.of_all(group.fingerprint for group in sent), Fingerprint.of_all(received)
    if [target.entries for target in received] != counts or sent_set != received_set:
        raise CorruptionError(
            f"{where}: the new partitions do not have the {what}. Nothing was published. Check the disk and the "
            "memory of this machine"
        )
