"""The work on one partition: scan, transform, stage, and count what was staged.

``compact_partition`` is the one function that every engine runs, one partition at a time on one thread. It takes
and gives plain data, so that it can cross to another process or machine. Nothing is written but its own staged
files and scratch, and in a dry run nothing is left of either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ttlsnap import errors
from ttlsnap.checkpoint import layout
from ttlsnap.clock import Clock
from ttlsnap.entries import StateEntries
from ttlsnap.errors import CorruptionError, StorageError, TransformerError, TtlsnapError
from ttlsnap.filesystem import open_directory
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import Batch, Rewrite, SnapshotWriter, StagedFile, Staging, StateStore
from ttlsnap.stores.lineage import Lineage
from ttlsnap.transform import (
    ReportsTimes,
    StateSnapshotTransformer,
    StateSnapshotTransformerFactory,
    TimeSummary,
)
from ttlsnap.unsaferow.check import check_rows


@dataclass(frozen=True)
class PartitionTask:
    """One partition of one store to compact.

    ``states`` are those of its states that a transformer may look at; the others are copied as they are. New files are
    staged below ``staged_below`` in ``staging_root``; None in a dry run. ``scratch`` is the local folder for the work.
    """

    root: str
    operator: int
    store: str
    partition: int
    states: tuple[StateDescriptor, ...]
    lineage: Lineage
    state_store: StateStore
    factories: tuple[StateSnapshotTransformerFactory, ...]
    clock: Clock
    staging_root: str
    staged_below: str | None
    rewrite: Rewrite = "auto"
    scratch: str | None = None

    def __str__(self) -> str:
        return str(self.states[0] if len(self.states) == 1 else replace(self.states[0], state="default"))

    @property
    def directory(self) -> str:
        """The partition's folder."""
        return f"{self.root}/{layout.store_directory(self.operator, self.partition, self.store)}"


@dataclass(frozen=True)
class StateResult:
    """What became of the entries of one state in a partition."""

    state: str
    entries: int = 0
    kept: int = 0
    dropped: int = 0
    rewritten: int = 0
    times: TimeSummary | None = None

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> StateResult:
        """The result that was made plain values."""
        times = document["times"]
        return cls(**{**document, "times": TimeSummary(**times) if times else None})


@dataclass(frozen=True)
class PartitionResult:
    """What became of a partition: counts of entries for each state, bytes on disk before and after.

    ``staged`` are the new files; None when nothing changed (the partition keeps its files) or in a dry run. ``rewrite``
    says how it was written, or would be. ``reused`` and ``superseded`` are as in ``Written``.
    ``failure`` is an error's class name and message; the rest then means nothing.
    """

    operator: int
    store: str
    partition: int
    states: tuple[StateResult, ...] = ()
    bytes_before: int = 0
    bytes_after: int = 0
    staged: tuple[StagedFile, ...] | None = None
    rewrite: Rewrite | None = None
    reused: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    failure: tuple[str, str] | None = None

    @property
    def entries(self) -> int:
        """All that was looked at."""
        return sum(state.entries for state in self.states)

    @property
    def dropped(self) -> int:
        """All that was dropped."""
        return sum(state.dropped for state in self.states)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for crossing to another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> PartitionResult:
        """The result that ``to_json`` made the document of."""
        facts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
        }
        facts["states"] = tuple(StateResult.from_json(state) for state in facts["states"])
        if facts["staged"] is not None:
            facts["staged"] = tuple(StagedFile(**file) for file in facts["staged"])
        return cls(**facts)

    def raise_failure(self) -> None:
        """Raise the error that stopped the partition, if one did."""
        if self.failure is not None:
            kind = getattr(errors, self.failure[0], TtlsnapError)
            raise kind(self.failure[1])


Progress = Callable[[int, int], None]
"""Told, as a partition is worked on, how many more entries were seen and how many of them dropped."""


def compact_partition(task: PartitionTask, progress: Progress | None = None) -> PartitionResult:
    """Compact one partition; an error of ttlsnap's comes back as the result's ``failure``."""
    result = PartitionResult(task.operator, task.store, task.partition, bytes_before=task.lineage.size)
    try:
        return _compact(task, result, progress or (lambda entries, dropped: None))
    except TtlsnapError as error:
        message = str(error) if str(task) in str(error) else f"{task}: {error}"
        if isinstance(error, CorruptionError) and task.root not in message:
            message = f"{task.directory}, version {task.lineage.version}: {message}"
        return replace(result, failure=(type(error).__name__, message))
    except MemoryError:
        message = (
            f"{task}: there is not enough memory for {task.directory}, whose {task.lineage.size:,} bytes on disk "
            "swell to more. Nothing was published. Try a smaller --parallelism, or a machine with more memory"
        )
        return replace(result, failure=(TtlsnapError.__name__, message))


def _compact(task: PartitionTask, result: PartitionResult, progress: Progress) -> PartitionResult:
    states = {state.state: _State(state, task.factories, task.clock) for state in task.states}
    source, staging = open_directory(task.root), None
    if task.staged_below is not None:
        staging = Staging(open_directory(task.staging_root), task.staged_below)
    with (
        task.state_store.open(source, task.lineage, task.scratch) as partition,
        partition.writer(staging, task.rewrite) as writer,
    ):
        for batch in partition.batches(states):
            state = states.get(batch.state)
            if state is None:
                writer.keep(batch)
                continue
            left = state.transform(batch, writer)
            progress(len(batch.keys), len(batch.keys) - left)
        changed = any(state.entries != state.left or state.rewritten for state in states.values())
        written = writer.finish() if changed else None
    result = replace(result, states=tuple(state.result() for state in states.values()))
    if written is None:
        return replace(result, bytes_after=result.bytes_before)
    return replace(
        result,
        bytes_after=written.size,
        staged=written.files or None,
        rewrite=written.rewrite,
        reused=written.reused,
        superseded=written.superseded,
    )


def settle(task: PartitionTask, result: PartitionResult) -> PartitionResult:
    """Give what a task staged the names it is to have; raises StorageError if it is not what the task left."""
    if result.staged is None or task.staged_below is None:
        return result
    files = open_directory(task.staging_root)
    staging = Staging(files, task.staged_below)
    for file in result.staged:
        found = files.stat(file.path)
        if found is None or found.size != file.size:
            raise StorageError(
                f"{files.root}/{file.path} is {'gone' if found is None else f'{found.size:,} bytes long'}, where a "
                f"worker wrote {file.size:,} bytes: do all workers see the same storage? Nothing was published"
            )
        files.rename(file.path, staging.place(file.target))
    return replace(result, staged=tuple(replace(file, path=staging.place(file.target)) for file in result.staged))


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


class _State:
    """One state's transformers in one partition, and what they did."""

    def __init__(
        self, state: StateDescriptor, factories: Sequence[StateSnapshotTransformerFactory], clock: Clock
    ) -> None:
        self._state = state
        self._transformers = [t for factory in factories if (t := create(factory, state, clock)) is not None]
        self.entries = self.left = self.rewritten = 0

    def transform(self, batch: Batch, writer: SnapshotWriter) -> int:
        """Run one batch through the transformers and into ``writer``; how many entries are left."""
        state = self._state
        check_rows(batch.keys, state.key_schema)
        check_rows(batch.values, state.value_schema)
        first = entries = StateEntries.of(state, batch.keys, batch.values)
        for transformer in self._transformers:
            if not len(entries):
                break
            entries = _filter_or_transform(transformer, entries)
        if entries is first:
            writer.keep(batch)
        else:
            writer.change(batch, entries.index, entries.rewritten, entries.values)
        self.entries += len(first)
        self.left += len(entries)
        self.rewritten += int(entries.rewritten.sum())
        return len(entries)

    def result(self) -> StateResult:
        times = [t.time_summary() for t in self._transformers if isinstance(t, ReportsTimes)]
        return StateResult(
            state=self._state.state,
            entries=self.entries,
            kept=self.left - self.rewritten,
            dropped=self.entries - self.left,
            rewritten=self.rewritten,
            times=times[0] if times else None,
        )


def _filter_or_transform(transformer: StateSnapshotTransformer, before: StateEntries) -> StateEntries:
    state = before.state
    try:
        after = transformer.filter_or_transform(before)
    except TransformerError as error:
        raise TransformerError(f"{state}: {error}") from error
    except TtlsnapError:
        raise
    except Exception as error:
        raise TransformerError(
            f"{state}: the transformer raised {type(error).__name__}: {error} "
            f"(in {len(before)} entries, the first with key {_first_key(before)})"
        ) from error
    _check_answer(state, before, after)
    return after


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
