"""The runs that were made on a table, as its log has them, and undoing the last of them with Delta's ``RESTORE``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ttlsnap.clock import MICROS, iso
from ttlsnap.delta.log import commits, read_table
from ttlsnap.delta.run import METADATA, RESTORED, committing, metadata_of, sql_name
from ttlsnap.delta.session import delta_session
from ttlsnap.errors import RefusedError
from ttlsnap.filesystem import open_directory
from ttlsnap.plan import new_run_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TableRun:
    """One run on a table: the version that it made, and what it has left in that commit."""

    run: str
    kind: str
    version: int
    at: str | None
    dropped: int
    undoes: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "kind": self.kind,
            "status": "done",
            "version": self.version,
            "at": self.at,
            "dropped": self.dropped,
            "undoes": self.undoes,
        }


def table_history(target: str) -> list[TableRun]:
    """The runs that the log still has, oldest first."""
    files = open_directory(target)
    read_table(files)
    found = []
    for commit in commits(files):
        mine = metadata_of(commit)
        if mine is not None and mine.get("run"):
            undoes = mine.get(RESTORED)
            found.append(
                TableRun(
                    run=str(mine["run"]),
                    kind="rollback" if undoes else "compact",
                    version=commit.version,
                    at=None if commit.timestamp_ms is None else iso(commit.timestamp_ms * MICROS),
                    dropped=int(commit.metrics.get("numDeletedRows", "0")),
                    undoes=str(undoes) if undoes else None,
                )
            )
    return found[::-1]


def rollback_table(
    target: str, *, session: SparkSession | None = None, jars: str | None = None, master: str | None = None
) -> tuple[TableRun, int]:
    """Undo the last run: the table as it was before, as a new version, which is returned beside the run.

    Raises RefusedError where there is no run, or somebody has written since: that would be lost.
    """
    files = open_directory(target)
    table = read_table(files)
    runs = table_history(target)
    undone = {run.undoes for run in runs}
    last = next((run for run in reversed(runs) if run.kind == "compact" and run.run not in undone), None)
    if last is None:
        raise RefusedError(f"{files.root}: its log has no run of ttlsnap that could be undone")
    if table.version != last.version:
        raise RefusedError(
            f"{files.root}: run {last.run} made version {last.version}, and the table is at {table.version}: what was "
            f"written since would be lost. If that may be: RESTORE TABLE {sql_name(files)} TO VERSION AS OF "
            f"{last.version - 1}"
        )
    words = {METADATA: {"run": new_run_id(), RESTORED: last.run}}
    with delta_session(session, jars=jars, master=master) as spark, committing(spark, files, words):
        spark.sql(f"RESTORE TABLE {sql_name(files)} TO VERSION AS OF {last.version - 1}")
    return last, read_table(files).version
