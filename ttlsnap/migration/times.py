"""The times at which entries were written: they follow the entries to the new partitions, and become ledgers there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ttlsnap.compaction.task import Progress
from ttlsnap.engines.moving import Part
from ttlsnap.engines.spill import Entries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import Staging, StateStore
from ttlsnap.unsaferow.gather import Int64s, Mask, gather_ragged
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.history import History
from ttlsnap.written.keeping import LedgerBuilder
from ttlsnap.written.ledger import Hashes, LedgerFacts, hash_keys

_KEY = np.dtype([("state", "u1"), ("hash", "<u8")])
_VALUE = np.dtype([("time", "<i8"), ("older", "u1")])


@dataclass(frozen=True)
class KeptStates:
    """The old ``states`` of a store whose times are kept, and the ``new`` states of its new store that get ledgers."""

    history: History
    states: tuple[StateDescriptor, ...]
    new: tuple[str, ...]


class MovingTimes:
    """The times of the entries of an old partition."""

    def __init__(self, kept_states: KeptStates | None, files: Directory, store: StateStore, lineage: Lineage) -> None:
        states = {state.state: state for state in kept_states.states} if kept_states is not None else {}
        self._times = (
            kept_states.history.times(files, store, lineage, states) if kept_states is not None and states else {}
        )
        self._numbers = {name: number for number, name in enumerate(kept_states.new)} if kept_states is not None else {}

    def of(self, state: str, keys: Rows, new_state: str, new_keys: Rows) -> tuple[Hashes, Int64s, Mask] | None:
        """Return the hashes of new keys, and the times of the old ones; None if they are not kept."""
        if state not in self._times or new_state not in self._numbers:
            return None
        return hash_keys(new_keys), *self._times[state].of_hashes(hash_keys(keys))

    def as_entries(self, new_state: str, hashes: Hashes, times_ms: Int64s, older: Mask) -> Entries:
        """Return times in the form of entries, for a ``LedgerTask``."""
        keys, values = np.zeros(len(hashes), _KEY), np.zeros(len(hashes), _VALUE)
        keys["state"], keys["hash"] = self._numbers[new_state], hashes
        values["time"], values["older"] = times_ms, older
        return _rows_of(keys), _rows_of(values)


@dataclass(frozen=True)
class LedgerTask:
    """The ledgers of a new partition, whose snapshot is ``target``. See ``ttlsnap.engines.moving.Target``.

    They are those of ``states``, and are staged below ``staged_below`` in ``staging_root``.
    """

    target: str
    states: tuple[str, ...]
    facts: LedgerFacts
    staging_root: str
    staged_below: str

    @property
    def size(self) -> int:
        """See ``Target.size``."""
        return 0

    def build(self, parts: Iterable[Part], folder: Path, progress: Progress) -> tuple[str, ...]:
        """See ``Target.build``. Return the paths where the ledgers belong."""
        builder = LedgerBuilder(self.target, self.facts, self.states)
        for part in parts:
            keys, values = _array_of(part.keys, _KEY), _array_of(part.values, _VALUE)
            for number in np.unique(keys["state"]).tolist():
                is_of_state = keys["state"] == number
                times, older = values["time"][is_of_state], values["older"][is_of_state] != 0
                builder.add(self.states[number], keys["hash"][is_of_state], times, older)
            progress(0, 0)
        return builder.write(Staging(open_directory(self.staging_root), self.staged_below))


def _rows_of(array: npt.NDArray[Any]) -> Rows:
    size = array.dtype.itemsize
    start = np.arange(len(array), dtype=np.int64) * size
    return Rows(array.view(np.uint8), start, np.full(len(array), size, np.int64))


def _array_of(rows: Rows, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(gather_ragged(rows.data, rows.start, rows.size), dtype)
