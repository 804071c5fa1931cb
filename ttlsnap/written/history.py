"""The history of a partition: what the retained deltas or changelogs and the ledger say about the last writes.

A delta of version n has the keys that batch n - 1 wrote. Going back from the newest version, the history is complete
down to the first delta that is missing. The ledger continues it if it is not older than that. For a state whose keys
are written once, as in ``dropDuplicates``, a gap between the two does not matter: a key that the ledger has was written
before, and cannot have been written again.

A ledger is of no use if the query went back to an older batch since, or if a run of ttlsnap changed the state without
it. All commands keep it as soon as there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import xxhash

from ttlsnap.checkpoint import Checkpoint
from ttlsnap.checkpoint.logs import batch_start
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import WRITTEN
from ttlsnap.publishing.runs import Runs
from ttlsnap.schema.units import format_duration
from ttlsnap.storage.directory import Directory, each
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import StateStore
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.ledger import (
    FIRST,
    Hashes,
    Ledger,
    LedgerFacts,
    Place,
    hash_keys,
    ledger_path,
    list_ledgers,
    read_ledger,
    state_of,
)

_MS = 1000  # microseconds


@dataclass(frozen=True, eq=False)
class WrittenTimes:
    """Times by the hashes of the keys, which are sorted and different.

    hashes    uint64[n]
    times_ms  int64[n]: milliseconds since the epoch
    older     bool[n]: whether the entry was written before that time, and nobody knows when
    rest_ms   the time of all other keys, which were written before it
    """

    hashes: Hashes
    times_ms: Int64s
    older: Mask
    rest_ms: int

    @classmethod
    def of(cls, parts: Iterable[tuple[Hashes, Int64s, Mask]], rest_ms: int) -> WrittenTimes:
        """Return the times in ``parts``, newest first: the first one that has a hash decides."""
        known_parts = list(parts)
        if not known_parts:
            return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.bool_), rest_ms)
        hashes, first_positions = np.unique(np.concatenate([part[0] for part in known_parts]), return_index=True)
        times, older = (np.concatenate([part[column] for part in known_parts])[first_positions] for column in (1, 2))
        return cls(hashes, times, older, rest_ms)

    def of_keys(self, keys: Rows) -> tuple[Int64s, Mask]:
        """Return when each key was written, in microseconds since the epoch, and which were written before that."""
        times, older = self.of_hashes(hash_keys(keys))
        return times * _MS, older

    def of_hashes(self, hashes: Hashes) -> tuple[Int64s, Mask]:
        """Return the same for the hashes of keys, in milliseconds."""
        if not len(self.hashes):
            return np.full(len(hashes), self.rest_ms), np.ones(len(hashes), np.bool_)
        positions = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        is_known = self.hashes[positions] == hashes
        older: Mask = ~is_known | self.older[positions]
        return np.where(is_known, self.times_ms[positions], self.rest_ms), older


_SKEW_MS = 600_000  # what the clock of a storage may be behind that of a driver
_EARLIEST_MS = 1_451_606_400_000  # 2016: there was no Structured Streaming before
Part = tuple[Hashes, Int64s, Mask]
"""Hashes of keys, and what ``WrittenTimes`` has of them."""


@dataclass(frozen=True)
class BatchFacts:
    """The time of a batch in milliseconds, and the digest of its offset log, by the ``version`` of its state.

    A migration may change the settings in the log, so the ``digest`` is without them. ``whole`` is that of all of it,
    which ledgers of ttlsnap 0.2 have.
    """

    version: int
    time_ms: int
    digest: str
    whole: str


@dataclass(frozen=True)
class History:
    """What all partitions of a checkpoint need to know, as plain data.

    ``batches`` are those whose logs are retained, in order. Their times never go back: a batch whose clock was behind
    has the latest time before it, and ``wrong_clock`` says so if the clock was far behind. ``query`` is the id of the
    query. ``runs`` has the number and the id of the newest run that changed each partition, by folder, and ``number``
    is that of the next run. ``known`` are the states that have a ledger. ``is_asked``: somebody asks for the times of
    others, too.
    """

    batches: tuple[BatchFacts, ...]
    query: str
    runs: Mapping[str, tuple[int, str]]
    number: int
    known: frozenset[Place] = frozenset()
    is_asked: bool = True
    wrong_clock: str | None = None

    @property
    def now(self) -> BatchFacts:
        """The batch whose state is read."""
        return self.batches[-1]

    def facts_for(self, run: str) -> LedgerFacts:
        """Return the facts of the ledgers that ``run`` writes."""
        return LedgerFacts(self.now.version, self.now.digest, self.now.time_ms, self.query, run, self.number)

    def for_copy(self) -> History:
        """Return the history for the new ledgers of a copy, which has no runs yet."""
        return replace(self, number=FIRST)

    def keeps(self, state: StateDescriptor) -> bool:
        """Return whether a run keeps the times of a state without being asked."""
        return (state.operator, state.store, state.state) in self.known

    def at(self, version: int) -> BatchFacts:
        """Return the batch of a version, or the next one that is known."""
        return next((batch for batch in self.batches if batch.version >= version), self.now)

    def times(
        self, files: Directory, store: StateStore, lineage: Lineage, states: Mapping[str, StateDescriptor]
    ) -> dict[str, WrittenTimes]:
        """Return the times of the keys of each state in a partition. Raise CorruptionError for damage."""
        ledgers = {name: self._usable_ledger(files, lineage, state) for name, state in states.items()}
        ledger_version = min(
            (ledger.facts.version if ledger is not None else 0 for ledger in ledgers.values()), default=0
        )
        parts_of_states: dict[str, list[Part]] = {name: [] for name in states}
        first_version = lineage.version + 1
        for file, changes in store.writes(files, lineage, states):
            version, batch = file.version, self.at(file.version)
            if batch.version == version and file.mtime_ns // 1_000_000 + _SKEW_MS < batch.time_ms:
                break  # it is older than its batch: left by a query that later went back to an older one
            first_version, time_ms = version, batch.time_ms
            for name, keys in changes:
                if name in parts_of_states and len(keys):
                    hashes = np.unique(hash_keys(keys))
                    parts_of_states[name].append(
                        (hashes, np.full(len(hashes), time_ms), np.zeros(len(hashes), np.bool_))
                    )
            # The ledger has what older files would say.
            if version <= ledger_version + 1:
                break
        # Before the first known change, everything was written. Without any, nothing is known but the state itself.
        first_time_ms = self.at(first_version).time_ms
        times_of_states = {}
        for name, state in states.items():
            ledger, parts = ledgers[name], parts_of_states[name]
            if ledger is not None and (first_version <= ledger.facts.version + 1 or state.written_once):
                parts = [*parts, (ledger.hashes, ledger.times_ms, ledger.older)]
                rest_ms = first_time_ms if first_version > ledger.facts.version + 1 else ledger.facts.time_ms
            else:
                rest_ms = first_time_ms
            times_of_states[name] = WrittenTimes.of(parts, rest_ms)
        return times_of_states

    def _usable_ledger(self, files: Directory, lineage: Lineage, state: StateDescriptor) -> Ledger | None:
        ledger = read_ledger(files, ledger_path(lineage.new_snapshot, state.state))
        if ledger is None or not self.can_use(ledger.facts, lineage, state):
            return None
        return ledger

    def can_use(self, facts: LedgerFacts, lineage: Lineage, state: StateDescriptor) -> bool:
        """Return whether a ledger of a state in a partition belongs to this history."""
        if facts.query != self.query or facts.version > self.now.version:
            return False
        newest_number, newest_run = self.runs.get("/".join(lineage.new_snapshot.split("/")[:3]), (0, ""))
        # A later run changed this partition and wrote no ledger, so this one does not know what it did.
        if newest_number >= facts.number and newest_run != facts.run:
            return False
        retained_batch = next((batch for batch in self.batches if batch.version == facts.version), None)
        if retained_batch is None:
            # The log is gone, so the query may have gone back to an older batch since. It had still seen the keys.
            return state.written_once and facts.version < self.batches[0].version
        return facts.digest in (retained_batch.digest, retained_batch.whole)


def history_to_keep(checkpoint: Checkpoint, runs: Runs, *, is_asked: bool) -> History | None:
    """Return the history for a run that rewrites state: None if nobody asks for times, and there are no ledgers."""
    if not is_asked and not list_ledgers(checkpoint.files):
        return None
    return replace(history_of(checkpoint, runs), is_asked=is_asked)


def history_of(checkpoint: Checkpoint, runs: Runs) -> History:
    """Return the history of a checkpoint as of its batch. Raise CorruptionError for a damaged log."""
    files = checkpoint.files
    batches = [batch for batch in checkpoint.logs.offsets if batch <= checkpoint.batch.id]
    facts = each(files, lambda batch: _facts(files, batch), batches)
    facts, wrong_clock = _correct_clock(facts)
    times_ms = list(accumulate((fact.time_ms for fact in facts), max))
    back_ms, batch = max(
        ((time_ms - fact.time_ms, fact.version - 1) for time_ms, fact in zip(times_ms, facts, strict=True))
    )
    if back_ms > _SKEW_MS:
        wrong_clock = (
            f"batch {batch} began {format_duration(back_ms * 1000)} before an earlier batch, by its log. What it wrote "
            f"counts as written at the time of the earlier batch, for {WRITTEN}"
        )
    facts = [replace(fact, time_ms=time_ms) for fact, time_ms in zip(facts, times_ms, strict=True)]
    newest_and_next = runs.newest, runs.next_number
    known_states = frozenset(map(state_of, list_ledgers(files)))
    return History(tuple(facts), checkpoint.query_id or "", *newest_and_next, known_states, wrong_clock=wrong_clock)


def _correct_clock(facts: Sequence[BatchFacts]) -> tuple[list[BatchFacts], str | None]:
    """Give batches whose clock was not set the time of the next batch with a possible time. Return what was done.

    If no batch has a possible time, the times are left as they are: they are compared with each other.
    """
    possible_ms = [fact.time_ms for fact in facts if fact.time_ms >= _EARLIEST_MS]
    if not possible_ms or len(possible_ms) == len(facts):
        return list(facts), None
    corrected: list[BatchFacts] = []
    following_ms = possible_ms[-1]
    for fact in reversed(facts):
        following_ms = fact.time_ms if fact.time_ms >= _EARLIEST_MS else following_ms
        corrected.insert(0, replace(fact, time_ms=following_ms))
    wrong_batches = [fact.version - 1 for fact in facts if fact.time_ms < _EARLIEST_MS]
    return corrected, (
        f"the clock of batch {wrong_batches[-1]} was before 2016, by its log (batches like this: "
        f"{len(wrong_batches)}). What it wrote counts as written at the time of the next batch, for {WRITTEN}"
    )


def _facts(files: Directory, batch: int) -> BatchFacts:
    start = batch_start(files, batch)
    digests = (xxhash.xxh3_64_hexdigest(text.encode()) for text in (start.without_settings, start.text))
    return BatchFacts(batch + 1, start.time_ms, *digests)
