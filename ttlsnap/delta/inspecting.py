"""``inspect`` of a Delta table without a JVM: its facts, the number and ages of its rows, and a few rows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ttlsnap.clock import MICROS, Clock, Moment, TimeCharacteristic, iso
from ttlsnap.delta.committing import read_run_metadata
from ttlsnap.delta.entries import TableEntries
from ttlsnap.delta.erasing import read_retention
from ttlsnap.delta.features import check_features
from ttlsnap.delta.log import Commit, DataFile, TableState, commits, live_files, open_table, read_table
from ttlsnap.delta.planning import clock_of, describe, find_last_write, in_columns
from ttlsnap.delta.reading import read_rows
from ttlsnap.delta.report import sum_known
from ttlsnap.documents import Result
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.entries.timestamps import timestamp_field
from ttlsnap.errors import RefusedError, UsageError
from ttlsnap.extras import require_package
from ttlsnap.keywords import public
from ttlsnap.reading.ages import AgeField, Ages
from ttlsnap.reading.inspected import StateInspection
from ttlsnap.storage.local import LocalDirectory


@dataclass
class TableInspection(Result):
    """The result of ``inspect``. ``last`` is the newest commit of rows that no run made, ``runs`` counts the runs."""

    target: str
    table: TableState
    rows: StateInspection
    live: list[DataFile]
    last: Commit | None
    runs: int
    samples: list[dict[str, Any]] | None = None

    @property
    def marked(self) -> int:
        """The number of rows that are marked as deleted and still in the files."""
        return sum(file.deleted for file in self.live)

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``inspect --format json``, in which a table has one operator, as a checkpoint has."""
        metadata, protocol = self.table.metadata, self.table.protocol
        retention = read_retention(metadata)
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


@public
def inspect_table(
    target: str, *, entries: int = 0, age: bool = False, timestamp: str | None = None, now: Moment = "checkpoint"
) -> TableInspection:
    """Describe the newest version of the table ``target``.

    ``entries`` is the number of rows to show. ``age`` counts all rows by their age according to ``timestamp``. Raise a
    ``TtlsnapError``.
    """
    if age != (timestamp is not None):
        raise UsageError("--age of a Delta table needs --timestamp, the column with the time of a row")
    files = open_table(target)
    if age or entries:
        require_package("pyroaring")
    table = read_table(files)
    key: tuple[str, ...] = ()
    with contextlib.suppress(RefusedError):  # may rows go? No matter here
        check_features(files, table)
    with contextlib.suppress(UsageError):  # a column of the key may have another name by now
        key = table.metadata.key_of((), files.root)
    state = describe(table.metadata.schema, key)
    live = live_files(files, table.version)
    rows = StateInspection(
        state, state.state, sum_known(file.size for file in live), sum_known(file.rows for file in live)
    )
    table_commits = list(commits(files))
    inspection = TableInspection(
        target=files.root,
        table=table,
        rows=rows,
        live=live,
        last=find_last_write(files),
        runs=len(
            {
                run_metadata["run"]
                for commit in table_commits
                if (run_metadata := read_run_metadata(commit)) and run_metadata.get("run")
            }
        ),
    )
    if age and timestamp is not None:
        rows.age = _ages(inspection, files, state, timestamp, clock_of(files, now))
    if entries:
        inspection.samples = _samples(inspection, files, state, entries)
    return inspection


def describe_last_write(inspection: TableInspection) -> str:
    """Return when rows were last written by anything but a run."""
    moment = inspection.last.timestamp_ms if inspection.last else None
    return "unknown" if moment is None else str(iso(moment * MICROS))


def _ages(
    inspection: TableInspection, files: LocalDirectory, state: StateDescriptor, timestamp: str, clock: Clock
) -> dict[str, Any]:
    field = timestamp_field(state, in_columns(timestamp, state))
    side = state.key_schema if field.field.side == "key" else state.value_schema
    column = side.fields[field.field.path[0]]
    ages = Ages(AgeField(field, clock.now(TimeCharacteristic.PROCESSING)))
    count = 0
    for file in inspection.live:
        for batch in read_rows(files, file, [column], by_id=inspection.table.metadata.by_id):
            ages.add(TableEntries.of_batch(state, batch))
            count += batch.num_rows
    inspection.rows.entries = count
    return ages.to_json()


def _samples(
    inspection: TableInspection, files: LocalDirectory, state: StateDescriptor, limit: int
) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    place = {"operator": 0, "store": state.store, "state": state.state, "partition": None}
    metadata = inspection.table.metadata
    for file in inspection.live:
        for batch in read_rows(files, file, list(metadata.schema), by_id=metadata.by_id):
            entries = TableEntries.of_batch(state, batch.slice(0, limit - len(samples)))
            pairs = zip(to_json_values(entries.key_structs), to_json_values(entries.value_structs), strict=True)
            samples += [{**place, "key": key, "value": value} for key, value in pairs]
            if len(samples) >= limit:
                return samples
    return samples
