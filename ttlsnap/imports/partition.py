"""The work of an import, as a move: files of the tables are its sources, and partitions of operators its targets.

Each partition is built from its old entries that stay, and from its new ones. Memory is bounded by the new entries of a
partition, and by the number of old rows that a join loses: a hash of each counts their keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.compaction.task import PartitionResult, Progress
from ttlsnap.engines.moving import Part
from ttlsnap.engines.proof import Fingerprint, Sent
from ttlsnap.engines.spill import Entries, Spills
from ttlsnap.entries.json_text import json_texts
from ttlsnap.errors import CorruptionError
from ttlsnap.imports.conforming import EXAMPLES, HAS_KEY, Conforming, Misfits
from ttlsnap.imports.derived import NewEntries, Parts, identities, new_entries
from ttlsnap.imports.sources import TableFile
from ttlsnap.imports.tables import ImportTable
from ttlsnap.imports.timely import find_untimely
from ttlsnap.operators.join import IndexedSide, TimedSide
from ttlsnap.operators.links import StateId
from ttlsnap.operators.placement import find_partitions, is_placed_by_hash
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.stores.hdfs.key_index import Hashes, KeyIndex, hash_rows
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import PartitionBuilder, Staging
from ttlsnap.stores.scan import check_batch
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.history import History
from ttlsnap.written.keeping import KeptTimes

_ROWS = "rows"

Mode = Literal["insert", "merge", "replace"]
"""What happens to old entries: ``insert`` refuses those with a new key, ``merge`` replaces those, ``replace`` all."""


@dataclass(frozen=True)
class TableSource:
    """Some files of a table, in order. Their rows go to the ``partitions`` of the operator, from target ``first`` on.

    ``watermark_ms`` and ``batch_ms`` are the clocks of the last batch. See ``ttlsnap.engines.moving.Source``.
    """

    files: tuple[TableFile, ...]
    table: ImportTable
    first: int
    partitions: int
    watermark_ms: int | None
    batch_ms: int

    @property
    def size(self) -> int:
        """See ``Source.size``."""
        return sum(file.size for file in self.files)

    @property
    def targets(self) -> Sequence[int]:
        """See ``Source.targets``."""
        return range(self.first, self.first + self.partitions)

    def split(self, spills: Spills, progress: Progress) -> ReadRows:
        """See ``Source.split``. Raise UsageError for a table of another form."""
        read_rows, state, fingerprint = ReadRows(), self.table.identity, Fingerprint()
        with spills.write(_ROWS, self.partitions) as spill:
            for file in self.files:
                for batch in file.rows():
                    keys, values = self._rows(file, batch, read_rows)
                    places = np.zeros(len(keys), np.int64)
                    if is_placed_by_hash(state):
                        places = find_partitions(state, keys, self.partitions)
                    spill.add(keys, values, places)
                    fingerprint.add(keys, values)
                    progress(len(keys), 0)
            spill.finish()
        read_rows.sent = Sent(tuple(spill.entries.tolist()), fingerprint)
        return read_rows

    def _rows(self, file: TableFile, batch: pa.RecordBatch, read_rows: ReadRows) -> tuple[Rows, Rows]:
        """Return the keys and values of the rows that become entries, and put the others into ``read_rows``."""
        conforming = Conforming(file.where)
        keys, values = self.table.rows(batch, conforming)
        read_rows.misfits.include(conforming.misfits)
        untimely = find_untimely(self.table, keys, values, self.watermark_ms, self.batch_ms)
        read_rows.misfits.include(untimely.misfits)
        read_rows.warnings.update(untimely.warnings)
        if untimely.expired is None:
            return keys, values
        read_rows.expired += int(untimely.expired.sum())
        return keys.take(~untimely.expired), values.take(~untimely.expired)

    def read(self, spills: Spills, target: int) -> Iterator[Entries]:
        """See ``Source.read``. The entries are rows: keys of ``ImportTable.identity``, and values."""
        if target in self.targets:
            yield from spills.read(_ROWS, target - self.first, self.partitions)


@dataclass
class ReadRows:
    """The rows of a source that were ``sent``, the number of those that have ``expired``, and those that do not fit."""

    sent: Sent = field(default_factory=lambda: Sent((), Fingerprint()))
    expired: int = 0
    misfits: Misfits = field(default_factory=Misfits)
    warnings: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        """The number of rows that become entries."""
        return self.sent.fingerprint.entries


@dataclass(frozen=True)
class FilledPartition:
    """A partition of an operator, with the ``stores`` that have states of its ``tables`` or states derived from them.

    ``sources`` are the numbers of the sources of each table. New files are staged below ``staged_below`` in
    ``staging_root``; None in a dry run. New ledgers have the times of the old entries in the ``history``, and
    ``written_ms`` for the new ones. They belong to ``run_id``. See ``ttlsnap.engines.moving.Target``.
    """

    run_id: str
    history: History | None
    written_ms: int
    stores: tuple[StorePartition, ...]
    tables: tuple[ImportTable, ...]
    sources: tuple[range, ...]
    mode: Mode
    staging_root: str
    staged_below: str | None

    @property
    def size(self) -> int:
        """See ``Target.size``."""
        return sum(store.size for store in self.stores)

    def build(self, parts: Iterable[Part], folder: Path, progress: Progress) -> FilledResult:
        """See ``Target.build``.

        Raise CorruptionError if the partition cannot be read, or not be read back as it was written.
        """
        result, received_parts = FilledResult(), list[Part]()
        for part in parts:
            result.received.add(part.keys, part.values)
            received_parts.append(part)
            # These rows were counted when they were read first. Here, a run can be stopped.
            progress(0, 0)
        received_parts.sort(key=lambda part: (part.source, part.number))
        imports = []
        for table, sources in zip(self.tables, self.sources, strict=True):
            rows = [(part.keys, part.values) for part in received_parts if part.source in sources]
            imports.append(_Imported(table, rows, self.mode))
            result.misfits.include(imports[-1].duplicates())
        for store in self.stores:
            imports_of_store = [
                imported for imported in imports if any(name == store.name for name, _ in imported.new.states)
            ]
            if self.mode == "replace" or any(len(imported.keys) for imported in imports_of_store):
                result.stores.append(self._build(store, imports_of_store, result, folder, progress))
        for table, imported in zip(self.tables, imports, strict=True):
            result.replaced[table.name] += imported.replaced
        return result

    def _build(
        self,
        store: StorePartition,
        imports: Sequence[_Imported],
        result: FilledResult,
        folder: Path,
        progress: Progress,
    ) -> PartitionResult:
        files = for_reading(open_directory(store.root))
        staging = None
        if self.staged_below is not None:
            staging = Staging(open_directory(self.staging_root), self.staged_below)
        lineage, scratch = store.lineage, f"{folder}/{store.operator}-{store.name}-{store.partition}"
        descriptors = {
            state.state: state
            for imported in imports
            for state in imported.new.states.values()
            if state.store == store.name
        }
        times = KeptTimes(files, self.history, [store], staging, self.run_id)
        kept_descriptors = {name: state for (_, name), state in times.others.items()}
        with (
            store.open(files, f"{scratch}-old") as old_partition,
            store.state_store.build(files, lineage, lineage.new_snapshot, staging, f"{scratch}-new") as builder,
        ):
            families = {name: number for number, name in old_partition.families.items()}
            for batch in old_partition.batches(kept_descriptors | descriptors):
                progress(0, 0)
                if not len(batch):
                    continue
                stored_keys, stored_values, rows = batch.stored
                place: StateId = (store.name, batch.state)
                if (state := descriptors.get(batch.state)) is not None:
                    check_batch(state, batch.keys, batch.values)
                    for imported in imports:
                        if place in imported.new.states:
                            is_kept = imported.kept(place, rows, result)
                            stored_keys, stored_values = stored_keys.take(is_kept), stored_values.take(is_kept)
                            rows = rows.take(is_kept)
                times.keep(place, rows)
                builder.put(stored_keys, stored_values)
            for imported in imports:
                self._put(store, imported.new, families, builder)
                for new_state, keys, _, _ in imported.new.parts:
                    if new_state.store == store.name:
                        times.add(new_state.place, keys, self.written_ms)
            built_partition = builder.finish()
        return PartitionResult(
            store.operator,
            store.name,
            store.partition,
            bytes_before=lineage.size,
            bytes_after=built_partition.size,
            staged=None if staging is None else built_partition.files,
            rewrite=built_partition.rewrite,
            reused=built_partition.reused,
            superseded=built_partition.superseded,
            ledgers=times.write_ledgers(store.name),
        )

    @staticmethod
    def _put(
        store: StorePartition, entries: NewEntries, families: Mapping[str, int], builder: PartitionBuilder
    ) -> None:
        for state, keys, values, owner in entries.parts:
            if state.store != store.name or not len(keys):
                continue
            if families and state.state not in families:
                raise CorruptionError(f"{store.directory}: the column family {state.state} is missing")
            builder.put(*store.state_store.encode(state, keys, values, family=families.get(state.state), owner=owner))


class _Imported:
    """The new entries of one table in one partition."""

    def __init__(self, table: ImportTable, parts: Parts, mode: Mode) -> None:
        self._table, self._mode = table, mode
        self.keys = pa.concat_arrays([Rows.none().to_arrow(), *(keys.to_arrow() for keys, _ in parts)])
        self._index = KeyIndex(self.keys)
        self.new = new_entries(table, parts)
        self._stored_keys = 0
        self._hashes: list[Hashes] = []

    @property
    def replaced(self) -> int:
        """The number of keys of the table whose old entries do not stay."""
        return self._stored_keys + (len(np.unique(np.concatenate(self._hashes))) if self._hashes else 0)

    def duplicates(self) -> Misfits:
        """Return the rows whose keys occur more than once, where that is impossible."""
        misfits = Misfits()
        if self._table.is_list or len(self._index) == len(self.keys):
            return misfits
        counts = pc.value_counts(self.keys)
        repeated = counts.filter(pc.greater(counts.field("counts"), 1))
        repeated_keys = Rows.from_arrow(repeated.field("values").slice(0, EXAMPLES))
        examples = self._show(repeated_keys, f"{self._table.name}: ")
        misfits.add(f"{self._table.name}: the key occurs more than once", len(self.keys) - len(counts), examples)
        return misfits

    def kept(self, place: StateId, rows: Rows, result: FilledResult) -> np.ndarray:
        """Return which stored keys stay (bool[n]); count those that do not, or that exclude an insert."""
        is_primary = self._table.state.place == place
        if self._mode == "replace":
            if is_primary:
                self._count_replaced(identities(self._table, place, rows))
            return np.zeros(len(rows), np.bool_)
        identity = identities(self._table, place, rows)
        is_imported = self._index.has(identity)
        if is_primary and is_imported.any():
            count, name = int(is_imported.sum()), self._table.name
            if self._mode == "insert":
                examples = self._show(identity.take(np.flatnonzero(is_imported)[:EXAMPLES]), f"{name}: ")
                result.misfits.add(f"{name}: {HAS_KEY}", count, examples)
            self._count_replaced(identity.take(is_imported))
        is_kept: np.ndarray = ~is_imported
        return is_kept

    def _count_replaced(self, keys: Rows) -> None:
        """Count the keys of stored keys. A side of a join has several stored keys for a key, in any order."""
        if isinstance(self._table.link, (IndexedSide, TimedSide)):
            self._hashes.append(np.unique(hash_rows(keys)))
        else:
            self._stored_keys += len(keys)

    def _show(self, keys: Rows, prefix: str) -> list[str]:
        return [f"{prefix}{text}" for text in json_texts(decode(keys, self._table.identity.key_schema)).to_pylist()]


@dataclass
class FilledResult:
    """The result of a ``FilledPartition``: the rows that it ``received``, and the results of stores that are written.

    ``replaced`` are the numbers of replaced keys, by table.
    """

    received: Fingerprint = field(default_factory=Fingerprint)
    stores: list[PartitionResult] = field(default_factory=list)
    replaced: Counter[str] = field(default_factory=Counter)
    misfits: Misfits = field(default_factory=Misfits)
