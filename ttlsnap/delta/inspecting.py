"""``inspect`` of a Delta table, without a JVM: what it is, how many rows it has, how old they are, a few of them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ttlsnap.clock import MICROS, Clock, TimeCharacteristic, iso
from ttlsnap.delta.committing import words_of
from ttlsnap.delta.entries import TableEntries
from ttlsnap.delta.erasing import retention_of
from ttlsnap.delta.features import check_features
from ttlsnap.delta.log import Commit, DataFile, TableState, commits, live_files, open_table, read_table
from ttlsnap.delta.planning import clock_of, describe, in_columns, last_written
from ttlsnap.delta.reading import read_rows
from ttlsnap.delta.report import summed
from ttlsnap.errors import RefusedError, UsageError
from ttlsnap.filesystem import LocalDirectory
from ttlsnap.inspection import StateInspection
from ttlsnap.rendering import to_json_values
from ttlsnap.scanning import Histogram
from ttlsnap.state import StateDescriptor
from ttlsnap.timestamps import timestamp_field


@dataclass
class TableInspection:
    """What ``inspect`` found. ``last`` is the newest commit of rows that is no run's, ``runs`` how many there were."""

    target: str
    table: TableState
    rows: StateInspection
    live: list[DataFile]
    last: Commit | None
    runs: int
    samples: list[dict[str, Any]] | None = None

    @property
    def marked(self) -> int:
        """Rows that are marked as deleted, and still in the files."""
        return sum(file.deleted for file in self.live)

    def to_json(self) -> dict[str, Any]:
        """The document of ``inspect --format json``."""
        metadata, protocol = self.table.metadata, self.table.protocol
        retention = retention_of(metadata)
        document: dict[str, Any] = {
            "target": self.target,
            "kind": "table",
            "query_id": None,
            "spark_version": None,
            "batch": None,
            "watermark_ms": None,
            "batch_timestamp_ms": self.last.timestamp_ms if self.last else None,
            "fence": None,
            "version": self.table.version,
            "key": list(metadata.key),
            "partition_columns": list(metadata.partition_columns),
            "protocol": {
                "reader": protocol.reader,
                "writer": protocol.writer,
                "features": sorted({*protocol.reader_features, *protocol.writer_features}),
            },
            "files": len(self.live),
            "deleted_rows_in_files": self.marked,
            "retention_ms": None if retention is None else retention // timedelta(milliseconds=1),
            "runs": self.runs,
            "operators": [
                {
                    "id": 0,
                    "name": "table",
                    "provider": "delta",
                    "partitions": len(self.live),
                    "stores": [{"name": "table", "states": [self.rows.to_json()]}],
                }
            ],
        }
        if self.samples is not None:
            document["entries"] = self.samples
        return document


def inspect_table(
    target: str, *, entries: int = 0, age: bool = False, timestamp: str | None = None, now: str = "checkpoint"
) -> TableInspection:
    """Describe the newest version of the table ``target``.

    ``entries`` is how many rows to show; ``age`` sorts all of them by how old ``timestamp`` says they are. Raises a
    ``TtlsnapError``.
    """
    if age != (timestamp is not None):
        raise UsageError("--age of a Delta table goes with --timestamp, the column that holds a row's time")
    files = open_table(target)
    table = read_table(files)
    key: tuple[str, ...] = ()
    with contextlib.suppress(RefusedError):  # may rows go? No matter here
        check_features(files, table)
    with contextlib.suppress(UsageError):  # a column of the key may have another name by now
        key = table.metadata.key_of((), files.root)
    state = describe(table.metadata.schema, key)
    live = live_files(files, table.version)
    rows = StateInspection(state, state.state, summed(file.size for file in live), summed(file.rows for file in live))
    made = list(commits(files))
    found = TableInspection(
        target=files.root,
        table=table,
        rows=rows,
        live=live,
        last=last_written(files),
        runs=len({words["run"] for commit in made if (words := words_of(commit)) and words.get("run")}),
    )
    if age and timestamp is not None:
        rows.age = _ages(found, files, state, timestamp, clock_of(files, now))
    if entries:
        found.samples = _samples(found, files, state, entries)
    return found


def written_at(found: TableInspection) -> str:
    """When rows were last written, other than by a run."""
    moment = found.last.timestamp_ms if found.last else None
    return "unknown" if moment is None else str(iso(moment * MICROS))


def _ages(
    found: TableInspection, files: LocalDirectory, state: StateDescriptor, timestamp: str, clock: Clock
) -> dict[str, Any]:
    field = timestamp_field(state, in_columns(timestamp, state))
    side = state.key_schema if field.field.side == "key" else state.value_schema
    column = side.fields[field.field.path[0]]
    histogram = Histogram(field, clock.now(TimeCharacteristic.PROCESSING))
    count = 0
    for file in found.live:
        for batch in read_rows(files, file, [column]):
            histogram.add(TableEntries.of_batch(state, batch))
            count += batch.num_rows
    found.rows.entries = count
    return histogram.to_json()


def _samples(
    found: TableInspection, files: LocalDirectory, state: StateDescriptor, wanted: int
) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    place = {"operator": 0, "store": state.store, "state": state.state, "partition": None}
    for file in found.live:
        for batch in read_rows(files, file, list(found.table.metadata.schema)):
            few = TableEntries.of_batch(state, batch.slice(0, wanted - len(samples)))
            pairs = zip(to_json_values(few.key_structs), to_json_values(few.value_structs), strict=True)
            samples += [{**place, "key": key, "value": value} for key, value in pairs]
            if len(samples) >= wanted:
                return samples
    return samples
