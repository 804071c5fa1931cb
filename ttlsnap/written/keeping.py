"""The times of a partition's entries while a run rewrites it, and the ledgers that remember them.

As soon as one run has asked when entries were written, every run that rewrites a partition writes its ledgers again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from ttlsnap.checkpoint import Checkpoint
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import TtlsnapError
from ttlsnap.operators.links import StateId
from ttlsnap.operators.registry import states_of
from ttlsnap.publishing.journal import staged_path
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.open import for_reading
from ttlsnap.stores.open import open_state_store, partitions_of
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import Staging
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.history import History, WrittenTimes
from ttlsnap.written.ledger import Hashes, Ledger, LedgerFacts, hash_keys, ledger_path


class LedgerBuilder:
    """The ledgers of ``states`` in one partition, which has the new ``snapshot``, from entries in any order."""

    def __init__(self, snapshot: str, facts: LedgerFacts, states: Iterable[str]) -> None:
        self._snapshot, self._facts = snapshot, facts
        self._parts: dict[str, list[tuple[Hashes, Int64s, Mask]]] = {state: [] for state in states}

    def add(self, state: str, hashes: Hashes, times_ms: Int64s, older: Mask) -> None:
        """Add the hashes of keys, and their times. Where a key comes twice, the later time counts."""
        self._parts[state].append((hashes, times_ms, older))

    def write(self, staging: Staging) -> tuple[str, ...]:
        """Stage the ledgers. Return the paths where they belong."""
        paths = []
        for state, parts in self._parts.items():
            no_entries = (np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.bool_))
            hashes, times, older = (
                np.concatenate([part[column] for part in (no_entries, *parts)]) for column in range(3)
            )
            # lexsort sorts by its last key first.
            order = np.lexsort((~older, -times, hashes))
            first_of_keys = order[np.append(True, hashes[order][1:] != hashes[order][:-1])] if len(order) else order
            ledger = Ledger(self._facts, hashes[first_of_keys], times[first_of_keys], older[first_of_keys])
            path = ledger_path(self._snapshot, state)
            path_in_staging = staging.place(path)
            staging.files.mkdirs(path_in_staging.rpartition("/")[0])
            staging.files.replace(path_in_staging, ledger.to_bytes(path))
            paths.append(path)
        return tuple(paths)


class KeptTimes:
    """The times of the entries of a partition, and its new ledgers, for which ``keep`` gets the entries that stay.

    The times of the ``states`` of its ``parts`` may be needed for more than ledgers. New ledgers are staged, and belong
    to ``run``. Without a ``staging`` there are none. ``others`` are the states whose
    entries must be kept, too, although nobody asked for their times.
    """

    def __init__(
        self,
        files: Directory,
        history: History | None,
        parts: Sequence[StorePartition],
        staging: Staging | None,
        run: str,
    ) -> None:
        self._staging = staging
        self._times: dict[StateId, WrittenTimes] = {}
        self._asked_states: set[StateId] = set()
        self._builders: dict[str, LedgerBuilder] = {}
        self.others: dict[StateId, StateDescriptor] = {}
        for part in parts if history is not None else ():
            assert history is not None
            asked_states = part.states if history.is_asked else ()
            known_states = (
                [candidate for candidate in (*part.states, *part.others) if history.keeps(candidate)]
                if staging is not None
                else []
            )
            states = {state.state: state for state in (*known_states, *asked_states)}
            if not states:
                continue
            times = history.times(files, part.state_store, part.lineage, states)
            self._times |= {(part.name, name): written_times for name, written_times in times.items()}
            self._asked_states |= {(part.name, state.state) for state in asked_states}
            self.others |= {(part.name, state.state): state for state in known_states if state not in part.states}
            self._builders[part.name] = LedgerBuilder(part.lineage.new_snapshot, history.facts_for(run), states)

    def of(self, place: StateId) -> WrittenTimes | None:
        """Return the times of a state; None if nobody asked for them."""
        return self._times[place] if place in self._asked_states else None

    def keep(self, place: StateId, keys: Rows) -> None:
        """Note entries that stay."""
        if self.has_ledger(place):
            hashes = hash_keys(keys)
            self.keep_hashes(place, hashes, hashes)

    def keep_hashes(self, place: StateId, hashes: Hashes, hashes_before: Hashes) -> None:
        """Note entries that stay, by the hashes of their keys, now and before (``hashes_before``)."""
        self._builders[place[0]].add(place[1], hashes, *self._times[place].of_hashes(hashes_before))

    def has_ledger(self, place: StateId) -> bool:
        """Return whether a state gets a new ledger."""
        return self._staging is not None and place in self._times

    def add(self, place: StateId, keys: Rows, time_ms: int) -> None:
        """Note entries that the run itself has written."""
        if self.has_ledger(place):
            times, older = np.full(len(keys), time_ms, np.int64), np.zeros(len(keys), np.bool_)
            self._builders[place[0]].add(place[1], hash_keys(keys), times, older)

    def write_ledgers(self, store: str) -> tuple[str, ...]:
        """Stage the new ledgers of a store. Return the paths where they belong."""
        if self._staging is None or store not in self._builders:
            return ()
        return self._builders[store].write(self._staging)


def place_ledgers(files: Directory, run: str, paths: Iterable[str]) -> list[str]:
    """Move the new ledgers of a run that publishes nothing to their places. Return a warning if that fails."""

    def move_ledger(path: str) -> None:
        files.mkdirs(path.rpartition("/")[0])
        files.rename(staged_path(run, path), path, overwrite=True)

    try:
        each(files, move_ledger, list(paths))
    except TtlsnapError as error:
        return ["the ledger of written times was not kept: " + error.text]
    return []


def renew_ledgers(
    checkpoint: Checkpoint,
    history: History | None,
    staging: Staging,
    run: str,
    *,
    done: Collection[str] = (),
    operators: Collection[int] = (),
) -> tuple[str, ...]:
    """Stage the ledgers of partitions that a run does not rewrite: without ``operators``, and the paths ``done``.

    They need not be of the last version as long as the deltas after it are there, with the logs of their batches. A
    copy has only some deltas, and a migration moves older logs away. Return the paths where the ledgers belong.
    """
    if history is None or not history.known:
        return ()
    files, state_store = checkpoint.files, open_state_store(checkpoint)

    def renew(part: StorePartition) -> tuple[str, ...]:
        states = {state.state: state for state in part.others}
        if {ledger_path(part.lineage.new_snapshot, name) for name in states} <= set(done):
            return ()
        times = KeptTimes(files, replace(history, is_asked=False), [part], staging, run)
        for batch, state in part.scan(for_reading(files), states):
            if state is not None:
                times.keep(state.place, batch.stored[2])
        return times.write_ledgers(part.name)

    parts = []
    for operator in checkpoint.operators:
        for store in operator.stores if operator.id not in operators else ():
            states = tuple(state for state in states_of(checkpoint, operator, store) if history.keeps(state))
            if states:
                parts += [replace(part, others=states) for part in partitions_of(checkpoint, state_store, store)]
    return tuple(path for paths in each(files, renew, parts) for path in paths)
