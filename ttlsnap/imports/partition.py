"""The work on the files of the tables, and then on each partition of an operator, as plain data.

Each file is read once, and its rows are sorted by partition into scratch files. Then each partition is built from its
old entries that stay, and from its new ones. Memory is bounded by the new entries of a partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.checkpoint import layout
from ttlsnap.compaction.task import PartitionResult, Progress
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import json_texts
from ttlsnap.errors import CorruptionError
from ttlsnap.imports.conforming import EXAMPLES, HAS_KEY, Conforming, Misfits
from ttlsnap.imports.derived import NewEntries, Parts, identities, new_entries
from ttlsnap.imports.sorted_rows import SortedRows
from ttlsnap.imports.sources import TableFile
from ttlsnap.imports.tables import ImportTable
from ttlsnap.imports.timely import find_untimely
from ttlsnap.migration.fingerprint import add, fingerprint
from ttlsnap.operators.links import StateId
from ttlsnap.operators.placement import find_partitions, is_placed_by_hash
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.stores.hdfs.key_index import KeyIndex
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import PartitionBuilder, Staging, StateStore
from ttlsnap.stores.scan import check_batch
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.history import History
from ttlsnap.written.keeping import KeptTimes, StorePart

Mode = Literal["insert", "merge", "replace"]
"""What happens to old entries: ``insert`` refuses those with a new key, ``merge`` replaces those, ``replace`` all."""


@dataclass(frozen=True)
class FileTask:
    """A file of a table, whose rows are sorted by the ``partitions`` of the operator.

    ``watermark_ms`` and ``batch_ms`` are the clocks of the last batch. The rows are added to ``rows``.
    """

    file: TableFile
    table: ImportTable
    partitions: int
    watermark_ms: int | None
    batch_ms: int
    rows: SortedRows

    def run(self, progress: Progress) -> FileResult:
        """Sort the rows. Raise UsageError for a table of another form."""
        result, state = FileResult(), self.table.identity
        with self.rows as sorted_rows:
            for batch in self.file.rows():
                conforming = Conforming(self.file.where)
                keys, values = self.table.rows(batch, conforming)
                result.misfits.include(conforming.misfits)
                untimely = find_untimely(self.table, keys, values, self.watermark_ms, self.batch_ms)
                result.misfits.include(untimely.misfits)
                result.warnings.update(untimely.warnings)
                if untimely.expired is not None:
                    result.expired += int(untimely.expired.sum())
                    keys, values = keys.take(~untimely.expired), values.take(~untimely.expired)
                places = np.zeros(len(keys), np.int64)
                if is_placed_by_hash(state):
                    places = find_partitions(state, keys, self.partitions)
                sorted_rows.add(keys, values, places)
                result.fingerprint = add(result.fingerprint, fingerprint(keys, values))
                result.rows += len(keys)
                progress(len(keys), 0)
        return result


@dataclass
class FileResult:
    """The rows of a file that become entries, those that have ``expired``, and those that do not fit."""

    rows: int = 0
    expired: int = 0
    fingerprint: int = 0
    misfits: Misfits = field(default_factory=Misfits)
    warnings: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class StoreFiles:
    """One store of a partition, its files, and the states whose ledgers the import must keep."""

    name: str
    lineage: Lineage
    kept: tuple[StateDescriptor, ...] = ()


@dataclass(frozen=True)
class BuildTask:
    """A partition of an operator, with the ``stores`` that have states of its ``tables`` or states derived from them.

    ``rows`` are those of the files of each table, in order. New files are staged below ``staged_below`` in
    ``staging_root``; None in a dry run. New ledgers have the times of the old entries in the ``history``, and
    ``written_ms`` for the new ones. They belong to ``run_id``.
    """

    root: str
    run_id: str
    history: History | None
    written_ms: int
    operator: int
    partition: int
    partitions: int
    stores: tuple[StoreFiles, ...]
    tables: tuple[ImportTable, ...]
    rows: tuple[tuple[SortedRows, ...], ...]
    mode: Mode
    state_store: StateStore
    staging_root: str
    staged_below: str | None
    scratch: str

    @property
    def size(self) -> int:
        """The size on disk in bytes."""
        return sum(store.lineage.size for store in self.stores)

    def run(self, progress: Progress) -> BuildResult:
        """Build the partition. Raise CorruptionError if it cannot be read, or not be read back as it was written."""
        result = BuildResult()
        imported = []
        for table, files in zip(self.tables, self.rows, strict=True):
            parts = []
            for keys, values in (part for rows in files for part in rows.read(self.partition)):
                result.rows[table.name] += len(keys)
                result.fingerprint = add(result.fingerprint, fingerprint(keys, values))
                parts.append((keys, values))
                # These rows were counted when they were read first. Here, a run can be stopped.
                progress(0, 0)
            imported.append(_Imported(table, parts, self.mode))
            result.misfits.include(imported[-1].duplicates())
        for store in self.stores:
            mine = [one for one in imported if any(name == store.name for name, _ in one.new.states)]
            if self.mode == "replace" or any(len(one.keys) for one in mine):
                result.stores.append(self._build(store, mine, result, progress))
        return result

    def _build(
        self, store: StoreFiles, imported: Sequence[_Imported], result: BuildResult, progress: Progress
    ) -> PartitionResult:
        files = for_reading(open_directory(self.root))
        staging = None
        if self.staged_below is not None:
            staging = Staging(open_directory(self.staging_root), self.staged_below)
        lineage, folder = store.lineage, f"{self.scratch}/{self.operator}-{store.name}-{self.partition}"
        described = {
            state.state: state for one in imported for state in one.new.states.values() if state.store == store.name
        }
        part = StorePart(store.name, lineage, (), store.kept)
        times = KeptTimes(files, self.state_store, self.history, [part], staging, self.run_id)
        others = {name: state for (_, name), state in times.others.items()}
        with (
            self.state_store.open(files, lineage, f"{folder}-old") as old,
            self.state_store.build(files, lineage, lineage.new_snapshot, staging, f"{folder}-new") as builder,
        ):
            families = {name: number for number, name in old.families.items()}
            for batch in old.batches(others | described):
                progress(0, 0)
                if not len(batch):
                    continue
                stored_keys, stored_values, rows = batch.stored
                place: StateId = (store.name, batch.state)
                if (state := described.get(batch.state)) is not None:
                    check_batch(state, batch.keys, batch.values)
                    for one in imported:
                        if place in one.new.states:
                            kept = one.kept(place, rows, result, len(batch))
                            stored_keys, stored_values = stored_keys.take(kept), stored_values.take(kept)
                            rows = rows.take(kept)
                times.keep(place, rows)
                builder.put(stored_keys, stored_values)
            for one in imported:
                self._put(store, one.new, families, builder)
                for added, keys, _, _ in one.new.parts:
                    if added.store == store.name:
                        times.add(added.place, keys, self.written_ms)
            written = builder.finish()
        return PartitionResult(
            self.operator,
            store.name,
            self.partition,
            bytes_before=lineage.size,
            bytes_after=written.size,
            staged=None if staging is None else written.files,
            rewrite=written.rewrite,
            reused=written.reused,
            superseded=written.superseded,
            ledgers=times.write_ledgers(store.name),
        )

    def _put(self, store: StoreFiles, new: NewEntries, families: Mapping[str, int], builder: PartitionBuilder) -> None:
        for state, keys, values, owner in new.parts:
            if state.store != store.name or not len(keys):
                continue
            if families and state.state not in families:
                directory = layout.store_directory(self.operator, self.partition, store.name)
                raise CorruptionError(f"{self.root}/{directory}: the column family {state.state} is missing")
            builder.put(*self.state_store.encode(state, keys, values, family=families.get(state.state), owner=owner))


class _Imported:
    """The new entries of one table in one partition."""

    def __init__(self, table: ImportTable, parts: Parts, mode: Mode) -> None:
        self._table, self._mode = table, mode
        self.keys = pa.concat_arrays([Rows.none().to_arrow(), *(keys.to_arrow() for keys, _ in parts)])
        self._index = KeyIndex(self.keys)
        self.new = new_entries(table, parts)

    def duplicates(self) -> Misfits:
        """Return the rows whose keys occur more than once, where that is impossible."""
        found = Misfits()
        if self._table.is_list or len(self._index) == len(self.keys):
            return found
        counts = pc.value_counts(self.keys)
        often = counts.filter(pc.greater(counts.field("counts"), 1))
        shown = Rows.from_arrow(often.field("values").slice(0, EXAMPLES))
        examples = self._show(shown, f"{self._table.name}: ")
        found.add(f"{self._table.name}: the key occurs more than once", len(self.keys) - len(counts), examples)
        return found

    def kept(self, place: StateId, rows: Rows, result: BuildResult, entries: int) -> np.ndarray:
        """Return which stored keys stay (bool[n]); count those that do not, or that exclude an insert."""
        primary = self._table.state.place == place
        if self._mode == "replace":
            if primary:
                result.replaced[self._table.name] += entries
            return np.zeros(len(rows), np.bool_)
        identity = identities(self._table, place, rows)
        same = self._index.has(identity)
        if primary and same.any():
            count, name = int(same.sum()), self._table.name
            if self._mode == "insert":
                examples = self._show(identity.take(np.flatnonzero(same)[:EXAMPLES]), f"{name}: ")
                result.misfits.add(f"{name}: {HAS_KEY}", count, examples)
            result.replaced[name] += count
        kept: np.ndarray = ~same
        return kept

    def _show(self, keys: Rows, head: str) -> list[str]:
        return [f"{head}{text}" for text in json_texts(decode(keys, self._table.identity.key_schema)).to_pylist()]


@dataclass
class BuildResult:
    """The result of a ``BuildTask``: of each store that is written, and the rows and replaced keys of each table."""

    stores: list[PartitionResult] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    replaced: Counter[str] = field(default_factory=Counter)
    misfits: Misfits = field(default_factory=Misfits)
    fingerprint: int = 0
