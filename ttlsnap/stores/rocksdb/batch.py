"""Batch of consecutive entries in a RocksDB store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttlsnap.stores.protocols import StoredSizes
from ttlsnap.stores.rocksdb.lists import Elements
from ttlsnap.unsaferow.rows import Rows


@dataclass(frozen=True, eq=False)
class RocksDbBatch:
    """Consecutive entries of one state in RocksDB, as they are stored; ``rows`` has their rows, if requested.

    In a state of lists, each of the ``elements`` is an entry, with the key of its list.
    """

    state: str
    raw_keys: Rows
    raw_values: Rows
    rows: tuple[Rows, Rows] | None = None
    elements: Elements | None = None

    def __len__(self) -> int:
        return len(self.raw_keys) if self.elements is None else len(self.elements.owner)

    @property
    def keys(self) -> Rows:
        return self.rows[0] if self.rows else self.raw_keys

    @property
    def values(self) -> Rows:
        return self.rows[1] if self.rows else self.raw_values

    @property
    def stored(self) -> tuple[Rows, Rows, Rows]:
        """See ``EntryBatch.stored``."""
        keys = self.keys
        if self.elements is not None:
            keys = keys.take(np.searchsorted(self.elements.owner, np.arange(len(self.raw_keys))))
        return self.raw_keys, self.raw_values, keys

    @property
    def sizes(self) -> StoredSizes:
        """See ``EntryBatch.sizes``."""
        keys, records = self.raw_keys.size, self.raw_values.size
        if self.elements is None:
            return StoredSizes(keys, records, records)
        return StoredSizes(keys, records, self.elements.pieces.size, self.elements.owner)
