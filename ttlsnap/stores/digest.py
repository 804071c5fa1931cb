"""A digest of all entries of a partition as they are stored, to compare two states of it."""

from __future__ import annotations

import contextlib

import numpy as np

from ttlsnap.storage.directory import Directory
from ttlsnap.stores.hdfs.key_index import Hashes, hash_rows
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import StateStore
from ttlsnap.unsaferow.rows import Rows

_SEEDS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_HALF = np.uint64(32)
_WORD = 8  # bytes


def digest_of_state(
    files: Directory, state_store: StateStore, lineage: Lineage, scratch: str | None
) -> tuple[int, ...]:
    """Return a digest of all entries as they are stored, which does not depend on their order."""
    count, sums = 0, [0] * len(_SEEDS)
    with state_store.open(files, lineage, scratch) as partition, contextlib.closing(partition.batches({})) as batches:
        for batch in batches:
            keys, values, _ = batch.stored
            count += len(keys)
            of_keys, of_values = _hash_whole(keys), _hash_whole(values)
            for number, seed in enumerate(_SEEDS):
                mixed_hashes = (of_keys ^ seed) * _SEEDS[0] + of_values * seed
                mixed_hashes ^= mixed_hashes >> _HALF
                mixed_hashes *= seed
                mixed_hashes ^= mixed_hashes >> _HALF
                sums[number] = (sums[number] + int(mixed_hashes.sum(dtype=np.uint64))) % (1 << 64)
    return (count, *sums)


def _hash_whole(rows: Rows) -> Hashes:
    """Return a hash of all bytes of each row; ``hash_rows`` leaves out those after the last whole word."""
    hashes = hash_rows(rows)
    rest_sizes = rows.size % _WORD
    end = rows.start + rows.size - rest_sizes
    for byte in range(int(rest_sizes.max(initial=0))):
        rows_with_byte = np.flatnonzero(rest_sizes > byte)
        hashes[rows_with_byte] = (hashes[rows_with_byte] ^ rows.data[end[rows_with_byte] + byte]) * _SEEDS[0]
        hashes[rows_with_byte] ^= hashes[rows_with_byte] >> _HALF
    return hashes
