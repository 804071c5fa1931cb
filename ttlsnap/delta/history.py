"""The runs that were made on a table, as its log has them, and undoing the last of them with Delta's ``RESTORE``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ttlsnap.checkpoint import layout
from ttlsnap.clock import MICROS, iso
from ttlsnap.delta.archiving import begin_to_take_back, take_back
from ttlsnap.delta.committing import ConflictError, changes_rows, named, rows_changed, sql_name, told, words_of
from ttlsnap.delta.log import Commit, commits, newest_version, open_table, read_table
from ttlsnap.delta.session import delta_session
from ttlsnap.errors import RefusedError
from ttlsnap.expired.delivery import left_in, require_receiver, rolled_back
from ttlsnap.expired.places import Confirm, PlaceNotNamedError, Places
from ttlsnap.expired.receivers import ExpiredCallback, refuse_within
from ttlsnap.filesystem import LocalDirectory
from ttlsnap.plan import new_run_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNDOES = "undoes"


@dataclass(frozen=True)
class TableRun:
    """One run on a table: the versions that it made, and what it has left in these commits.

    ``kind`` is ``compact``, ``erase`` where no row was touched, or ``rollback``. ``expired_to`` got what it dropped
    from the table at ``made_at``, of which this may be a copy.
    """

    run: str
    kind: str
    versions: tuple[int, ...]
    at: str | None
    dropped: int
    rewritten: int
    undoes: str | None
    expired_to: str | None = None
    made_at: str | None = None

    def was_made_at(self, root: str) -> bool:
        """Whether it was a run on the table that is at ``root``."""
        return self.made_at in (None, root)

    @property
    def version(self) -> int:
        """The last of them."""
        return self.versions[-1]

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "kind": self.kind,
            "status": "done",
            "version": self.version,
            "versions": list(self.versions),
            "at": self.at,
            "dropped": self.dropped,
            "rewritten": self.rewritten,
            "undoes": self.undoes,
            "expired_to": self.expired_to,
        }


def table_history(target: str) -> list[TableRun]:
    """The runs that the log still has, oldest first."""
    files = open_table(target)
    read_table(files)
    found: dict[str, list[Commit]] = {}
    undone: dict[str, str] = {}
    for made in commits(files):
        mine = words_of(made)
        if mine is not None and layout.is_run(str(mine.get("run"))):
            run = str(mine["run"])
            found.setdefault(run, []).insert(0, made)
            if mine.get(_UNDOES):
                undone[run] = str(mine[_UNDOES])
    runs = []
    for run, parts in found.items():
        last = parts[-1].timestamp_ms
        dropped, rewritten = rows_changed(parts)
        kind = "compact" if any(changes_rows(part) for part in parts) else "erase"
        runs.append(
            TableRun(
                run=run,
                kind="rollback" if run in undone else kind,
                versions=tuple(part.version for part in parts),
                at=None if last is None else iso(last * MICROS),
                dropped=dropped,
                rewritten=rewritten,
                undoes=undone.get(run),
                expired_to=_text((words_of(parts[0]) or {}).get("expired_to")),
                made_at=_text((words_of(parts[0]) or {}).get("target")),
            )
        )
    return runs[::-1]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def rollback_table(
    target: str,
    *,
    session: SparkSession | None = None,
    jars: str | None = None,
    master: str | None = None,
    expired_to: str | ExpiredCallback | None = None,
    confirm: Confirm | None = None,
    warnings: list[str] | None = None,
) -> tuple[TableRun, int]:
    """Undo the last run: the table as it was before, as a new version, which is returned beside the run.

    What the run has delivered is taken back from ``expired_to`` if it is there, and from another place that the table
    names if ``confirm`` agrees. It stays there otherwise; ``warnings`` gets a text that says so.

    Raises RefusedError where there is no run, or somebody has written since: that would be lost.
    """
    files = open_table(target)
    table = read_table(files)
    if expired_to is not None:
        refuse_within(expired_to, target)
    places = Places.of(expired_to, confirm)
    runs = table_history(target)
    undoings = {run.undoes for run in runs}
    undone = {run.undoes for run in runs if run.run not in undoings}
    last = next((run for run in reversed(runs) if run.kind == "compact" and run.run not in undone), None)
    if last is None:
        raise RefusedError(f"{files.root}: its log has no run of ttlsnap that could be undone")
    first = last.versions[0]
    since = [made for made in commits(files) if made.version >= first]
    if any(words_of(made) is None for made in since) or len(since) != table.version - first + 1:
        raise RefusedError(
            f"{files.root}: run {last.run} made version {first}, the table is at {table.version}, and not all between "
            "is of ttlsnap: what others have written would be lost. If that may be: "
            f"RESTORE TABLE {sql_name(files)} TO VERSION AS OF {first - 1}"
        )
    words = {"run": new_run_id(), _UNDOES: last.run}
    with files.lock(), delta_session(session, jars=jars, master=master) as spark:
        told = warnings if warnings is not None else []
        archive = last.expired_to if last.was_made_at(files.root) else None
        if last.expired_to is not None and archive is None:
            told.append(left_in(last.expired_to))
        if archive is not None:
            if last.dropped:
                require_receiver(archive, last.run, places)
            begin_to_take_back(files, last.run, table.version, archive)
        _restore(spark, files, first - 1, words, table.version)
        if archive is not None:
            try:
                with rolled_back(last.run):
                    take_back(files, last.run, archive, places)
            except PlaceNotNamedError as error:
                told.append(str(error))
    return last, read_table(files).version


def _restore(spark: SparkSession, files: LocalDirectory, version: int, words: Mapping[str, Any], checked: int) -> None:
    """Never tried again: what was written in between would be lost. Raises RefusedError where something was."""
    busy = f"{files.root}: somebody writes to the table; stop the stream first. Nothing was undone"
    if newest_version(files) != checked:
        raise RefusedError(busy)
    try:
        with named(spark, words), told(files):
            spark.sql(f"RESTORE TABLE {sql_name(files)} TO VERSION AS OF {version}")
    except ConflictError as error:
        raise RefusedError(f"{busy}.\n{error}") from error
    mine = next(made.version for made in commits(files) if words_of(made) == words)
    if mine != checked + 1:
        # Somebody came in between, and was undone: to what was there just before.
        with named(spark, {"run": new_run_id(), _UNDOES: words["run"]}), told(files):
            spark.sql(f"RESTORE TABLE {sql_name(files)} TO VERSION AS OF {mine - 1}")
        raise RefusedError(busy)
