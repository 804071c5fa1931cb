"""The runs on a table, from its log, and the undo of the last one with Delta's ``RESTORE``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ttlsnap.archives.delivery import describe_left_behind, explain_failed_take_back, require_receiver
from ttlsnap.archives.places import AllowedPlaces, Confirm, PlaceNotNamedError
from ttlsnap.archives.receivers import ExpiredCallback, refuse_within
from ttlsnap.checkpoint import layout
from ttlsnap.clock import MICROS, iso
from ttlsnap.delta.altering import MIGRATE
from ttlsnap.delta.archiving import record_take_back, take_back
from ttlsnap.delta.committing import (
    ConflictError,
    changes_rows,
    count_changed_rows,
    read_run_metadata,
    set_run_metadata,
    sql_name,
    translate_errors,
)
from ttlsnap.delta.log import (
    Commit,
    DataFile,
    commits,
    find_gap,
    live_files,
    newest_version,
    open_table,
    read_table,
)
from ttlsnap.delta.reading import place_of
from ttlsnap.delta.session import delta_session, require_delta
from ttlsnap.delta.vectors import vector_path
from ttlsnap.documents import Result, in_json, json_property
from ttlsnap.errors import RefusedError
from ttlsnap.keywords import public
from ttlsnap.publishing.runs import new_run_id
from ttlsnap.storage.local import LocalDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNDOES = "undoes"
_VACUUM = ("VACUUM START", "VACUUM END")  # they change no row


@dataclass(frozen=True)
class TableRun(Result):
    """One run on a table: the versions that it made, and the facts in these commits.

    ``kind`` is ``compact``, ``migrate``, ``rollback``, or ``erase`` if it changed nothing else. ``expired_to`` received
    the rows that it dropped from the table at ``made_at``; this table can be a copy of that one.
    """

    JSON_ORDER = "run kind status version"

    run: str
    kind: str
    status: str = field(default="done", init=False)
    versions: tuple[int, ...]
    at: str | None
    dropped: int
    rewritten: int
    undoes: str | None
    expired_to: str | None = None
    made_at: str | None = field(default=None, metadata=in_json(hidden=True))
    rules: tuple[str, ...] = ()

    def was_made_at(self, root: str) -> bool:
        """Return whether it was a run on the table at ``root``."""
        return self.made_at in (None, root)

    @property
    @json_property()
    def version(self) -> int:
        """The last version of the run."""
        return self.versions[-1]


@public
def table_history(target: str) -> list[TableRun]:
    """Return the runs that the log still has, oldest first."""
    files = open_table(target)
    read_table(files)
    commits_of_run: dict[str, list[Commit]] = {}
    undone_runs: dict[str, str] = {}
    for table_commit in commits(files):
        run_metadata = read_run_metadata(table_commit)
        if run_metadata is not None and layout.is_run(str(run_metadata.get("run"))):
            run = str(run_metadata["run"])
            commits_of_run.setdefault(run, []).insert(0, table_commit)
            if run_metadata.get(_UNDOES):
                undone_runs[run] = str(run_metadata[_UNDOES])
    runs = []
    for run, run_commits in commits_of_run.items():
        last_ms = run_commits[-1].timestamp_ms
        dropped, rewritten = count_changed_rows(run_commits)
        kind = "compact" if any(changes_rows(run_commit) for run_commit in run_commits) else "erase"
        if any((read_run_metadata(run_commit) or {}).get("kind") == MIGRATE for run_commit in run_commits):
            kind = MIGRATE
        runs.append(
            TableRun(
                run=run,
                kind="rollback" if run in undone_runs else kind,
                versions=tuple(run_commit.version for run_commit in run_commits),
                at=None if last_ms is None else iso(last_ms * MICROS),
                dropped=dropped,
                rewritten=rewritten,
                undoes=undone_runs.get(run),
                expired_to=_text((read_run_metadata(run_commits[0]) or {}).get("expired_to")),
                made_at=_text((read_run_metadata(run_commits[0]) or {}).get("target")),
                rules=_texts((read_run_metadata(run_commits[0]) or {}).get("rules")),
            )
        )
    return runs[::-1]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


@public
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
    """Undo the last run: restore the table before it as a new version. Return the run and that version.

    The rows that the run has delivered are removed from ``expired_to`` if they are there, and from another place that
    the table names if ``confirm`` agrees. Otherwise they stay, and ``warnings`` gets a text that says so.

    Raise RefusedError if there is no run, or if somebody has written since: those rows would be lost.
    """
    files = open_table(target)
    require_delta(session, jars)
    table = read_table(files)
    if expired_to is not None:
        refuse_within(expired_to, target)
    places = AllowedPlaces.of(expired_to, confirm)
    runs = table_history(target)
    undoings = {run.undoes for run in runs}
    undone_runs = {run.undoes for run in runs if run.run not in undoings}
    last_run = next(
        (run for run in reversed(runs) if run.kind in ("compact", MIGRATE) and run.run not in undone_runs), None
    )
    if last_run is None:
        raise RefusedError(f"{files.root}: its log has no run of ttlsnap to roll back")
    first_version = last_run.versions[0]
    later_commits = [table_commit for table_commit in commits(files) if table_commit.version >= first_version]
    missing_files = _removed_files(files, first_version - 1, table.version)
    if missing_files:
        more_text = f" and {len(missing_files) - 1:,} more" if missing_files[1:] else ""
        raise RefusedError(
            f"{files.root}: run {last_run.run} made version {first_version}, and can no longer be rolled back: version "
            f"{first_version - 1} needs files that do not exist: {missing_files[0]}{more_text}. VACUUM removes such "
            "files after the table's retention, and so does --erase. RESTORE cannot bring them back either. "
            f"{_describe_archive(last_run)}"
        )
    foreign_commits = [
        table_commit
        for table_commit in later_commits
        if read_run_metadata(table_commit) is None and table_commit.operation not in _VACUUM
    ]
    if foreign_commits or len(later_commits) != table.version - first_version + 1:
        raise RefusedError(
            f"{files.root}: run {last_run.run} made version {first_version}, and others have written to the table "
            f"since (it is at {table.version}). A rollback would lose their changes. To accept that: RESTORE TABLE "
            f"{sql_name(files)} TO VERSION AS OF {first_version - 1}"
        )
    run_metadata = {"run": new_run_id(), _UNDOES: last_run.run}
    with files.lock(), delta_session(session, jars=jars, master=master) as spark:
        all_warnings = warnings if warnings is not None else []
        archive = last_run.expired_to if last_run.was_made_at(files.root) else None
        if last_run.expired_to is not None and archive is None:
            all_warnings.append(describe_left_behind(last_run.expired_to))
        if archive is not None:
            if last_run.dropped:
                require_receiver(archive, last_run.run, places)
            record_take_back(files, last_run.run, table.version, archive)
        _restore(spark, files, first_version - 1, run_metadata, table.version)
        if archive is not None:
            try:
                with explain_failed_take_back(last_run.run):
                    take_back(files, last_run.run, archive, places)
            except PlaceNotNamedError as error:
                all_warnings.append(error.text)
    return last_run, read_table(files).version


def _removed_files(files: LocalDirectory, version: int, last_version: int) -> list[str]:
    """Return the files that a version needs and that do not exist; also one of the log."""
    log = find_gap(files, version)
    if log is not None:
        return [log]
    paths = {path for file in live_files(files, version) for path in _paths_of(file)}
    kept_paths = {path for file in live_files(files, last_version) for path in _paths_of(file)}
    return sorted(path for path in paths - kept_paths if files.stat(path) is None)


def _paths_of(file: DataFile) -> list[str]:
    """Return the paths of a data file and of its deletion vector that are within the table's folder."""
    paths = (place_of(file), None if file.vector is None else vector_path(file.vector))
    return [path for path in paths if path is not None]


def _describe_archive(run: TableRun) -> str:
    if run.expired_to is None:
        return "Restore the table from a copy if you need the dropped rows"
    return f"The dropped rows are in {run.expired_to}"


def _restore(
    spark: SparkSession, files: LocalDirectory, version: int, run_metadata: Mapping[str, Any], checked: int
) -> None:
    """Restore once: a second attempt would lose rows written in between. Raise RefusedError if there are such rows."""
    busy_text = f"{files.root}: another writer is active; stop the stream first. Nothing was undone"
    if newest_version(files) != checked:
        raise RefusedError(busy_text)
    try:
        with set_run_metadata(spark, run_metadata), translate_errors(files):
            spark.sql(f"RESTORE TABLE {sql_name(files)} TO VERSION AS OF {version}")
    except ConflictError as error:
        raise RefusedError(f"{busy_text}.\n" + error.text) from error
    restored_version = next(
        table_commit.version for table_commit in commits(files) if read_run_metadata(table_commit) == run_metadata
    )
    if restored_version != checked + 1:
        # Somebody came in between, and was undone: to what was there just before.
        with set_run_metadata(spark, {"run": new_run_id(), _UNDOES: run_metadata["run"]}), translate_errors(files):
            spark.sql(f"RESTORE TABLE {sql_name(files)} TO VERSION AS OF {restored_version - 1}")
        raise RefusedError(busy_text)
