"""The times at which a task's entries were written, and the ledgers that remember them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ttlsnap.checkpoint import layout
from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.errors import TtlsnapError
from ttlsnap.operators.links import StateId
from ttlsnap.storage.directory import OWN, Directory, each
from ttlsnap.storage.open import open_directory, open_for_reading
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.hashing import Hashes, hash_keys
from ttlsnap.written.ledger import Ledger, ledger_path
from ttlsnap.written.times import WrittenTimes


class TaskTimes:
    """The times of the entries of a task. ``keep`` gets those that stay, for the new ledgers."""

    def __init__(self, task: PartitionTask) -> None:
        self._task = task
        self._times: dict[StateId, WrittenTimes] = {}
        self._kept: dict[StateId, list[Hashes]] = {}
        if task.history is None:
            return
        files = open_for_reading(task.root)
        for store in task.stores:
            states = {state.state: state for state in store.states}
            found = task.history.times(files, task.state_store, store.lineage, states) if states else {}
            self._times |= {(store.name, name): times for name, times in found.items()}

    def of(self, place: StateId) -> WrittenTimes | None:
        """Return the times of a state; None if nobody asked for them."""
        return self._times.get(place)

    def keep(self, place: StateId, keys: Rows) -> None:
        """Note entries that stay."""
        history = self._task.history
        if history is not None and history.new_ledger is not None and place in self._times:
            self._kept.setdefault(place, []).append(hash_keys(keys))

    def write_ledgers(self) -> tuple[str, ...]:
        """Write the new ledgers into the folder of the run. Return the paths where they belong."""
        task, history = self._task, self._task.history
        if history is None or history.new_ledger is None or task.staged_below is None:
            return ()
        files, written = open_directory(task.root), []
        for store in task.stores:
            for state in store.states:
                place = (store.name, state.state)
                hashes = np.unique(np.concatenate([np.zeros(0, np.uint64), *self._kept.get(place, ())]))
                times, older = self._times[place].of_hashes(hashes)
                now, run = history.now, (history.query, history.new_ledger, history.number)
                ledger = Ledger(now.version, now.digest, now.time_ms, *run, hashes, times, older)
                path = ledger_path(store.lineage, state.state)
                staged = _staged(history.new_ledger, path)
                files.mkdirs(staged.rpartition("/")[0])
                files.replace(staged, ledger.to_bytes(path))
                written.append(path)
        return tuple(written)


def place_ledgers(files: Directory, run: str, results: Sequence[PartitionResult]) -> list[str]:
    """Move the new ledgers of a run to their places. Return a warning if that fails."""

    def place(path: str) -> None:
        files.mkdirs(path.rpartition("/")[0])
        files.rename(_staged(run, path), path)

    try:
        each(files, place, [path for result in results for path in result.ledgers])
    except TtlsnapError as error:
        return [f"the ledger of written times was not kept: {error}"]
    return []


def _staged(run: str, path: str) -> str:
    return f"{layout.run_directory(run)}/{path.removeprefix(f'{OWN}/')}"
