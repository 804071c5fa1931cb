"""Transformers, factories and converters as users write them, adapted to the base classes where they enter.

A user's factory needs only ``create``, and a transformer only ``filter_or_transform``. Each may have some of the other
members of ``TransformerFactory`` and ``Transformer``. Behind this module, all of them have all members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttlsnap.clock import Clock
from ttlsnap.entries.batch import Int64, Mask, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UsageError
from ttlsnap.transform.protocols import (
    CollectionStrategy,
    Cutoff,
    StateSnapshotTransformer,
    StateSnapshotTransformerFactory,
    TimeSummary,
    Transformer,
    TransformerFactory,
    name_class,
)


def as_factory(given: StateSnapshotTransformerFactory) -> TransformerFactory:
    """Return a user's factory with all members. Raise UsageError if it has no ``create``."""
    if isinstance(given, TransformerFactory):
        return given
    if not callable(getattr(given, "create", None)):
        raise UsageError(
            f"{given!r} is not a transformer factory: it has no create(state, clock). To use a function of (key, "
            "value), pass EntryTransformerFactory(function)"
        )
    return _GivenFactory(given)


def as_transformer(given: StateSnapshotTransformer) -> Transformer:
    """Return a user's transformer with all members."""
    return given if isinstance(given, Transformer) else _GivenTransformer(given)


def describe_rule(given: object) -> str:
    """Return the rule of a user's factory or converter: its own words, or the name of its class."""
    describe = getattr(given, "describe", None)
    return str(describe()) if callable(describe) else name_class(type(given))


@dataclass(frozen=True)
class _GivenFactory(TransformerFactory):
    given: Any

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        made: StateSnapshotTransformer | None = self.given.create(state, clock)
        return made

    def plan(self, states: Sequence[StateDescriptor], clock: Clock) -> Sequence[str | None]:
        own: Callable[..., Sequence[str | None]] = getattr(self.given, "plan", super().plan)
        return own(states, clock)

    def cutoff(self, state: StateDescriptor, clock: Clock) -> Cutoff | None:
        own: Callable[..., Cutoff | None] = getattr(self.given, "cutoff", super().cutoff)
        return own(state, clock)

    def with_names(self, spelled: Callable[[str], str]) -> TransformerFactory:
        own = getattr(self.given, "with_names", None)
        return self if own is None else replace(self, given=own(spelled))

    def describe(self) -> str:
        return describe_rule(self.given)

    @property
    def written_as(self) -> type:
        return type(self.given)

    @property
    def strategy(self) -> CollectionStrategy:
        own: CollectionStrategy = getattr(self.given, "strategy", super().strategy)
        return own

    @property
    def uses_written_times(self) -> bool:
        return bool(getattr(self.given, "uses_written_times", False))

    @property
    def rotation_us(self) -> int | None:
        own: int | None = getattr(self.given, "rotation_us", None)
        return own


class _GivenTransformer(Transformer):
    def __init__(self, given: Any) -> None:
        self._given = given

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        answer: StateEntries = self._given.filter_or_transform(entries)
        return answer

    def moments(self, entries: StateEntries) -> tuple[Int64, Mask] | None:
        own: Callable[..., tuple[Int64, Mask] | None] = getattr(self._given, "moments", super().moments)
        return own(entries)

    def time_summary(self) -> TimeSummary | None:
        own: Callable[..., TimeSummary | None] = getattr(self._given, "time_summary", super().time_summary)
        return own()

    def unclosed(self, gone: StateEntries) -> Mask:
        own: Callable[..., Mask] = getattr(self._given, "unclosed", super().unclosed)
        return own(gone)
