"""Transformers, factories and converters as users write them, adapted to the base classes where they enter.

A user's factory needs only ``create``, and a transformer only ``filter_or_transform``. Each may have some of the other
members of ``TransformerFactory`` and ``Transformer``, but not ``sees`` and ``decides``, which are for the rules of
policies. Behind this module, all of them have all members.
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

_METHODS = ("plan", "cutoff", "with_names", "describe")
"""The methods that a factory may have."""


def as_factory(factory: StateSnapshotTransformerFactory) -> TransformerFactory:
    """Return a user's factory with all members. Raise UsageError if it has no ``create``."""
    if isinstance(factory, type):
        raise UsageError(f"{name_class(factory)} is a class. Pass an object of it: {factory.__name__}(...)")
    if isinstance(factory, TransformerFactory):
        return factory
    if not callable(getattr(factory, "create", None)):
        raise UsageError(
            f"{factory!r:.100} is not a transformer factory: it has no create(state, clock). For a TTL, pass "
            "TtlTransformerFactory(StateTtlConfig.of('7d'), timestamp='value.at'); for a function of (key, value), "
            "EntryTransformerFactory(function)"
        )
    for name in _METHODS:
        if not callable(member := getattr(factory, name, abs)):
            raise UsageError(
                f"{name_class(type(factory))} has the attribute {name} = {member!r:.100}, but ttlsnap calls {name} as "
                "a method. Give the attribute another name"
            )
    return _GivenFactory(factory)


def as_transformer(transformer: StateSnapshotTransformer) -> Transformer:
    """Return a user's transformer with all members."""
    return transformer if isinstance(transformer, Transformer) else _GivenTransformer(transformer)


def describe_rule(rule: object) -> str:
    """Return the rule of a user's factory or converter: its own words, or the name of its class."""
    describe = getattr(rule, "describe", None)
    return str(describe()) if callable(describe) else name_class(type(rule))


@dataclass(frozen=True)
class _GivenFactory(TransformerFactory):
    given: Any

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        transformer: StateSnapshotTransformer | None = self.given.create(state, clock)
        return transformer

    def plan(self, states: Sequence[StateDescriptor], clock: Clock) -> Sequence[str | None]:
        method: Callable[..., Sequence[str | None]] = getattr(self.given, "plan", super().plan)
        return method(states, clock)

    def cutoff(self, state: StateDescriptor, clock: Clock) -> Cutoff | None:
        method: Callable[..., Cutoff | None] = getattr(self.given, "cutoff", super().cutoff)
        return method(state, clock)

    def with_names(self, spelled: Callable[[str], str]) -> TransformerFactory:
        method = getattr(self.given, "with_names", None)
        return self if method is None else replace(self, given=method(spelled))

    def describe(self) -> str:
        return describe_rule(self.given)

    @property
    def written_as(self) -> type:
        return type(self.given)

    @property
    def strategy(self) -> CollectionStrategy:
        own_strategy: CollectionStrategy = getattr(self.given, "strategy", super().strategy)
        return own_strategy

    @property
    def uses_written_times(self) -> bool:
        return bool(getattr(self.given, "uses_written_times", False))

    @property
    def rotation_us(self) -> int | None:
        own_rotation_us: int | None = getattr(self.given, "rotation_us", None)
        return own_rotation_us


class _GivenTransformer(Transformer):
    def __init__(self, transformer: Any) -> None:
        self._transformer = transformer

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        answer: StateEntries = self._transformer.filter_or_transform(entries)
        return answer

    def moments(self, entries: StateEntries) -> tuple[Int64, Mask] | None:
        method: Callable[..., tuple[Int64, Mask] | None] = getattr(self._transformer, "moments", super().moments)
        return method(entries)

    def time_summary(self) -> TimeSummary | None:
        method: Callable[..., TimeSummary | None] = getattr(self._transformer, "time_summary", super().time_summary)
        return method()

    def unclosed(self, gone: StateEntries) -> Mask:
        method: Callable[..., Mask] = getattr(self._transformer, "unclosed", super().unclosed)
        return method(gone)
