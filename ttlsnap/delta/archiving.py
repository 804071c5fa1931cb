"""The archive of the rows that a run drops from a table: staged before the commit, delivered after it.

    _ttlsnap/runs/<run>/archive.json   the version that the run has read, and the receiver of the dropped rows
    _ttlsnap/runs/<run>/staged/...     rows that the run is about to drop
    _ttlsnap/runs/<run>/again/...      the same rows, while they are computed again
    _ttlsnap/runs/<run>/expired/...    dropped rows, until they are delivered
    _ttlsnap/runs/<run>/rollback.json  the run is about to be rolled back

Delta's ``VACUUM`` ignores a folder with such a name. The folder exists only while rows have to be delivered.

Others may write between the scan and the commit. If they did, or if the commit reports another number of rows, the
dropped rows are computed again, with the columns that the table has at the commit: the rows of the version before the
commit that the commit's version lacks. A row that the commit rewrote is not one of them: it has a new row with its key.
The staged rows stay until that has succeeded.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ttlsnap.amounts import quantity
from ttlsnap.archives.delivery import deliver
from ttlsnap.archives.places import AllowedPlaces, PlaceNotNamedError
from ttlsnap.archives.receivers import Receiver, find_receiver
from ttlsnap.archives.writing import SUFFIX, ExpiredWriter, folder_of, rows_in
from ttlsnap.checkpoint import layout
from ttlsnap.clock import Clock
from ttlsnap.delta.committing import changes_rows, count_changed_rows, read_run_metadata, table_path, translate_errors
from ttlsnap.delta.cutoff import quote_identifier
from ttlsnap.delta.entries import TableEntries
from ttlsnap.delta.log import LOG, Commit, commits
from ttlsnap.delta.planning import TablePlan, describe
from ttlsnap.delta.rewriting import comparable
from ttlsnap.documents import to_json
from ttlsnap.engines.workers import on_workers
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, RefusedError, TtlsnapError
from ttlsnap.printable import shell_word
from ttlsnap.schema.json import parse_struct
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.schema.types import StructType
from ttlsnap.storage.directory import OWN, scratch_name
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.new_access import access_of_new
from ttlsnap.transform.chain import StateTransformers
from ttlsnap.transform.protocols import TransformerFactory

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    Sparks = Callable[[], SparkSession]

_MAX_NOTE = 1 << 16
_NEVER = Clock(0, 0, "given")


@dataclass(frozen=True)
class _Note:
    """The facts of a run: the version that it has read, and the name of the receiver of its dropped rows."""

    version: int
    expired_to: str


@dataclass(frozen=True)
class _Rows:
    """The form of the rows: the table's columns in their order, and the fields that decided about a row."""

    names: Sequence[str]
    state: StateDescriptor
    factories: Sequence[TransformerFactory] = ()
    clock: Clock = _NEVER

    @classmethod
    def of(cls, plan: TablePlan) -> _Rows:
        return cls(plan.table.metadata.schema.names, plan.state, plan.factories, plan.clock)


class TableArchive:
    """The archive of the rows that one run drops."""

    def __init__(self, plan: TablePlan, run: str, receiver: Receiver) -> None:
        self._plan, self._run, self._receiver = plan, run, receiver
        self._note = _Note(plan.table.version, receiver.name)

    def begin(self) -> None:
        """Record what the run is about to do."""
        files = self._plan.files
        files.mkdirs(_staged_folder(self._run))
        _write_note(files, _note_of(self._run), self._note)

    def stage(self, part: int, frame: DataFrame) -> None:
        """Stage the rows that the ``part``-th commit will drop. Columns have names by position: ``c0`` and so on."""
        _write(frame, self._plan.files, self._run, part, _Rows.of(self._plan), _staged_folder(self._run))
        self._plan.files.sync(_staged_folder(self._run))

    def deliver(self, spark: SparkSession) -> None:
        """Deliver the dropped rows after the commit."""
        files = self._plan.files
        if _settle(lambda: spark, files, self._run, self._note, _Rows.of(self._plan)):
            _deliver(files, self._run, self._receiver)

    def discard(self) -> None:
        """Remove the staged rows, because nothing was committed."""
        self._plan.files.remove_tree(layout.run_directory(self._run))
        _tidy(self._plan.files)


def has_waiting(files: LocalDirectory) -> bool:
    """Return whether a run has left rows to deliver, or to remove from an archive."""
    return files.stat(layout.RUNS) is not None


def deliver_waiting(files: LocalDirectory, places: AllowedPlaces, spark: Sparks) -> list[str]:
    """Deliver the rows that interrupted runs have left, and remove those of rolled back runs. Return the failures.

    Rows for a receiver that ``places`` do not allow stay in their folder. ``spark`` returns a session if one is needed.
    The table is locked.
    """
    told_of: list[str] = []
    for run in [info.name for info in files.list(layout.RUNS) if layout.is_run(info.name)]:
        try:
            _deliver_one(files, run, places, spark)
        except PlaceNotNamedError as error:
            told_of.append(error.text)
        except TtlsnapError as error:
            told_of.append(
                f"the rows that run {run} dropped wait in {files.root}/{layout.run_directory(run)} for the next run: "
                + error.text
            )
    _tidy(files)
    return told_of


def _deliver_one(files: LocalDirectory, run: str, places: AllowedPlaces, spark: Sparks) -> None:
    if not _take_back(files, run, places):
        note = _read_note(files, _note_of(run))
        if note is not None and _settle(spark, files, run, note, None):
            receiver = places.find(note.expired_to, run, "deliver")
            if receiver is None:
                raise PlaceNotNamedError(
                    f"the rows that run {run} dropped are still in {files.root}/{layout.run_directory(run)}. The table "
                    f"names {shell_word(note.expired_to)} as their archive, which this command does not name. To "
                    f"archive them, repeat compact with --expired-to {shell_word(note.expired_to)}. To discard them, "
                    "remove that folder"
                )
            deliver(files, run, receiver)
    files.remove_tree(layout.run_directory(run))


def record_take_back(files: LocalDirectory, run: str, version: int, target: str) -> None:
    """Record that ``run``, whose rows ``target`` received, will be rolled back; ``version`` is the newest one."""
    files.mkdirs(layout.run_directory(run))
    _write_note(files, _rollback_of(run), _Note(version, target))


def take_back(files: LocalDirectory, run: str, target: str, places: AllowedPlaces) -> None:
    """Remove the rows of a rolled back run from its archive.

    Raise PlaceNotNamedError if ``places`` do not allow that; the record of ``record_take_back`` then stays.
    """
    if find_receiver(target) is not None:
        receiver = places.find(target, run, "take back")
        if receiver is None:
            raise PlaceNotNamedError(
                f"the rows that run {run} dropped are restored. They also stay in {shell_word(target)}, which this "
                f"command does not name. To remove them there, repeat compact with --expired-to {shell_word(target)}"
            )
        receiver.take_back(run)
    files.remove_tree(layout.run_directory(run))
    _tidy(files)


def _take_back(files: LocalDirectory, run: str, places: AllowedPlaces) -> bool:
    """Return whether the run was rolled back, after removing its rows from the archive."""
    note = _read_note(files, _rollback_of(run))
    if note is None:
        return False
    undone_runs = [
        (metadata.get("undoes"), _run_of(newer_commit))
        for newer_commit in _since(files, note.version)
        if (metadata := read_run_metadata(newer_commit))
    ]
    undoings = {undoes for undoes, _ in undone_runs}  # a rollback that was too late is undone itself
    if any(undoes == run and undoing_run not in undoings for undoes, undoing_run in undone_runs):
        take_back(files, run, note.expired_to, places)
        return True
    files.remove(_rollback_of(run))
    return False


def _deliver(files: LocalDirectory, run: str, receiver: Receiver) -> None:
    deliver(files, run, receiver)
    files.remove_tree(layout.run_directory(run))
    _tidy(files)


def _tidy(files: LocalDirectory) -> None:
    files.remove_folder(layout.RUNS)
    files.remove_folder(OWN)  # the lock may be there: whoever releases it removes the folder


def _settle(spark: Sparks, files: LocalDirectory, run: str, note: _Note, rows: _Rows | None) -> bool:
    """Turn staged rows into dropped rows, with at least one file for each commit. Return False if there is no commit.

    Raise the errors of reading older versions, and CorruptionError if the dropped rows are not found.
    """
    if files.stat(folder_of(run)) is not None:
        return True
    newer_commits = _since(files, note.version)
    commits_of_part = {
        _part(run_commit): run_commit
        for run_commit in newer_commits
        if _run_of(run_commit) == run and changes_rows(run_commit)
    }
    if not commits_of_part:
        return False
    staged = [info.name for info in files.list(_staged_folder(run), (SUFFIX,))]
    paths_of_part: dict[int, list[str]] = {part: [] for part in commits_of_part}
    for name in staged:
        paths_of_part.setdefault(int(name.split("-")[0]), []).append(f"{_staged_folder(run)}/{name}")
    for part, paths in paths_of_part.items():
        run_commit = commits_of_part.get(part)
        if run_commit is not None:
            earlier_commits = [
                earlier_commit for earlier_commit in newer_commits if earlier_commit.version < run_commit.version
            ]
            undisturbed = all(
                read_run_metadata(earlier_commit) is not None and _run_of(earlier_commit) in (run, None)
                for earlier_commit in earlier_commits
            )
            dropped = count_changed_rows([run_commit])[0] if _counts(run_commit) else None
            if undisturbed and dropped in (None, rows_in(files, paths)):
                continue
            _compute_again(spark(), files, run, part, run_commit, dropped, rows)
        for path in paths:
            files.remove(path)
        if run_commit is not None:
            for info in files.list(_again_folder(run), (SUFFIX,)):
                files.rename(f"{_again_folder(run)}/{info.name}", f"{_staged_folder(run)}/{info.name}")
    files.rename(_staged_folder(run), folder_of(run))
    files.sync(layout.run_directory(run))
    return True


def _compute_again(
    spark: SparkSession,
    files: LocalDirectory,
    run: str,
    part: int,
    run_commit: Commit,
    dropped: int | None,
    rows: _Rows | None,
) -> None:
    """Write the rows that a commit has dropped into a folder of their own.

    ``dropped`` is their number if Delta has counted them. ``rows`` is the planned form, None for another run. Raise
    CorruptionError if other rows are found.
    """
    files.remove_tree(_again_folder(run))
    frame, known_rows = _find_dropped_rows(spark, files, run_commit, rows)
    rows_found = _write(frame, files, run, part, known_rows, _again_folder(run))
    if dropped is not None and dropped != rows_found:
        raise CorruptionError(
            f"{files.root}: the commit of version {run_commit.version} dropped {quantity(dropped, 'row')}, but it "
            f"lacks {quantity(rows_found, 'row')} of version {run_commit.version - 1}. The rows are in version "
            f"{run_commit.version - 1}; to discard them, remove {files.root}/{layout.run_directory(run)}"
        )


def _find_dropped_rows(
    spark: SparkSession, files: LocalDirectory, run_commit: Commit, planned_rows: _Rows | None
) -> tuple[DataFrame, _Rows]:
    """Return the rows that a commit has dropped, and their form: those before it that are missing after it.

    A key may occur more than once, because others may have added rows before the commit.
    """
    from pyspark.sql import functions as F

    with translate_errors(files):
        old_table, new_table = (
            spark.read.format("delta").option("versionAsOf", version).load(table_path(files))
            for version in (run_commit.version - 1, run_commit.version)
        )
        schema = parse_struct(old_table.schema.json())
        key = [str(name) for name in (read_run_metadata(run_commit) or {}).get("key", [])]
        rows = _Rows(schema.names, describe(schema, key))
        if planned_rows is not None:
            rows = replace(rows, factories=planned_rows.factories, clock=planned_rows.clock)
        missing_rows, added_rows = _subtract(old_table, new_table, schema), _subtract(new_table, old_table, schema)
        if run_commit.operation == "MERGE":
            places = [schema.names.index(name) for name in rows.state.key_schema.names]
            keys = added_rows.select(*(F.col(f"c{place}").alias(f"k{place}") for place in places))
            equal_columns = [F.col(f"c{place}").eqNullSafe(F.col(f"k{place}")) for place in places]
            missing_rows = missing_rows.join(keys, functools.reduce(operator.and_, equal_columns), "left_anti")
        return missing_rows, rows


def _subtract(minuend: DataFrame, subtrahend: DataFrame, schema: StructType) -> DataFrame:
    """Return the rows of ``minuend`` that ``subtrahend`` lacks, with columns by position. Rows may repeat."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    whole_row = F.struct(*(F.expr(comparable(quote_identifier(field.name), field.type)) for field in schema))
    columns = [F.col(quote_identifier(field.name)).alias(f"c{place}") for place, field in enumerate(schema)]
    # Rows are numbered, because Spark's EXCEPT ALL refuses columns with maps.
    window = Window.partitionBy("whole").orderBy(F.lit(0))
    minuend_rows = minuend.select(*columns, whole_row.alias("whole")).withColumn("nth", F.row_number().over(window))
    subtrahend_counts = subtrahend.select(whole_row.alias("there")).groupBy("there").count()
    joined_rows = minuend_rows.join(
        subtrahend_counts, minuend_rows["whole"].eqNullSafe(subtrahend_counts["there"]), "left"
    )
    return joined_rows.where("nth > coalesce(count, 0)").select(*(f"c{place}" for place in range(len(columns))))


def _write(frame: DataFrame, files: LocalDirectory, run: str, part: int, rows: _Rows, folder: str) -> int:
    """Write the rows of ``frame`` into ``folder``, a file for each task that has some. Return their number."""
    names, state, factories, clock = rows.names, rows.state, rows.factories, rows.clock

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        path = f"{folder}/{part}-{context.partitionId() if context else 0}{SUFFIX}"
        scratch = scratch_name(path)  # two attempts at one task must not meet
        transformers: StateTransformers[TableEntries] = StateTransformers(state, factories, clock)
        with ExpiredWriter(files, scratch, run) as writer:
            for batch in batches:
                entries = TableEntries.of_batch(state, batch.rename_columns(list(names)))
                writer.add(entries, transformers.moments(entries))
        if writer.written:
            files.rename(scratch, path, overwrite=True)
        yield pa.RecordBatch.from_pydict({"rows": [writer.written]})

    with translate_errors(files):
        row_count: int = sum(row[0] for row in on_workers(frame, work, "rows long").collect())
    access = access_of_new(files, f"{LOG}/new")  # who may read the table may read these
    if access is not None:
        for info in files.list(folder, (SUFFIX,)):
            files.set_access(f"{folder}/{info.name}", access)
    return row_count


def _since(files: LocalDirectory, version: int) -> list[Commit]:
    """Return the commits after a version. Raise RefusedError if the log no longer has all of them."""
    newer_commits = list(itertools.takewhile(lambda table_commit: table_commit.version > version, commits(files)))
    if newer_commits and newer_commits[-1].version != version + 1:
        raise RefusedError(
            f"{files.root}: its log now begins with version {newer_commits[-1].version}, so ttlsnap cannot tell "
            f"whether the run that was interrupted at version {version} was committed. The rows that it was to drop "
            f"are in {files.root}/{layout.RUNS}; remove that folder when you do not need them any more"
        )
    return newer_commits


def _run_of(table_commit: Commit) -> Any:
    return (read_run_metadata(table_commit) or {}).get("run")


def _part(table_commit: Commit) -> int:
    """Return the number of the commit within its run, from 0 on."""
    return int((read_run_metadata(table_commit) or {}).get("part", [1])[0]) - 1


def _counts(table_commit: Commit) -> bool:
    """Return whether Delta has counted the rows. It need not count those of partitions that it deletes as a whole."""
    return any(name in table_commit.metrics for name in ("numDeletedRows", "numTargetRowsDeleted"))


def _staged_folder(run: str) -> str:
    return f"{layout.run_directory(run)}/staged"


def _again_folder(run: str) -> str:
    return f"{layout.run_directory(run)}/again"


def _note_of(run: str) -> str:
    return f"{layout.run_directory(run)}/archive.json"


def _rollback_of(run: str) -> str:
    return f"{layout.run_directory(run)}/rollback.json"


def _write_note(files: LocalDirectory, path: str, note: _Note) -> None:
    files.replace(path, json.dumps(to_json(note)).encode())


def _read_note(files: LocalDirectory, path: str) -> _Note | None:
    if files.stat(path) is None:
        return None
    try:
        document = require_type(parse_json(files.read(path, _MAX_NOTE)), dict)
        return _Note(require_type(document["version"], int), require_type(document["expired_to"], str))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"{files.root}/{path} is not a note of a run: {error}") from error
