"""The work of a migration as plain data: old partitions are split, and new ones are built from the parts.

Entries may have the same key after a migration. Of a deduplication, one of them is enough. The rows of a join with the
same key and time become one list.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ttlsnap.compaction.partition import compact_partition
from ttlsnap.compaction.task import PartitionResults, PartitionTask, Progress
from ttlsnap.engines.moving import Part
from ttlsnap.engines.proof import Fingerprint
from ttlsnap.engines.spill import Entries, Spills
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import RefusedError
from ttlsnap.migration.sorting import Converter, OldPartition, Sorter, SortingSink, Split, times_of
from ttlsnap.migration.times import MovingTimes
from ttlsnap.operators.deduplication import stored_limit
from ttlsnap.operators.links import Link, StateId
from ttlsnap.operators.work import begin_work
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.stores.families import NO_FAMILY_CHANGES, FamilyChanges
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import StagedFile, Staging, StateStore
from ttlsnap.stores.rocksdb.lists import join
from ttlsnap.stores.rocksdb.store import RocksDbStore
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_numbers
from ttlsnap.written.keeping import LedgerBuilder
from ttlsnap.written.ledger import LedgerFacts


def merge(entries: Iterable[Entries], state: StateDescriptor, store: StateStore) -> Entries:
    """Return one entry for each key, as ``store`` keeps those of ``state``: the one that Spark keeps longest.

    All entries are in memory at once, so they should be those of one partition.
    """
    keys, values, codes = _collect(entries)
    limits = np.zeros(len(keys), np.int64)
    if stored_limit(state.key_schema, state.value_schema) is not None:
        rows = store.decode(state, keys, values)[1]
        limits = read_numbers(rows, len(state.value_schema), state.value_schema.names.index("expiresAtMicros"))
    order = np.lexsort((-limits, codes))
    first_entries = order[np.append(True, codes[order][1:] != codes[order][:-1])] if len(order) else order
    kept_entries = np.sort(first_entries)
    return keys.take(kept_entries), values.take(kept_entries)


def merge_lists(entries: Iterable[Entries], store: StateStore) -> Entries:
    """Return one list for each key, with all elements of the lists that have this key.

    All entries are in memory at once, so they should be those of one partition.
    """
    assert isinstance(store, RocksDbStore)
    keys, values, codes = _collect(entries)
    order = np.argsort(codes, kind="stable")
    first_entries = order[np.append(True, codes[order][1:] != codes[order][:-1])] if len(order) else order
    return keys.take(first_entries), Rows.of(join(values.take(order), codes[order], store.delimiter))


def _collect(entries: Iterable[Entries]) -> tuple[Rows, Rows, Int64s]:
    """Return all keys and values, and a number for each key that only equal ones share."""
    pairs = list(entries)
    keys, values = (Rows.concat([pair[side] for pair in pairs]) if pairs else Rows.none() for side in (0, 1))
    return keys, values, keys.to_arrow().dictionary_encode().indices.to_numpy()


_TIMES = "-times"


@dataclass(frozen=True)
class SplitTask:
    """An old partition to be split: of one store, or of linked stores whose entries ``compaction`` transforms.

    ``state_store`` is the old store, and ``new_store`` the new one. A partition whose entries ``stay`` together is not
    split: its ``BuildTask`` reads it. The entries of the stores must fit together as the ``links`` say.
    See ``ttlsnap.engines.moving.Source``.
    """

    root: str
    stores: tuple[OldPartition, ...]
    state_store: StateStore
    new_store: StateStore
    compaction: PartitionTask | None = None
    stay: bool = False
    links: tuple[Link, ...] = ()

    @property
    def size(self) -> int:
        """See ``Source.size``."""
        return 0 if self.stay else sum(store.lineage.size for store in self.stores)

    @property
    def targets(self) -> Sequence[int]:
        """See ``Source.targets``."""
        if self.stay:
            return ()
        targets_with_counts = [
            (first_target, store.partitions)
            for store in self.stores
            for first_target in (store.first, store.ledgers)
            if first_target is not None
        ]
        return sorted(
            {
                target
                for first_target, partitions in targets_with_counts
                for target in range(first_target, first_target + partitions)
            }
        )

    def split(self, spills: Spills, progress: Progress) -> SplitResult:
        """See ``Source.split``.

        Raise UnsupportedError for a state that was not planned, and CorruptionError for damage.
        """
        if self.stay:
            return SplitResult(())
        files = for_reading(open_directory(self.root))
        with contextlib.ExitStack() as stack:
            sorters = {}
            for number, store in enumerate(self.stores):
                spill = stack.enter_context(spills.write(str(number), store.partitions))
                times, spill_of_times = MovingTimes(store.kept, files, self.state_store, store.lineage), None
                if store.ledgers is not None:
                    spill_of_times = stack.enter_context(spills.write(f"{number}{_TIMES}", store.partitions))
                sorter = Sorter(store, self.state_store, self.new_store, spill, times, spill_of_times)
                sorters[store.name] = sorter
            compacted: PartitionResults = ()
            if self.compaction is not None:
                task = replace(self.compaction, scratch=str(spills.path), whole=True)
                compacted = compact_partition(task, progress, SortingSink(sorters))
                for result in compacted:
                    result.raise_failure()
            else:
                self._sort(files, spills.path, sorters, progress)
            splits = tuple(sorter.finish() for sorter in sorters.values())
        return SplitResult(splits, compacted)

    def _sort(self, files: Directory, folder: Path, sorters: Mapping[str, Sorter], progress: Progress) -> None:
        """Sort all entries as they are."""
        work_of_links = [(link, begin_work(link, self.stores[0].where)) for link in self.links]
        for store, sorter in zip(self.stores, sorters.values(), strict=True):
            with self.state_store.open(files, store.lineage, str(folder)) as partition:
                sorter.converter.families = dict(partition.families)
                for batch in partition.batches(sorter.states):
                    sorter.add(batch)
                    for link, work in work_of_links:
                        if (place := sorter.states[batch.state].place) in link.places:
                            work.look(place, batch.keys, batch.values)
                    progress(len(batch), 0)
        for _, work in work_of_links:
            work.resolve({}, _fetch_nothing)

    def read(self, spills: Spills, target: int) -> Iterator[Entries]:
        """See ``Source.read``."""
        for number, store in enumerate(self.stores if not self.stay else ()):
            for first_target, name in ((store.first, str(number)), (store.ledgers, f"{number}{_TIMES}")):
                if first_target is not None and first_target <= target < first_target + store.partitions:
                    yield from spills.read(name, target - first_target, store.partitions)


def _fetch_nothing(place: StateId, mask: Mask) -> Rows:
    raise AssertionError("nothing changes, so no rows are needed")


@dataclass(frozen=True)
class SplitResult:
    """The result of a ``SplitTask``: one for each of its stores, and those of the compaction."""

    splits: tuple[Split, ...]
    compacted: PartitionResults = ()


@dataclass(frozen=True)
class BuildTask:
    """A new partition, whose snapshot is ``target``. See ``ttlsnap.engines.moving.Target``.

    It has the settings of the old partition ``like``. New files are staged below ``staged_below`` in ``staging_root``;
    None in a dry run. ``old`` is the partition of ``old_store`` that has exactly its entries, if there is one.
    ``families`` are the changes of its column families. Then it also writes the ledgers of its ``kept`` states, with
    the ``facts``. Entries of the state ``merged`` may have the same key, and
    become one. With ``lists``, all entries are lists, and those with the same key become one. ``unique`` says that keys
    change, so that the new ones must be compared with each other.
    """

    root: str
    target: str
    like: Lineage
    state_store: StateStore
    staging_root: str
    staged_below: str | None
    old: OldPartition | None = None
    old_store: StateStore | None = None
    merged: StateDescriptor | None = None
    unique: bool = False
    lists: bool = False
    families: FamilyChanges = NO_FAMILY_CHANGES
    facts: LedgerFacts | None = None

    @property
    def size(self) -> int:
        """See ``Target.size``."""
        return self.old.lineage.size if self.old is not None else 0

    def build(self, parts: Iterable[Part], folder: Path, progress: Progress) -> Built:
        """See ``Target.build``. Raise CorruptionError if the partition cannot be read back as it was written."""
        files = for_reading(open_directory(self.root))
        staging = None
        if self.staged_below is not None:
            staging = Staging(open_directory(self.staging_root), self.staged_below)
        fingerprint = Fingerprint()
        entries: Iterable[Entries] = ((part.keys, part.values) for part in parts)
        converter, families, ledgers = None, dict[int, str](), None
        if self.old is not None and self.old_store is not None:
            converter = Converter(self.old, self.old_store, self.state_store)
            if self.old.kept is not None and self.facts is not None:
                ledgers = LedgerBuilder(self.target, self.facts, self.old.kept.new)
            entries = self._read_old(files, converter, families, folder, ledgers)
        build = self.state_store.build(files, self.like, self.target, staging, str(folder), self.families)

        def receive_entries() -> Iterator[Entries]:
            for keys, values in entries:
                fingerprint.add(keys, values)
                yield keys, values
                # Entries that were split were counted when they were read. Here, a run can be stopped.
                progress(len(keys) if converter is not None else 0, 0)

        entries_kept, key_arrays = 0, []
        with build as builder:
            entries_to_put: Iterable[Entries] = receive_entries()
            if self.lists:
                entries_to_put = [merge_lists(entries_to_put, self.state_store)]
            elif self.merged is not None:
                entries_to_put = [merge(entries_to_put, self.merged, self.state_store)]
            for keys, values in entries_to_put:
                entries_kept += len(keys)
                if self.unique:
                    key_arrays.append(keys.to_arrow())
                builder.put(keys, values)
            if key_arrays and len(pa.chunked_array(key_arrays).unique()) != entries_kept:
                raise RefusedError(
                    f"{self.root}: with the new keys, several entries would have the same key. Nothing was changed"
                )
            built_partition = builder.finish()
        misfits = dict(converter.misfits) if converter is not None else {}
        unused = dict(converter.unused) if converter is not None else {}
        paths = ledgers.write(staging) if ledgers is not None and staging is not None else ()
        return Built(
            entries_kept, fingerprint, built_partition.size, built_partition.files, misfits, families, paths, unused
        )

    def _read_old(
        self,
        files: Directory,
        converter: Converter,
        families: dict[int, str],
        folder: Path,
        ledgers: LedgerBuilder | None,
    ) -> Iterator[Entries]:
        """Yield the entries of the old partition as the new one has them; add its column families to ``families``."""
        assert self.old is not None and self.old_store is not None
        scratch = str(folder / f"old-{self.old.first + self.old.partition}")
        times = MovingTimes(self.old.kept, files, self.old_store, self.old.lineage)
        with self.old_store.open(files, self.old.lineage, scratch) as partition:
            families.update(partition.families)
            converter.families = families
            for batch in partition.batches(converter.states):
                for converted in converter.convert(batch):
                    if ledgers is not None and (moved_times := times_of(converted, times)) is not None:
                        ledgers.add(moved_times[0], *moved_times[1])
                    yield converted.keys, converted.values


@dataclass(frozen=True)
class Built:
    """The result of a ``BuildTask``; ``size`` is in bytes on disk.

    Its ``entries`` are fewer than those that it ``received`` if some were merged.
    ``misfits`` and ``unused`` are as in ``Split``, and so are ``families``, which are those of the ``old`` partition.
    ``ledgers`` are the paths of its new ledgers.
    """

    entries: int
    received: Fingerprint
    size: int
    files: tuple[StagedFile, ...]
    misfits: Mapping[str, int] = field(default_factory=dict)
    families: Mapping[int, str] = field(default_factory=dict)
    ledgers: tuple[str, ...] = ()
    unused: Mapping[str, int] = field(default_factory=dict)
