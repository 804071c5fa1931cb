"""What a run drops of a table is kept: staged before it is committed, delivered behind that.

    _ttlsnap/runs/<run>/archive.json   the version that was looked at, and who gets what goes
    _ttlsnap/runs/<run>/staged/...     rows that are about to go
    _ttlsnap/runs/<run>/expired/...    rows that have gone, until they are delivered
    _ttlsnap/runs/<run>/rollback.json  the run is about to be rolled back

Delta's ``VACUUM`` leaves a folder alone whose name begins so. It is there only while something has to be delivered.

Between the scan and the commit others may write. Where somebody did, or where the commit tells of another number, what
has gone is found once more: the rows of the version before the commit whose key the commit's own has not.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ttlsnap.access import access_of_new
from ttlsnap.checkpoint import layout
from ttlsnap.clock import Clock
from ttlsnap.delta.committing import changes_rows, rows_changed, table_path, told, words_of
from ttlsnap.delta.cutoff import quoted
from ttlsnap.delta.entries import TableEntries
from ttlsnap.delta.log import LOG, Commit, commits, read_table
from ttlsnap.delta.planning import TablePlan, describe
from ttlsnap.errors import CorruptionError, RefusedError, TtlsnapError
from ttlsnap.expired.delivery import deliver
from ttlsnap.expired.places import PlaceNotNamedError, Places, shown
from ttlsnap.expired.receivers import Receiver, receiver_named
from ttlsnap.expired.writing import SUFFIX, ExpiredWriter, folder_of, rows_in
from ttlsnap.filesystem import OWN, LocalDirectory, scratch_name
from ttlsnap.state import StateDescriptor
from ttlsnap.strict_json import parse_json, typed
from ttlsnap.transform import StateSnapshotTransformerFactory
from ttlsnap.transforming import StateTransformers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    Sparks = Callable[[], SparkSession]

_MAX_NOTE = 1 << 16
_NEVER = Clock(0, 0, "given")


@dataclass(frozen=True)
class _Note:
    """Of a run: the version that it looked at, and the name of who gets what it drops."""

    version: int
    expired_to: str


@dataclass(frozen=True)
class _Rows:
    """What rows are: the table's columns, in their order, and what says by which moment a row was judged."""

    names: Sequence[str]
    state: StateDescriptor
    factories: Sequence[StateSnapshotTransformerFactory] = ()
    clock: Clock = _NEVER

    @classmethod
    def of(cls, plan: TablePlan) -> _Rows:
        return cls(plan.table.metadata.schema.names, plan.state, plan.factories, plan.clock)


class TableArchive:
    """Gets the rows that one run drops."""

    def __init__(self, plan: TablePlan, run: str, receiver: Receiver) -> None:
        self._plan, self._run, self._receiver = plan, run, receiver
        self._note = _Note(plan.table.version, receiver.name)

    def begin(self) -> None:
        """Note down what is about to be done."""
        files = self._plan.files
        files.mkdirs(_staged(self._run))
        _write_note(files, _note_of(self._run), self._note)

    def stage(self, part: int, frame: DataFrame) -> None:
        """Write down the rows that the ``part``-th commit will drop; columns go by their places, ``c0`` and so on."""
        _write(frame, self._plan.files, self._run, part, _Rows.of(self._plan))
        self._plan.files.sync(_staged(self._run))

    def deliver(self, spark: SparkSession) -> None:
        """Deliver what has gone, now that it is committed."""
        files = self._plan.files
        if _settle(lambda: spark, files, self._run, self._note, _Rows.of(self._plan)):
            _deliver(files, self._run, self._receiver)

    def discard(self) -> None:
        """Remove what was staged: nothing was committed."""
        self._plan.files.remove_tree(layout.run_directory(self._run))
        _tidy(self._plan.files)


def waits(files: LocalDirectory) -> bool:
    """Whether a run has left something that is to be delivered, or taken back."""
    return files.stat(layout.RUNS) is not None


def deliver_waiting(files: LocalDirectory, places: Places, spark: Sparks) -> list[str]:
    """Deliver what runs that were cut off have left, and take back what a rollback had to; what could not be, in words.

    What is for somebody that ``places`` do not allow stays where it is. ``spark`` is asked for a session where one is
    needed. The table is locked.
    """
    told_of = []
    for run in [info.name for info in files.list(layout.RUNS) if layout.is_run(info.name)]:
        try:
            _deliver_one(files, run, places, spark)
        except PlaceNotNamedError as error:
            told_of.append(str(error))
        except TtlsnapError as error:
            told_of.append(
                f"what run {run} dropped waits in {files.root}/{layout.run_directory(run)} for the next run: {error}"
            )
    _tidy(files)
    return told_of


def _deliver_one(files: LocalDirectory, run: str, places: Places, spark: Sparks) -> None:
    if not _taken_back(files, run, places):
        note = _read_note(files, _note_of(run))
        if note is not None and _settle(spark, files, run, note, None):
            found = places.find(note.expired_to, run, "deliver")
            if found is None:
                raise PlaceNotNamedError(
                    f"what run {run} dropped waits in {files.root}/{layout.run_directory(run)}: the table says that it "
                    f"is for {shown(note.expired_to)}, which this command does not name. To deliver it, repeat compact "
                    f"with --expired-to {shown(note.expired_to)}. To give it up, remove that folder"
                )
            deliver(files, run, found)
    files.remove_tree(layout.run_directory(run))


def begin_to_take_back(files: LocalDirectory, run: str, version: int, target: str) -> None:
    """Note down that ``run``, whose rows ``target`` got, is about to be rolled back; ``version`` is the newest."""
    files.mkdirs(layout.run_directory(run))
    _write_note(files, _rollback_of(run), _Note(version, target))


def take_back(files: LocalDirectory, run: str, target: str, places: Places) -> None:
    """Take back what a run that was rolled back has delivered.

    Raises PlaceNotNamedError where ``places`` do not allow that; the note of ``begin_to_take_back`` stays then.
    """
    if receiver_named(target) is not None:
        found = places.find(target, run, "take back")
        if found is None:
            raise PlaceNotNamedError(
                f"what run {run} dropped is in the table again. It stays in {shown(target)} as well, which this "
                f"command does not name. To remove it there, repeat compact with --expired-to {shown(target)}"
            )
        found.take_back(run)
    files.remove_tree(layout.run_directory(run))
    _tidy(files)


def _taken_back(files: LocalDirectory, run: str, places: Places) -> bool:
    """Whether the run was rolled back: what it had delivered then is taken back."""
    note = _read_note(files, _rollback_of(run))
    if note is None:
        return False
    undone = [(words.get("undoes"), _run_of(made)) for made in _since(files, note.version) if (words := words_of(made))]
    undoings = {undoes for undoes, _ in undone}  # a rollback that was too late is undone itself
    if any(undoes == run and by not in undoings for undoes, by in undone):
        take_back(files, run, note.expired_to, places)
        return True
    files.remove(_rollback_of(run))
    return False


def _deliver(files: LocalDirectory, run: str, receiver: Receiver) -> None:
    deliver(files, run, receiver)
    files.remove_tree(layout.run_directory(run))
    _tidy(files)


def _tidy(files: LocalDirectory) -> None:
    if not files.list(layout.RUNS):
        files.remove_tree(layout.RUNS)
        # The lock may be there: whoever releases it removes the folder.
        if not files.list(OWN):
            files.remove_tree(OWN)


def _settle(spark: Sparks, files: LocalDirectory, run: str, note: _Note, rows: _Rows | None) -> bool:
    """Make of what was staged what has gone, with a file or more of each commit; False where nothing was committed.

    Raises what reading older versions raises, and CorruptionError where what has gone is not found.
    """
    if files.stat(folder_of(run)) is not None:
        return True
    newer = _since(files, note.version)
    mine = {_part(made): made for made in newer if _run_of(made) == run and changes_rows(made)}
    if not mine:
        return False
    staged = [info.name for info in files.list(_staged(run), (SUFFIX,))]
    parts: dict[int, list[str]] = {part: [] for part in mine}
    for name in staged:
        parts.setdefault(int(name.split("-")[0]), []).append(f"{_staged(run)}/{name}")
    for part, paths in parts.items():
        made = mine.get(part)
        if made is not None:
            before = [each for each in newer if each.version < made.version]
            undisturbed = all(words_of(each) is not None and _run_of(each) in (run, None) for each in before)
            dropped = rows_changed([made])[0] if _counts(made) else None
            if undisturbed and dropped in (None, rows_in(files, paths)):
                continue
        for path in paths:
            files.remove(path)
        if made is not None:
            known = rows or _rows(files, made)
            found = _write(_gone(spark(), files, made, known), files, run, part, known)
            if dropped is not None and dropped != found:
                key = ", ".join(known.state.key_schema.names)
                raise CorruptionError(
                    f"{files.root}: version {made.version} has dropped {dropped:,} rows, and by the key {key} "
                    f"{found:,} are found: is it the key? They are in version {made.version - 1}; to give them up, "
                    f"remove {files.root}/{layout.run_directory(run)}"
                )
    files.rename(_staged(run), folder_of(run))
    files.sync(layout.run_directory(run))
    return True


def _rows(files: LocalDirectory, made: Commit) -> _Rows:
    """The same of a commit of another run, whose transformers nobody has."""
    schema, key = read_table(files).metadata.schema, (words_of(made) or {}).get("key", [])
    return _Rows(schema.names, describe(schema, [str(name) for name in key]))


def _gone(spark: SparkSession, files: LocalDirectory, made: Commit, rows: _Rows) -> DataFrame:
    """What a commit has dropped: the rows that are there before it, and whose key is not behind it."""
    from pyspark.sql import functions as F

    key = rows.state.key_schema.names
    with told(files):
        old, new = (
            spark.read.format("delta").option("versionAsOf", version).load(table_path(files))
            for version in (made.version - 1, made.version)
        )
        if old.columns != list(rows.names):
            raise RefusedError(
                f"{files.root} has got other columns since version {made.version}, whose rows cannot be told by now. "
                f"They are in version {made.version - 1}; to give them up, remove {files.root}/{OWN}"
            )
        left = old.select(*(F.col(quoted(name)).alias(f"c{place}") for place, name in enumerate(rows.names)))
        right = new.select(*(F.col(quoted(name)).alias(f"k{place}") for place, name in enumerate(key)))
        same = [left[f"c{rows.names.index(name)}"].eqNullSafe(right[f"k{place}"]) for place, name in enumerate(key)]
        return left.join(right, functools.reduce(operator.and_, same), "left_anti")


def _write(frame: DataFrame, files: LocalDirectory, run: str, part: int, rows: _Rows) -> int:
    """Write the rows of ``frame`` into the run's folder, a file for each task that has some; how many there were."""
    names, state, factories, clock = rows.names, rows.state, rows.factories, rows.clock

    def work(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        path = f"{_staged(run)}/{part}-{context.partitionId() if context else 0}{SUFFIX}"
        scratch = scratch_name(path)  # two attempts at one task must not meet
        transformers: StateTransformers[TableEntries] = StateTransformers(state, factories, clock)
        with ExpiredWriter(files, scratch, run) as writer:
            for batch in given:
                entries = TableEntries.of_batch(state, batch.rename_columns(list(names)))
                writer.add(entries, transformers.moments(entries))
        if writer.written:
            files.rename(scratch, path)
        yield pa.RecordBatch.from_pydict({"rows": [writer.written]})

    with told(files):
        found: int = sum(row[0] for row in frame.mapInArrow(work, "rows long").collect())
    access = access_of_new(files, f"{LOG}/new")  # who may read the table may read these
    if access is not None:
        for info in files.list(_staged(run), (SUFFIX,)):
            files.set_access(f"{_staged(run)}/{info.name}", access)
    return found


def _since(files: LocalDirectory, version: int) -> list[Commit]:
    """The commits after a version; raises RefusedError where the log has not got them all any more."""
    newer = list(itertools.takewhile(lambda made: made.version > version, commits(files)))
    if newer and newer[-1].version != version + 1:
        raise RefusedError(
            f"{files.root}: its log begins with version {newer[-1].version} by now, so that what became of the run "
            f"that was cut off at version {version} cannot be told. What it was to drop is in "
            f"{files.root}/{layout.RUNS}; when it is not needed any more, remove that"
        )
    return newer


def _run_of(made: Commit) -> Any:
    return (words_of(made) or {}).get("run")


def _part(made: Commit) -> int:
    """Which of its run's commits it is, from 0 on."""
    return int((words_of(made) or {}).get("part", [1])[0]) - 1


def _counts(made: Commit) -> bool:
    """Whether Delta has counted the rows: of partitions that go whole it does not always, and may be told not to."""
    return any(name in made.metrics for name in ("numDeletedRows", "numTargetRowsDeleted"))


def _staged(run: str) -> str:
    return f"{layout.run_directory(run)}/staged"


def _note_of(run: str) -> str:
    return f"{layout.run_directory(run)}/archive.json"


def _rollback_of(run: str) -> str:
    return f"{layout.run_directory(run)}/rollback.json"


def _write_note(files: LocalDirectory, path: str, note: _Note) -> None:
    files.replace(path, json.dumps(asdict(note)).encode())


def _read_note(files: LocalDirectory, path: str) -> _Note | None:
    if files.stat(path) is None:
        return None
    try:
        found = typed(parse_json(files.read(path, _MAX_NOTE)), dict)
        return _Note(typed(found["version"], int), typed(found["expired_to"], str))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"{files.root}/{path} is no note of a run: {error}") from error
