"""What expired is not lost: the dropped entries of a run, as Parquet, delivered once the run is published.

    run, operator, store, state, partition   where an entry was, and which run dropped it
    key, value                               JSON, as ``json_text`` has it
    timestamp                                the moment that it was judged by, in UTC; null where there was none

Each worker writes a file for its partition into the run's own folder. When the run has been published the files move to
where they are wanted, under names that begin with the run's: moved again after a crash they are the same files, so that
each entry is there once. A run that was undone takes its files with it, and so does one that is rolled back.

Or a function is called with each of them, file by file: after a crash again with those of the file that it had come
to. It is never called because a checkpoint says so, but by a run that was given it.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import pyarrow as pa

from ttlsnap.checkpoint import layout
from ttlsnap.entries import Int64, Mask, StateEntries
from ttlsnap.errors import CorruptionError, TransformerError, UsageError
from ttlsnap.filesystem import SCRATCH, Directory, open_directory
from ttlsnap.journal import read_journal, read_report
from ttlsnap.json_text import json_texts

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("operator", pa.int32()),
        ("store", pa.string()),
        ("state", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.large_string()),
        ("value", pa.large_string()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
_SUFFIX = ".parquet"
_FACTS = ("run", "operator", "store", "state", "partition", "timestamp")


@dataclass(frozen=True)
class ExpiredCallback:
    """A function that gets each dropped entry once its run is published; by ``name`` later runs know it again.

    It is called with the key and the value, as what their JSON is in Python, and of ``run``, ``operator``, ``store``,
    ``state``, ``partition`` and ``timestamp`` (an aware datetime, or None) with those that it has parameters for.
    """

    name: str
    function: Callable[..., object]

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raises TransformerError with the entry for which the function raised."""
        parameters = inspect.signature(self.function).parameters.values()
        every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        wanted = [name for name in _FACTS if every or name in {parameter.name for parameter in parameters}]
        for row in rows:
            try:
                self.function(json.loads(row["key"]), json.loads(row["value"]), **{name: row[name] for name in wanted})
            except Exception as error:  # its author's code
                raise TransformerError(f"{self.name}, key {row['key']}: {type(error).__name__}: {error}") from error


def folder_of(run: str) -> str:
    """Where the dropped entries of a run wait until it is published."""
    return f"{layout.run_directory(run)}/expired"


class ExpiredWriter:
    """Writes the dropped entries of one partition into the file ``path``; none where there are no such entries."""

    def __init__(self, files: Directory, path: str, run: str, operator: int, partition: int) -> None:
        self._files, self._path = files, path
        self._run, self._operator, self._partition = run, operator, partition
        self._stack = contextlib.ExitStack()
        self._writer: ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def add(self, dropped: StateEntries, moments: tuple[Int64, Mask] | None) -> None:
        """Some entries of one state, with the moments (microseconds) that they were judged by, and which have none."""
        size, state = len(dropped), dropped.state
        if not size:
            return
        times = pa.nulls(size, pa.int64()) if moments is None else pa.array(moments[0], mask=moments[1])
        facts: Sequence[Any] = (self._run, self._operator, state.store, state.state, self._partition)
        columns = [pa.repeat(pa.scalar(fact, field.type), size) for fact, field in zip(facts, SCHEMA, strict=False)]
        columns += [json_texts(dropped.key_structs), json_texts(dropped.value_structs)]
        self._open().write_batch(pa.record_batch([*columns, times.cast(SCHEMA.field("timestamp").type)], schema=SCHEMA))

    def _open(self) -> ParquetWriter:
        if self._writer is None:
            from pyarrow.parquet import ParquetWriter  # which brings pandas along, where it is installed

            self._files.mkdirs(self._path.rpartition("/")[0])
            stream: BinaryIO = self._stack.enter_context(self._files.writer(self._path))
            self._writer = self._stack.enter_context(ParquetWriter(stream, SCHEMA, compression="zstd"))
        return self._writer


def check_archive(path: str, *, make: bool = True) -> Directory:
    """The folder that dropped entries are to go to; with ``make`` it is made. Raises UsageError for what is none."""
    folder = open_directory(path)
    found = folder.stat("")
    if found is not None and not found.is_dir:
        raise UsageError(f"{folder.root} is no folder: dropped entries go into Parquet files in one")
    if make:
        folder.mkdirs("")
    return folder


def check_complete(files: Directory, paths: Sequence[str], dropped: int) -> None:
    """Raise CorruptionError unless the files have as many entries as were dropped."""
    from pyarrow.parquet import ParquetFile

    found = 0
    for path in paths:
        try:
            with files.open(path) as stream:
                found += ParquetFile(stream).metadata.num_rows
        except pa.ArrowException as error:
            raise CorruptionError(f"{files.root}/{path} cannot be read again: {str(error)[:200]}") from error
    if found != dropped:
        raise CorruptionError(
            f"{found:,} dropped entries were written down where {dropped:,} were dropped. Nothing was published"
        )


def deliver_all(files: Directory, callback: ExpiredCallback | None = None) -> None:
    """Deliver what published runs, and those that made a copy, have not delivered yet.

    What is of runs that were undone is removed; of a run that was cut off nobody knows yet. What is for another
    function than ``callback`` stays where it is.
    """
    for run in [info.name for info in files.list(layout.RUNS)]:
        if files.stat(folder_of(run)) is None:
            continue
        journal, target = read_journal(files, run), archive_of(files, run)
        if journal is not None and journal.status == "undone":
            files.remove_tree(folder_of(run))
        elif target is not None and (journal is None or journal.status == "done"):
            if callback is not None and target == callback.name:
                deliver(files, run, callback)
            elif is_place(target):
                deliver(files, run, target)


def deliver(files: Directory, run: str, target: str | ExpiredCallback) -> None:
    """Move a published run's dropped entries to ``target``; done again it does what was left."""
    receiver = target if isinstance(target, ExpiredCallback) else check_archive(target)
    for info in files.list(folder_of(run), (_SUFFIX,)):
        path = f"{folder_of(run)}/{info.name}"
        if isinstance(receiver, ExpiredCallback):
            _tell(files, path, receiver)
        else:
            _bring(files, path, receiver, f"{run}-{info.name}")
        files.remove(path)
    files.remove_tree(folder_of(run))


def _bring(files: Directory, path: str, folder: Directory, name: str) -> None:
    hidden = f".{name}{SCRATCH}"  # Spark passes over what begins with a dot
    with files.open(path) as old, folder.writer(hidden) as new:
        shutil.copyfileobj(old, new, 8 << 20)
    folder.rename(hidden, name)
    folder.sync("")


def _tell(files: Directory, path: str, callback: ExpiredCallback) -> None:
    from pyarrow.parquet import ParquetFile

    with files.open(path) as stream:
        for batch in ParquetFile(stream).iter_batches():
            callback(batch.to_pylist())


def is_place(target: str) -> bool:
    """Whether a report's words are those for a folder, and not a function's name."""
    return target.startswith("/") or "://" in target


def withdraw(files: Directory, run: str) -> int:
    """Take back what a run has delivered, which is rolled back; how many files that were."""
    target = archive_of(files, run)
    files.remove_tree(folder_of(run))
    if target is None or not is_place(target):
        return 0
    folder = open_directory(target)
    mine = [info.name for info in folder.list("", (_SUFFIX,)) if info.name.startswith(f"{run}-")]
    for name in mine:
        folder.remove(name)
    return len(mine)


def archive_of(files: Directory, run: str) -> str | None:
    """Where a run's dropped entries go, as its report says; None where they go nowhere."""
    found = (read_report(files, run) or {}).get("expired_to")
    if found is not None and not isinstance(found, str):
        raise CorruptionError(f"the report of run {run} has the expired_to {found!r}, which is no path")
    return found
