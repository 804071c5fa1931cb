"""The work on one partition: scan, transform, stage, and count what was staged.

``compact_partition`` is the one function that every engine runs, one partition at a time on one thread. It takes
and gives plain data, so that it can cross to another process or machine. Nothing is written but its own staged
file, and in a dry run not even that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from ttlsnap import errors
from ttlsnap.checkpoint import layout
from ttlsnap.clock import Clock
from ttlsnap.entries import StateEntries
from ttlsnap.errors import CorruptionError, StorageError, TransformerError, TtlsnapError
from ttlsnap.filesystem import Directory, open_directory, scratch_name
from ttlsnap.state import StateDescriptor
from ttlsnap.stores.codecs import decompress
from ttlsnap.stores.hdfs import Batch, StoreFormat, read_entries
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.records import read_records
from ttlsnap.stores.snapshot_writer import CountingSink, SnapshotWriter
from ttlsnap.transform import (
    ReportsTimes,
    StateSnapshotTransformer,
    StateSnapshotTransformerFactory,
    TimeSummary,
)
from ttlsnap.unsaferow.check import check_rows

_LARGE_BLOCK = 31 << 20  # bytes, just below what glibc takes for the most one could mean


@dataclass(frozen=True)
class PartitionTask:
    """One partition to compact.

    ``staged`` is where the new snapshot belongs, relative to ``staging_root``; None in a dry run. It is written
    beside that place, under a name of its own: an engine may run a task twice at once, as Spark does by speculation.
    """

    root: str
    state: StateDescriptor
    lineage: Lineage
    form: StoreFormat
    factories: tuple[StateSnapshotTransformerFactory, ...]
    clock: Clock
    staging_root: str
    staged: str | None


@dataclass(frozen=True)
class PartitionResult:
    """What became of a partition: counts of entries, bytes on disk before and after.

    ``staged`` is the new snapshot of ``bytes_after`` bytes, under the name it was written by; None when nothing changed
    (the partition keeps its files) or in a dry run.
    ``failure`` is an error's class name and message; the counts then mean nothing.
    """

    operator: int
    store: str
    partition: int
    entries: int = 0
    kept: int = 0
    dropped: int = 0
    rewritten: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    staged: str | None = None
    times: TimeSummary | None = None
    failure: tuple[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for crossing to another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> PartitionResult:
        """The result that ``to_json`` made the document of."""
        times, failure = document.pop("times"), document.pop("failure")
        return cls(
            **document,
            times=TimeSummary(**times) if times else None,
            failure=(failure[0], failure[1]) if failure else None,
        )

    def raise_failure(self) -> None:
        """Raise the error that stopped the partition, if one did."""
        if self.failure is not None:
            kind = getattr(errors, self.failure[0], TtlsnapError)
            raise kind(self.failure[1])


Progress = Callable[[int, int], None]
"""Told, as a partition is worked on, how many more entries were seen and how many of them dropped."""


def compact_partition(task: PartitionTask, progress: Progress | None = None) -> PartitionResult:
    """Compact one partition; an error of ttlsnap's comes back as the result's ``failure``."""
    state = task.state
    result = PartitionResult(state.operator, state.store, state.partition or 0, bytes_before=task.lineage.size)
    try:
        return _compact(task, result, progress or (lambda entries, dropped: None))
    except TtlsnapError as error:
        message = str(error) if str(state) in str(error) else f"{state}: {error}"
        if isinstance(error, CorruptionError) and task.root not in message:
            folder = layout.store_directory(state.operator, state.partition or 0, state.store)
            message = f"{task.root}/{folder}, version {task.lineage.version}: {message}"
        return replace(result, failure=(type(error).__name__, message))
    except MemoryError:
        folder = layout.store_directory(state.operator, state.partition or 0, state.store)
        message = (
            f"{state}: there is not enough memory for {task.root}/{folder}, whose {task.lineage.size:,} bytes on disk "
            "swell to more. Nothing was published. Try a smaller --parallelism, or a machine with more memory"
        )
        return replace(result, failure=(TtlsnapError.__name__, message))


def _compact(task: PartitionTask, result: PartitionResult, progress: Progress) -> PartitionResult:
    # Freeing a large block, once, teaches glibc to keep what is freed for the next window, where it would give it back
    # and fault it in anew: a tenth of the CPU time.
    np.empty(_LARGE_BLOCK, np.uint8)
    transformers = [t for f in task.factories if (t := create(f, task.state, task.clock)) is not None]
    source, staging = open_directory(task.root), open_directory(task.staging_root)
    staged = None if task.staged is None else scratch_name(task.staged)
    entries = kept = rewritten = 0
    with _staged_sink(staging, staged) as sink:
        writer = SnapshotWriter(sink, task.form)
        for batch in read_entries(source, task.lineage, task.form):
            left, new = _transform(task.state, transformers, batch, writer)
            entries, kept, rewritten = entries + len(batch.keys), kept + left, rewritten + new
            progress(len(batch.keys), len(batch.keys) - left)
        digest = writer.close()
    changed = kept != entries or rewritten > 0
    if staged is not None:
        if changed:
            _recount(staging, staged, task.form, kept, digest)
        else:
            staging.remove(staged)
    times = [t.time_summary() for t in transformers if isinstance(t, ReportsTimes)]
    return replace(
        result,
        entries=entries,
        kept=kept - rewritten,
        dropped=entries - kept,
        rewritten=rewritten,
        bytes_after=sink.size if changed else result.bytes_before,
        staged=staged if changed else None,
        times=times[0] if times else None,
    )


def settle(task: PartitionTask, result: PartitionResult) -> PartitionResult:
    """Give what a task staged the name it is to have; raises StorageError if it is not what the task left."""
    if result.staged is None or task.staged is None:
        return result
    staging = open_directory(task.staging_root)
    found = staging.stat(result.staged)
    if found is None or found.size != result.bytes_after:
        raise StorageError(
            f"{staging.root}/{result.staged} is {'gone' if found is None else f'{found.size:,} bytes long'}, where a "
            f"worker wrote {result.bytes_after:,} bytes: do all workers see the same storage? Nothing was published"
        )
    staging.rename(result.staged, task.staged)
    return replace(result, staged=task.staged)


def create(
    factory: StateSnapshotTransformerFactory, state: StateDescriptor, clock: Clock
) -> StateSnapshotTransformer | None:
    """What the factory makes for ``state``; whatever it raises is told as the transformer's own error."""
    try:
        return factory.create(state, clock)
    except TtlsnapError:
        raise
    except Exception as error:
        name = type(factory).__name__
        raise TransformerError(f"{state}: {name}.create raised {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _staged_sink(staging: Directory, path: str | None) -> Iterator[CountingSink]:
    if path is None:
        yield CountingSink()
        return
    staging.mkdirs(path.rpartition("/")[0])
    with staging.writer(path) as file:
        yield CountingSink(file)


def _transform(
    state: StateDescriptor,
    transformers: Sequence[StateSnapshotTransformer],
    batch: Batch,
    writer: SnapshotWriter,
) -> tuple[int, int]:
    """Run one batch through the transformers and into ``writer``: entries left, and rewritten ones among them."""
    check_rows(batch.keys, state.key_schema)
    check_rows(batch.values, state.value_schema)
    first = entries = StateEntries.of(state, batch.keys, batch.values)
    for transformer in transformers:
        if not len(entries):
            break
        before = entries
        try:
            entries = transformer.filter_or_transform(before)
        except TransformerError as error:
            raise TransformerError(f"{state}: {error}") from error
        except TtlsnapError:
            raise
        except Exception as error:
            raise TransformerError(
                f"{state}: the transformer raised {type(error).__name__}: {error} "
                f"(in {len(before)} entries, the first with key {_first_key(before)})"
            ) from error
        _check_answer(state, before, entries)
    if entries is first:
        writer.copy(batch)
        return len(entries), 0
    rewritten = int(entries.rewritten.sum())
    same = entries.index if not rewritten else entries.index[~entries.rewritten]
    writer.copy(Batch(batch.records.take(same), batch.keys, batch.values))
    if rewritten:
        writer.put(entries.keys.take(entries.rewritten), entries.values.take(entries.rewritten))
    return len(entries), rewritten


def _check_answer(state: StateDescriptor, before: StateEntries, after: object) -> None:
    """A transformer may only answer with entries it was given: nothing else can be told apart from loss."""
    if after is before:
        return
    if not isinstance(after, StateEntries):
        raise TransformerError(f"{state}: the transformer returned {type(after).__name__}, not StateEntries")
    if len(after) and not _is_part(after.index, before.index):
        raise TransformerError(f"{state}: the transformer returned entries that it was not given")


def _is_part(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> bool:
    """Whether ``part`` ascends and has only numbers from ``whole``, which ascends; neither is empty."""
    if (part[1:] <= part[:-1]).any() or part[0] < whole[0] or part[-1] > whole[-1]:
        return False
    without_gaps = whole[-1] - whole[0] == len(whole) - 1
    return bool(without_gaps or np.isin(part, whole).all())


def _first_key(entries: StateEntries) -> str:
    try:
        return repr(entries.filter(np.arange(len(entries)) == 0).key_structs.to_pylist()[0])
    except TtlsnapError:
        return "unknown"


def _recount(staging: Directory, path: str, form: StoreFormat, entries: int, digest: str) -> None:
    """Read the staged file back from disk: it must hold what was written, entry for entry, byte for byte."""
    found = xxhash.xxh3_128()
    where = f"{staging.root}/{path}"

    def pieces(source: Iterator[bytes]) -> Iterator[bytes]:
        for piece in source:
            found.update(piece)
            yield piece

    with staging.open(path) as file:
        count = sum(len(records) for records in read_records(pieces(decompress(file, form.codec, where)), where))
    if count != entries or found.hexdigest() != digest:
        raise CorruptionError(
            f"{where}: {entries} entries were staged and {count} read back, or their bytes differ; "
            "the disk or the memory of this machine cannot be trusted. Nothing was published"
        )
