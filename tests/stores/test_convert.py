"""Entries that are converted for another store are read back, so that none changes on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ttlsnap import StateDescriptor, open_checkpoint
from ttlsnap.errors import CorruptionError
from ttlsnap.operators.registry import states_of
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores.convert import convert
from ttlsnap.stores.hdfs.store import HdfsStore
from ttlsnap.stores.open import lineages_of, open_state_store
from ttlsnap.stores.protocols import EntryBatch
from ttlsnap.unsaferow.rows import Rows

from ..samples import SAMPLES


class Careless(HdfsStore):
    """A store that loses a bit of the entry with the number ``lost``, in a key or in a value."""

    lost = 0
    side = "value"

    def encode(self, state: StateDescriptor, keys: Rows, values: Rows, **options: Any) -> tuple[Rows, Rows]:
        parts = {"key": keys, "value": values}
        rows = parts[self.side]
        data = rows.data.copy()
        data[rows.start[self.lost] + rows.size[self.lost] - 1] ^= np.uint8(1)
        parts[self.side] = Rows(data, rows.start, rows.size)
        return super().encode(state, parts["key"], parts["value"], **options)


def batches() -> Iterator[tuple[EntryBatch, StateDescriptor, HdfsStore]]:
    """Yield the batches of a state without checksums, with the store that contains it."""
    checkpoint = open_checkpoint(LocalDirectory(str(SAMPLES / "agg-deltas-lz4-4.2")))
    (operator,) = checkpoint.operators
    (store,) = operator.stores
    (state,) = states_of(checkpoint, operator, store)
    source = open_state_store(checkpoint)
    assert isinstance(source, HdfsStore)
    for lineage in lineages_of(checkpoint, source, store):
        with source.open(checkpoint.files, lineage, None) as partition:
            for batch in partition.batches({state.state: state}):
                yield batch, state, source


def test_converted_entries_read_as_before() -> None:
    for batch, state, source in batches():
        target = replace(source, row_checksums=True)
        keys, values = convert(batch, source, target, state, "here")
        assert len(batch) == len(keys)
        again = target.decode(state, keys, values)
        assert [rows.to_list() for rows in again] == [batch.keys.to_list(), batch.values.to_list()]


@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize("lost", [0, -1])
def test_an_entry_that_changes_in_the_conversion_is_an_error(
    monkeypatch: pytest.MonkeyPatch, side: str, lost: int
) -> None:
    monkeypatch.setattr(Careless, "side", side)
    monkeypatch.setattr(Careless, "lost", lost)
    for batch, state, source in batches():
        target = Careless(source.codec, row_checksums=True)
        with pytest.raises(CorruptionError, match="here: entries as the new store has them do not read as before"):
            convert(batch, source, target, state, "here")
