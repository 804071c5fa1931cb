"""The transformers of one state, applied to its entries batch by batch, with checks of their answers, and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ttlsnap.amounts import quantity
from ttlsnap.clock import Clock
from ttlsnap.documents import ReadableDocument
from ttlsnap.entries.ages import AgeBuckets, AgeCounts
from ttlsnap.entries.batch import Int64, Mask, RowEntries, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import USERS_ERRORS, TransformerError, TtlsnapError
from ttlsnap.quoting import quote
from ttlsnap.transform.adapters import as_transformer
from ttlsnap.transform.protocols import CollectionStrategy, TimeSummary, Transformer, TransformerFactory
from ttlsnap.user_code import place_of_error

Entries = TypeVar("Entries", bound=StateEntries)
Answer = TypeVar("Answer")
Watch = Callable[[int, Transformer, StateEntries, StateEntries], None]
"""A function that gets the number of a factory, its transformer, and a batch before and after it."""


@dataclass(frozen=True)
class StateResult(ReadableDocument):
    """The counts of the entries of one state in a partition.

    ``unmatched`` is the number of a join's dropped rows that had not matched yet. ``shown`` are some of the dropped and
    rewritten entries, as JSON. ``ages`` counts the entries with a time by their age, if somebody wants to know.
    """

    state: str
    entries: int = 0
    kept: int = 0
    dropped: int = 0
    rewritten: int = 0
    unmatched: int = 0
    times: TimeSummary | None = None
    shown: tuple[Mapping[str, Any], ...] = ()
    ages: AgeCounts | None = None


def create(factory: TransformerFactory, state: StateDescriptor, clock: Clock) -> Transformer | None:
    """Return the factory's transformer for ``state``. Raise its errors as TransformerError."""
    try:
        transformer = factory.create(state, clock)
    except TtlsnapError:
        raise
    except USERS_ERRORS as error:
        name = factory.written_as.__name__
        raised = f"{name}.create raised {type(error).__name__}{place_of_error(error)}"
        raise TransformerError(f"{state}: {raised}: {error}") from error
    return None if transformer is None else as_transformer(transformer)


class StateTransformers(Generic[Entries]):
    """The transformers of one state in one partition, and their counts; with ``ages`` also those by age."""

    def __init__(
        self,
        state: StateDescriptor,
        factories: Sequence[TransformerFactory],
        clock: Clock,
        watch: Watch | None = None,
        *,
        ages: bool = False,
    ) -> None:
        self._state, self._watch, self._counts_ages = state, watch, ages
        self._ages: AgeCounts | None = None
        self._buckets: AgeBuckets | None = None
        self._transformers = [
            (transformer, state.kind == "list" and sees_only_first(factory), number)
            for number, factory in enumerate(factories)
            if (transformer := create(factory, state, clock)) is not None
        ]
        self._entries = self._entries_left = self._rewritten = 0

    def run(self, first: Entries) -> Entries:
        """Return the answer of the transformers, one after another, to a batch."""
        entries: StateEntries = first
        for transformer, stops, number in self._transformers:
            if not len(entries):
                break
            answer = _filter_or_transform(transformer, entries)
            if stops and answer is not entries:
                all_keys, rows = cast(RowEntries, first).keys, cast(RowEntries, entries)
                # Within a batch, values of one list share the bytes of their key.
                lists = np.cumsum(np.append(False, all_keys.start[1:] != all_keys.start[:-1]))
                answer = rows.up_to_first_of_each_list(cast(RowEntries, answer), lists)
            if self._watch is not None:
                self._watch(number, transformer, entries, answer)
            entries = answer
        self._entries += len(first)
        self._entries_left += len(entries)
        self._rewritten += int(entries.rewritten.sum())
        if self._counts_ages and len(first):
            self._count_ages(first)
        return cast(Entries, entries)

    def _count_ages(self, entries: Entries) -> None:
        times, moments = self._times(), self.moments(entries)
        if times is None or moments is None:
            return
        if self._buckets is None:
            cutoff_age = None if times.cutoff_us is None else times.now_us - times.cutoff_us
            self._buckets = AgeBuckets(times.now_us, cutoff_age)
        known_moments = moments[0][~moments[1]] if moments[1].any() else moments[0]
        self._ages = AgeCounts.merged((self._ages, AgeCounts.of(self._buckets, known_moments)))

    def moments(self, entries: Entries) -> tuple[Int64, Mask] | None:
        """Return the times by which transformers decide, and which entries have none; None if none uses a time."""
        combined: tuple[Int64, Mask] | None = None
        for transformer, *_ in self._transformers:
            moments_of_transformer = _answer(transformer.moments, entries)
            if moments_of_transformer is None:
                continue
            combined = (
                moments_of_transformer
                if combined is None
                else (
                    np.where(combined[1], moments_of_transformer[0], combined[0]),
                    combined[1] & moments_of_transformer[1],
                )
            )
        return combined

    @property
    def changed(self) -> bool:
        """Whether anything was dropped or rewritten."""
        return self._entries != self._entries_left or self._rewritten > 0

    def result(self) -> StateResult:
        """Return the counts of all batches."""
        return StateResult(
            state=self._state.state,
            entries=self._entries,
            kept=self._entries_left - self._rewritten,
            dropped=self._entries - self._entries_left,
            rewritten=self._rewritten,
            times=self._times(),
            ages=self._ages,
        )

    def _times(self) -> TimeSummary | None:
        """Return the times of the first transformer that uses one."""
        times = [
            summary for transformer, *_ in self._transformers if (summary := transformer.time_summary()) is not None
        ]
        if len(times) > 1:
            times[0] = replace(times[0], cutoff_us=None)  # each has its own
        return times[0] if times else None


def sees_only_first(factory: TransformerFactory) -> bool:
    """Return whether the factory's transformers decide on the values of a list only up to the first one they keep."""
    return CollectionStrategy.parse(factory.strategy) is CollectionStrategy.STOP_ON_FIRST_INCLUDED


def _filter_or_transform(transformer: Transformer, before: StateEntries) -> StateEntries:
    after = _answer(transformer.filter_or_transform, before)
    _check_answer(before.state, before, after)
    return after


def _answer(method: Callable[[StateEntries], Answer], before: StateEntries) -> Answer:
    """Return the answer of a transformer's method. Raise its errors as TransformerError."""
    state = before.state
    try:
        return method(before)
    except TransformerError as error:
        raise TransformerError(f"{state}: " + error.text) from error
    except TtlsnapError:
        raise
    except USERS_ERRORS as error:
        raise TransformerError(
            f"{state}: the transformer raised {type(error).__name__}{place_of_error(error)}: "
            + quote(error)
            + f" (in {quantity(len(before), 'entry', 'entries')}, the first with key "
            + quote(_first_key(before))
            + ")"
        ) from error


def _check_answer(state: StateDescriptor, before: StateEntries, after: Any) -> None:
    """Raise TransformerError for an answer with entries that the transformer did not receive: those could be a loss."""
    if after is before:
        return
    if type(after) is not type(before):
        raise TransformerError(
            f"{state}: the transformer returned {type(after).__name__}. Return the StateEntries that it received, or "
            "the result of their methods"
        )
    if len(after) and not (_is_part(after.index, before.index) and after.are_of(before)):
        raise TransformerError(f"{state}: the transformer returned entries that it did not receive")


def _is_part(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> bool:
    """Return whether ``part`` ascends and has only numbers of ``whole``, which ascends; neither is empty."""
    if (part[1:] <= part[:-1]).any() or part[0] < whole[0] or part[-1] > whole[-1]:
        return False
    without_gaps = whole[-1] - whole[0] == len(whole) - 1
    return bool(without_gaps or np.isin(part, whole).all())


def _first_key(entries: StateEntries) -> str:
    try:
        return repr(entries.filter(np.arange(len(entries)) == 0).key_structs.to_pylist()[0])
    except TtlsnapError:
        return "unknown"
