"""Rules as transformer factories: each sees the entries with its key prefix, in the states that it selects.

If several rules match an entry, the first one applies. So a rule sees a state only if no earlier rule takes the whole
state, and it keeps the entries that an earlier rule takes by their prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.amounts import quantity
from ttlsnap.clock import Clock
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.entries.batch import Int64, Mask, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UsageError
from ttlsnap.maintenance.policy import PolicyRule, TargetPolicy
from ttlsnap.operators.registry import AnyOf
from ttlsnap.quoting import quotes_nothing
from ttlsnap.schema import types as T
from ttlsnap.schema.fields import Field, all_fields
from ttlsnap.transform.adapters import as_factory
from ttlsnap.transform.chain import create
from ttlsnap.transform.protocols import CollectionStrategy, Cutoff, TimeSummary, Transformer, TransformerFactory

Prefix = tuple[str | int | bool, ...]

_TYPES: dict[type, tuple[type[T.DataType], ...]] = {
    str: (T.StringType,),
    int: (T.ByteType, T.ShortType, T.IntegerType, T.LongType),
    bool: (T.BooleanType,),
}


def rule_factories(rules: Sequence[PolicyRule]) -> list[TransformerFactory]:
    """Return the factories of all rules, in their order."""
    return [
        _RuleFactory(as_factory(factory), rule, tuple(rules[:number]))
        for number, rule in enumerate(rules)
        for factory in rule.factories
    ]


def options_of(policy: TargetPolicy) -> CompactOptions:
    """Return the options for a checkpoint. ``now`` is that of the rules if they have the same one."""
    nows = {rule.now for rule in policy.rules}
    now = nows.pop() if len(nows) == 1 else policy.options.now
    selections, names = (tuple(getattr(rule, name) for rule in policy.rules) for name in ("selection", "name"))
    return replace(policy.options, now=now, selection=AnyOf(selections, rules=names))


@dataclass(frozen=True)
class _RuleFactory(TransformerFactory):
    """A ``factory`` that is limited to the entries of its ``rule`` that ``earlier`` rules do not take."""

    factory: TransformerFactory
    rule: PolicyRule
    earlier: tuple[PolicyRule, ...]

    @property
    def strategy(self) -> CollectionStrategy:
        return self.factory.strategy

    def describe(self) -> str:
        """Return the name of the rule, and what its factory does."""
        return f"{self.rule.name}: {self.factory.describe()}"

    def plan(self, states: Sequence[StateDescriptor], clock: Clock) -> list[str | None]:
        """See ``TransformerFactory``. A rule that matches no state is an error: its state would continue to grow."""
        states_of_rule = [state for state in states if self._is_about(state)]
        if not states_of_rule:
            names = ", ".join(map(str, states)) or "the states"
            raise UsageError(quotes_nothing(f"{self.rule.name} matches none of {names}"))
        reasons = self.factory.plan(states_of_rule, self._at(clock))
        for state in states_of_rule:
            _columns(state, self.rule.key_prefix)
        reason_of_state = dict(zip(map(str, states_of_rule), reasons, strict=True))
        return [reason_of_state.get(str(state)) for state in states]

    def create(self, state: StateDescriptor, clock: Clock) -> Transformer | None:
        if not self._is_about(state):
            return None
        transformer = create(self.factory, state, self._at(clock))
        prefixes_taken = [rule.key_prefix for rule in self.earlier if rule.selection.includes(state)]
        if transformer is None or not (prefixes_taken or self.rule.key_prefix):
            return transformer
        return _Confined(
            transformer,
            begins_with(state, self.rule.key_prefix),
            [begins_with(state, prefix) for prefix in prefixes_taken],
        )

    @property
    def uses_written_times(self) -> bool:
        return self.factory.uses_written_times

    @property
    def rotation_us(self) -> int | None:
        return self.rule.every_us

    def with_names(self, spelled: Callable[[str], str]) -> TransformerFactory:
        return replace(self, factory=self.factory.with_names(spelled))

    def cutoff(self, state: StateDescriptor, clock: Clock) -> Cutoff | None:
        """See ``TransformerFactory``; None if the rule is for some of the entries, or earlier rules take some."""
        if self.rule.key_prefix or any(rule.selection.includes(state) for rule in self.earlier):
            return None
        return self.factory.cutoff(state, self._at(clock)) if self._is_about(state) else None

    def _is_about(self, state: StateDescriptor) -> bool:
        is_taken = any(rule.selection.includes(state) and not rule.key_prefix for rule in self.earlier)
        return self.rule.selection.includes(state) and not is_taken

    def _at(self, clock: Clock) -> Clock:
        """Return the clock with the rule's own time. With buckets, it moves only when the oldest one is dropped."""
        moment, rotation_us = self.rule.now_us, self.rule.every_us
        if moment is not None:
            source = "wall" if self.rule.now == "wall" else "given"
            clock = replace(clock, event_us=moment, processing_us=moment, source=source, ahead=None)
        if rotation_us is not None:
            event = None if clock.event_us is None else find_rotation(clock.event_us, rotation_us)
            clock = replace(clock, event_us=event, processing_us=find_rotation(clock.processing_us, rotation_us))
        return clock


def find_rotation(now: int, rotation_us: int) -> int:
    """Return the last time before the last rotation of buckets; a bucket is filled for ``rotation_us``.

    All are microseconds. At the returned time, entries that have outlived n - 1 buckets were in the n-th one. This is
    Storm's ``RotatingMap``, whose entries live between a TTL and n / (n - 1) of it.
    """
    return now // rotation_us * rotation_us - 1


class _Confined(Transformer):
    """A transformer that gives some of its entries to another ``transformer``, and keeps the others."""

    def __init__(
        self,
        transformer: Transformer,
        has_prefix: Callable[[StateEntries], Mask],
        are_taken: Sequence[Callable[[StateEntries], Mask]],
    ) -> None:
        self.transformer, self._has_prefix, self._are_taken = transformer, has_prefix, are_taken

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        is_seen = self.sees(entries)
        if not is_seen.any():
            return entries
        seen_entries = entries.filter(is_seen)
        answered_entries = self.transformer.filter_or_transform(seen_entries)
        if answered_entries is seen_entries:
            return entries
        if seen_entries is entries:
            return answered_entries
        places = np.searchsorted(entries.index, answered_entries.index)
        is_kept = ~is_seen
        is_kept[places] = True
        is_changed = np.zeros(len(entries), np.bool_)
        is_changed[places[answered_entries.rewritten]] = True
        new_values = answered_entries.filter(answered_entries.rewritten).value_structs
        return entries.replace_values(new_values, is_changed).filter(is_kept)

    def moments(self, entries: StateEntries) -> tuple[Int64, Mask]:
        """See ``Transformer``; entries that the other transformer does not see have no time."""
        is_seen = self.sees(entries)
        moments_and_nulls = self.transformer.moments(entries) if is_seen.any() else None
        if moments_and_nulls is None:
            return np.zeros(len(entries), np.int64), np.ones(len(entries), np.bool_)
        return moments_and_nulls[0], moments_and_nulls[1] | ~is_seen

    def time_summary(self) -> TimeSummary | None:
        summary = self.transformer.time_summary()
        return replace(summary, cutoff_us=None) if summary is not None else None

    def sees(self, entries: StateEntries) -> Mask:
        is_seen = self._has_prefix(entries)
        for is_taken in self._are_taken:
            is_seen &= ~is_taken(entries)
        return is_seen

    @property
    def decides(self) -> Transformer:
        return self.transformer


def begins_with(state: StateDescriptor, prefix: Prefix) -> Callable[[StateEntries], Mask]:
    """Return a function that marks entries whose key begins with ``prefix``, the values of its first columns.

    If the last value is text, the column only has to begin with it. Raise UsageError if the key has fewer columns, or
    values of other types.
    """
    columns = _columns(state, prefix)

    def mask(entries: StateEntries) -> Mask:
        has_prefix: Mask = np.ones(len(entries), np.bool_)
        for number, (field, value) in enumerate(columns):
            column = entries.column(field)
            if isinstance(value, str) and number == len(columns) - 1:
                has_value = pc.starts_with(column, value)
            else:
                has_value = pc.equal(column, pa.scalar(value, column.type))
            has_prefix &= np.asarray(has_value.fill_null(False))
        return has_prefix

    return mask


def _columns(state: StateDescriptor, prefix: Prefix) -> list[tuple[Field, str | int | bool]]:
    """Return the key's first columns, with the columns of structs one by one, and their wanted values."""
    fields = [
        field
        for field in all_fields(state.key_schema, state.value_schema)
        if field.side == "key" and not isinstance(field.type, T.StructType)
    ]
    if len(prefix) > len(fields):
        raise UsageError(
            f"key_prefix has {quantity(len(prefix), 'value')}, and the key of {state} {quantity(len(fields), 'column')}"
        )
    columns = list(zip(fields, prefix, strict=False))
    for field, value in columns:
        if not isinstance(field.type, _TYPES[type(value)]):
            raise UsageError(
                f"key_prefix: {value!r} does not fit {field.name} of {state}, a {field.type.simple_string}"
            )
    return columns
