"""The plan of a schema evolution, found from two contracts.

Each new column of a state gets its value from an old column, or a constant. Names identify columns, except where the
plans of both queries say more: an aggregate is known by what it computes, and so is a grouping column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, starmap
from operator import attrgetter
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.check.comparison import Comparison
from ttlsnap.check.expressions import are_same, differ_by_types, find_retyped, is_session, is_window
from ttlsnap.check.functions import find_changed_parts
from ttlsnap.check.key_order import hashes_days, normalizes_keys, with_keys_for
from ttlsnap.check.operators import AGGREGATIONS, USERS_OWN
from ttlsnap.check.query_plan import QueryPlan, can_compare_plans, pair_plans
from ttlsnap.check.settings import LAYOUTS
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.contract import Contract, OperatorContract, StateContract, StoreContract
from ttlsnap.contract.functions import NAMES
from ttlsnap.contract.model import AggregateBuffer
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.place import Place
from ttlsnap.entries.timestamps import TimestampField, timestamp_field
from ttlsnap.errors import UsageError
from ttlsnap.migration.evolution import FLOATS, HASHES, Evolution, StateEvolution, Step
from ttlsnap.migration.expiry import ExpiryChange
from ttlsnap.migration.struct_changes import Constant, StructChange, Take, normalizing
from ttlsnap.new_query.answers import (
    NEW_NEEDS_QUERY,
    NO_ANSWERS,
    NOW,
    OLD_NEEDS_QUERY,
    SAME_VERSIONS,
    Answers,
    UnrepairedFinding,
)
from ttlsnap.new_query.schemas import Matcher, Source, have_other_order, is_key
from ttlsnap.operators import deduplication, group_state, join, session_window, transform_with_state
from ttlsnap.printable import shell_word
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.types import (
    CalendarIntervalType,
    DataType,
    DecimalType,
    StructField,
    StructType,
    contains,
    physical,
)
from ttlsnap.schema.units import format_duration
from ttlsnap.transform.adapters import describe_rule
from ttlsnap.transform.converters import ConvertsValues

_OTHER_JOIN_KEYS = "the join has other keys, which buffered rows do not have"
_PLANNED_KEYS = (*AGGREGATIONS, join.NAME)


def find_evolution(
    old: Contract,
    new: Contract,
    answers: Answers = NO_ANSWERS,
    now_ms: int = 0,
    converters: Sequence[ConvertsValues] = (),
) -> tuple[Evolution, list[UnrepairedFinding]]:
    """Return how the state of ``old`` becomes that of ``new``, and for which differences there is no way.

    ``now_ms`` is the time from which the age of values without a time is counted, if they get a TTL. The
    ``converters`` give values in the new schema.

    Raise UsageError for an answer that belongs to no difference, or has the wrong type.
    """
    new = with_keys_for(old, new)
    comparison = Comparison(old=old, new=new, renamed=answers.renamed)
    matcher = Matcher(answers, knows_nullability=comparison.knows_nullability)
    states: list[StateEvolution] = []
    prefixes: dict[tuple[int, str], int] = {}
    added: dict[tuple[int, str], tuple[ColumnFamilySchema, ...]] = {}
    removed: dict[tuple[int, str], tuple[str, ...]] = {}
    modes: dict[int, tuple[str | None, str | None]] = {}
    names = [[operator.name for operator in contract.operators] for contract in (old, new)]
    if len(names[0]) != len(names[1]) or any(
        old_name not in (None, new_name) for old_name, new_name in zip(*names, strict=True)
    ):
        texts = [", ".join(name or "unnamed" for name in operator_names) for operator_names in names]
        return Evolution(), [UnrepairedFinding(Place(), f"the operators were {texts[0]}, and are {texts[1]}")]
    for old_operator, new_operator in zip(old.operators, new.operators, strict=True):
        operator = _Operator(comparison, matcher, old_operator, new_operator, now_ms, converters)
        states += operator.find()
        added |= operator.added
        removed |= operator.removed
        modes |= operator.modes
        for old_store, new_store in zip(old_operator.stores, new_operator.stores, strict=False):
            if (
                old_store.prefix_key_columns != new_store.prefix_key_columns
                and old_operator.name == session_window.NAME
            ):
                prefixes[new_operator.id, old_store.name] = new_store.prefix_key_columns
    unused = {*answers.fills, *answers.drops, *answers.births, *(name for pair in answers.swaps for name in pair)}
    unused -= matcher.used | ({NOW} if matcher.used.intersection(answers.births) else set())
    if unused:
        name = sorted(unused)[0]
        message = f"{name} is not a field that differs between the two queries. These differ: {_list_places(matcher)}"
        new_aggregates = [step.new for step in matcher.steps if step.change == "add" and _is_whole(step.place)]
        if name in answers.fills and new_aggregates:
            message += (
                ". --fill is only for columns. A new aggregate begins without rows: "
                f"{', '.join(map(str, new_aggregates))}"
            )
        raise UsageError(message)
    # Linked states have the same keys, and each of them would ask the same.
    obstacles = {(obstacle.place.operator, obstacle.message): obstacle for obstacle in reversed(matcher.obstacles)}
    evolution = Evolution(
        tuple(states), tuple(matcher.steps), prefixes=prefixes, added=added, removed=removed, modes=modes
    )
    return evolution, list(obstacles.values())[::-1]


def _list_places(matcher: Matcher) -> str:
    names = [
        # Aggregates have no field of their own in a plan. Their text names them.
        str(step.old or step.new) if _is_whole(step.place) and step.change in ("add", "drop") else str(step.place)
        for step in matcher.steps
        if step.place.field and not (_is_whole(step.place) and step.change == "reorder")
    ]
    names += [str(obstacle.place) for obstacle in matcher.obstacles if obstacle.place.field]
    return ", ".join(dict.fromkeys(names)) or "none"


def _is_whole(place: Place) -> bool:
    """Return whether a place is a whole key or value."""
    return place.field in ("key", "value")


@dataclass(frozen=True)
class _Part:
    """Columns of a state that the query computes by one expression, its ``text``. The first has the number ``first``.

    ``new_text`` is the expression of the old query with the new names of columns and functions, and the ``text`` for a
    part of the new query.
    ``layout`` is what two parts need in common, apart from types, so that one can become the other.
    """

    text: str
    new_text: str
    first: int
    fields: tuple[StructField, ...]
    layout: tuple[Any, ...] = ()


def _parts_of_buffers(
    buffers: Sequence[AggregateBuffer], value: StructType, new_text: Callable[[str], str] = str
) -> list[_Part]:
    """Return the parts that aggregates have in a value, of which their columns are the last ones."""
    sizes = [len(buffer.columns) for buffer in buffers]
    first_columns = accumulate(sizes, initial=len(value) - sum(sizes))
    parts = []
    for buffer, first_column, size in zip(buffers, first_columns, sizes, strict=False):
        fields = value.fields[first_column : first_column + size]
        parts.append(_Part(buffer.aggregate, new_text(buffer.aggregate), first_column, fields, buffer.layout))
    return parts


class _Operator:
    def __init__(
        self,
        comparison: Comparison,
        matcher: Matcher,
        old: OperatorContract,
        new: OperatorContract,
        now_ms: int,
        converters: Sequence[ConvertsValues],
    ) -> None:
        self.both, self.matcher, self.old, self.new, self.now_ms = comparison, matcher, old, new, now_ms
        self.converters = converters
        self.added: dict[tuple[int, str], tuple[ColumnFamilySchema, ...]] = {}
        self.removed: dict[tuple[int, str], tuple[str, ...]] = {}
        self.modes: dict[int, tuple[str | None, str | None]] = {}
        self.place = Place(operator=new.id, operator_name=new.name or old.name)
        self.plans = None
        if old.plan is not None and new.plan is not None and can_compare_plans(comparison, old, new):
            self.plans = pair_plans(comparison, old, new)

    def find(self) -> list[StateEvolution]:
        before, after = ({store.name: store for store in operator.stores} for operator in (self.old, self.new))
        if before.keys() != after.keys():
            self._refuse(self.place, f"its stores were {', '.join(before)}, and are {', '.join(after)}")
            return []
        for name in (name for name, operators in LAYOUTS.items() if self.place.operator_name in operators):
            formats = [contract.conf.get(name) for contract in (self.both.old, self.both.new)]
            if None not in formats and formats[0] != formats[1]:
                self._refuse(
                    self.place,
                    f"the checkpoint has {name}={formats[0]}, and NEW has {formats[1]}. Create NEW with --conf "
                    f"{name}={formats[0]}",
                )
                return []
        return [state for name in before for state in self._find_in_store(before[name], after[name])]

    def _find_in_store(self, old: StoreContract, new: StoreContract) -> list[StateEvolution]:
        place = self.place.at(store=old.name)
        if old.states is None or new.states is None:
            self._refuse(place, "its schema is not recorded")
            return []
        before, after = ({state.name: state for state in store.states or ()} for store in (old, new))
        if self.place.operator_name in transform_with_state.NAMES:
            return self._find_variables(place, before, after)
        if before.keys() != after.keys():
            self._refuse(place, f"its states were {', '.join(before)}, and are {', '.join(after)}")
            return []
        return [
            evolution
            for name in before
            if (evolution := self._find_state(place.at(state=name), before[name], after[name])) is not None
        ]

    def _find_variables(
        self, place: Place, before: Mapping[str, StateContract], after: Mapping[str, StateContract]
    ) -> list[StateEvolution]:
        """Return how the states of transformWithState change.

        Spark keeps the values of a variable that is gone until the code calls ``deleteIfExists``.
        """
        variable_names = [
            [
                state_name
                for state_name, contract in states.items()
                if contract.role == "primary" and contract.kind != "timer"
            ]
            for states in (before, after)
        ]
        names = {name: name for name in variable_names[0] if name in after}
        for new in variable_names[1]:
            for old in variable_names[0] if new not in before else ():
                if old in names or before[old].kind != after[new].kind:
                    continue
                is_only = (
                    sum(
                        before[removed_name].kind == before[old].kind
                        for removed_name in variable_names[0]
                        if removed_name not in after
                    )
                    == 1
                )
                if (is_only and self._has_same_code) or self.matcher.ask_if_same(place, old, new) is not False:
                    names[old] = new
                    self.matcher.steps.append(Step("rename-state", place.at(state=new), old, new))
                    break
                # The values stay in the state, as after a start of the query without the variable.
                self.matcher.steps.append(Step("drop-state", place.at(state=old), old, None))
        expiries = {old: self._find_expiry(place.at(state=new), before[old], after[new]) for old, new in names.items()}
        variables, rebuilt_variables = (
            dict(names),
            [names[old] for old, expiry in expiries.items() if expiry is not None],
        )
        derived: dict[str, list[str]] = {}
        for name, state in before.items():  # the derived states of a variable are named after it
            variable = transform_with_state.variable_of(name, variables)
            if variable is not None and state.role == "derived":
                names[name] = name.removesuffix(variable) + names[variable]
                if expiries[variable] is not None:
                    derived.setdefault(variable, []).append(name)
            elif name.startswith(transform_with_state.TIMERS):
                names[name] = name
        self._find_families(
            place, before, after, [name for found in derived.values() for name in found], rebuilt_variables
        )
        found = []
        for old, new in names.items():
            if old in before and new in after:
                evolved = self._find_state(place.at(state=new), before[old], after[new], expiries.get(old))
                if evolved is not None:
                    if evolved.expiry is not None:
                        derived_names = transform_with_state.derived_of(new, has_ttl=evolved.expiry.has)
                        new_derived_names = tuple(name for name in derived_names if name in after)
                        evolved = replace(evolved, derived=tuple(derived.get(old, ())), made=new_derived_names)
                    found.append(evolved)
        return found

    def _find_families(
        self,
        place: Place,
        before: Mapping[str, StateContract],
        after: Mapping[str, StateContract],
        derived: Sequence[str],
        rebuilt_variables: Sequence[str],
    ) -> None:
        """Note which states come and go, except those of variables that only one of the two queries has.

        ``derived`` are old states that are made again, with the new names ``rebuilt_variables`` of their variables.
        Timers come and go with the time mode.
        """
        store_key = self.new.id, place.store or ""
        for step, old_mode, new_mode in (
            ("switch-time-mode", self.old.time_mode, self.new.time_mode),
            ("switch-output-mode", self.old.output_mode, self.new.output_mode),
        ):
            if None not in (old_mode, new_mode) and old_mode != new_mode:
                self.matcher.steps.append(Step(step, self.place, old_mode, new_mode))
                self.modes[self.new.id] = self.new.time_mode, self.new.output_mode
        timers = [name for name in before if name.startswith(transform_with_state.TIMERS)]
        removed_names = [name for name in (*derived, *timers) if name not in after]
        added_states = [
            state
            for name, state in after.items()
            if name not in before
            if name.startswith(transform_with_state.TIMERS)
            or (state.role == "derived" and transform_with_state.variable_of(name, rebuilt_variables) is not None)
        ]
        if removed_names:
            self.removed[store_key] = tuple(removed_names)
        if added_states:
            self.added[store_key] = tuple(map(_family_of, added_states))

    def _find_expiry(self, place: Place, old: StateContract, new: StateContract) -> ExpiryChange | None:
        """Return how the expiry times of a variable change; None if they do not."""
        if old.ttl is None or new.ttl is None:
            return None
        lengths = [None if ms is None else format_duration(ms * 1000) for ms in (old.ttl_ms, new.ttl_ms)]
        texts = [
            f"ttl {length}" if state.ttl and length else "ttl" if state.ttl else "no ttl"
            for state, length in zip((old, new), lengths, strict=True)
        ]
        if old.ttl and new.ttl:
            if old.ttl_ms is None or new.ttl_ms is None or old.ttl_ms == new.ttl_ms:
                return None
            self.matcher.steps.append(Step("change-ttl", place, *texts))
            return ExpiryChange(had=True, has=True, now_ms=self.now_ms, plus_ms=new.ttl_ms - old.ttl_ms)
        if not old.ttl and not new.ttl:
            return None
        if old.ttl:
            self.matcher.steps.append(Step("switch-ttl", place, *texts))
            return ExpiryChange(had=True, has=False, now_ms=self.now_ms)
        birth = self._find_birth(place, old)
        if new.ttl_ms is None:
            self._refuse(place, "the length of its TTL is not known", NEW_NEEDS_QUERY)
        self.matcher.steps.append(
            Step("switch-ttl", place, texts[0], f"{texts[1]} after {'now' if birth is None else birth.field.name}")
        )
        return ExpiryChange(had=False, has=True, now_ms=self.now_ms, plus_ms=new.ttl_ms or 0, birth=birth)

    def _find_birth(self, place: Place, state: StateContract) -> TimestampField | None:
        """Return the field from which the new TTL of existing values counts, as the user says; None for now."""
        state_place = place.at(state=state.name)
        births = self.matcher.answers.births
        matching_births = [birth for birth in births if birth.startswith(f"{state_place}.")]
        matching_births = matching_births or [
            birth for birth in births if birth == NOW or birth.startswith(("key.", "value."))
        ]
        if not matching_births:
            self.matcher.obstacles.append(
                UnrepairedFinding(
                    place,
                    "it has a TTL now: from which time on does it count for existing values? Add --birth with a field, "
                    "or --birth now",
                    "--birth FIELD",
                )
            )
            return None
        if len(matching_births) > 1:
            raise UsageError(f"--birth is given twice for {state_place}: {', '.join(matching_births)}")
        self.matcher.used.add(matching_births[0])
        name = matching_births[0].removeprefix(f"{state_place}.")
        if name == NOW:
            return None
        return timestamp_field(self._describe(place, state), name)

    @property
    def _has_same_code(self) -> bool:
        """Whether the user's code is the same, apart from the names of state variables."""
        changed = find_changed_parts(self.old, self.new) if self.plans is not None else None
        return changed is not None and all(set(parts) <= {NAMES} for parts in changed.values())

    def _find_state(
        self, place: Place, old: StateContract, new: StateContract, expiry: ExpiryChange | None = None
    ) -> StateEvolution | None:
        if old.kind != new.kind or (expiry is None and old.ttl != new.ttl):
            self._refuse(place, "it is of another kind, or its TTL was switched on or off")
            return None
        is_same = (old.name, old.key, old.value) == (new.name, new.key, new.value) and expiry is None
        is_same = is_same and not (self._normalizes and normalizing(None, old.key))
        rehashes = self._rehashes(old)
        is_same = is_same and rehashes is None
        if is_same and not self.matcher.answers.swaps and self._has_same_plan:
            return None
        matcher, steps_before = self.matcher, len(self.matcher.steps)
        key = self._match_keys(place.at(field="key"), old.key, new.key)
        if self._normalizes and (normalized_key := normalizing(key, new.key)) != key:
            assert isinstance(normalized_key, StructChange)
            key = normalized_key
            matcher.steps.append(Step("normalize", place.at(field="key"), *FLOATS))
        if rehashes is not None:
            key = key or StructChange(tuple(map(Take, range(len(old.key)))))
            matcher.steps.append(Step("rehash", place.at(field="key"), *(HASHES if rehashes else HASHES[::-1])))
        value_place = place.at(field="value")
        converter = self._find_converter(place, old, new)
        value = None
        if converter is not None:
            if expiry is not None:
                self._refuse(place, "a transformer cannot give its values while its TTL changes. Migrate twice")
            matcher.steps.append(Step("transform", value_place, None, describe_rule(converter)))
        elif self._changes_buffers(old, new):
            value = self._match_buffers(value_place, old, new, key)
        elif not self._knows_buffers and _types(old.value) != _types(new.value):
            self._refuse_unknown_buffers(value_place)
        else:
            values = old.value, new.value
            if expiry is not None:
                values = _user_part(old), _user_part(new)
                value_place = place.at(field="value.value" if new.ttl else "value")
            self._refuse_swapped_names(value_place, *values)
            obstacles_before, steps_before_value = len(matcher.obstacles), len(matcher.steps)
            value = matcher.match(value_place, *values)
            if self.place.operator_name in AGGREGATIONS and self.plans is None:
                self._refuse_retyped_buffers(matcher.steps[steps_before_value:], new.key.names)
                # Another aggregate may have the name, which a migration starts afresh.
                matcher.obstacles[obstacles_before:] = [
                    self._with_needs(obstacle) for obstacle in matcher.obstacles[obstacles_before:]
                ]
        changes = (key, value, expiry, converter)
        if len(matcher.steps) == steps_before and not any(changes) and old.name == new.name:
            return None
        if self.place.operator_name in group_state.NAMES and "groupState" not in old.value.names:
            self._refuse(place, "ttlsnap does not change the schema of group state in its format 1")
        if new.role == "derived":
            del matcher.steps[steps_before:]  # it follows the states from which it is derived
        store = place.store or ""
        taken_ordinals = (
            [column.ordinal for column in key.columns if isinstance(column, Take)] if key is not None else []
        )
        merges = self._merges and key is not None and (len(set(taken_ordinals)) < len(old.key) or self._normalizes)
        return StateEvolution(
            self.new.id,
            store,
            old.name,
            new.name,
            key,
            value,
            new.key,
            new.value,
            expiry,
            merges=merges,
            converter=converter,
            hashes_days=rehashes,
        )

    def _changes_buffers(self, old: StateContract, new: StateContract) -> bool:
        """Return whether the aggregates of a state may be other ones, or have arguments of other types."""
        if self.place.operator_name not in AGGREGATIONS:
            return False
        if old.value.names != new.value.names or not self._has_same_plan:
            return True
        is_known = self.plans is not None and None not in (self.old.buffers, self.new.buffers)
        return is_known and _types(old.value) != _types(new.value)

    @property
    def _knows_buffers(self) -> bool:
        """Whether it is known that the same columns of aggregates mean the same, apart from their types.

        Spark sums the digits of a short decimal in a ``bigint``, for example. Then only the types of the arguments say
        what a number means. Without OLD's query, they are known only for aggregates that have none of that.
        """
        if self.place.operator_name not in AGGREGATIONS or None not in (self.old.buffers, self.new.buffers):
            return True
        return self.new.buffers is not None and all(buffer.is_plain for buffer in self.new.buffers)

    def _find_converter(self, place: Place, old: StateContract, new: StateContract) -> ConvertsValues | None:
        """Return what gives the new values; None if ttlsnap itself does."""
        if old.role == "derived" or new.role == "derived":
            return None
        if old.ttl and new.ttl:  # expiry times are not the user's
            old, new = (replace(state, value=_user_part(state)) for state in (old, new))
        descriptor = self._describe(place, old)
        return next((converter for converter in self.converters if converter.converts(descriptor, new.value)), None)

    def _describe(self, place: Place, state: StateContract) -> StateDescriptor:
        return StateDescriptor(self.new.id, self.new.name, place.store or "", state.name, None, state.key, state.value)

    def _refuse_swapped_names(self, place: Place, old: StructType, new: StructType) -> None:
        """Add an obstacle if the names of the user's fields changed places, and the code is or may be the same."""
        if (
            self.place.operator_name not in USERS_OWN
            or old.names == new.names
            or sorted(old.names) != sorted(new.names)
        ):
            return
        if self._has_same_code:
            self._refuse(
                place,
                "the fields are in another order, and the code is the same: does it use their positions? Then restore "
                "the old order. If it uses names, also change the code",
            )
        elif self.plans is None and _types(old) == _types(new):
            self._refuse(place, "fields of one type are in another order: did the code change with them", self._needs)

    @property
    def _has_same_plan(self) -> bool:
        return self.plans is None or (
            self.plans[0].keys == self.plans[1].keys
            and self.plans[0].aggregates == self.plans[1].aggregates
            and (
                None in (self.old.buffers, self.new.buffers) or _layouts(self.old.buffers) == _layouts(self.new.buffers)
            )
        )

    @property
    def _normalizes(self) -> bool:
        """Whether the new Spark finds only keys with normalized floats, and the old one wrote others."""
        return self.place.operator_name in deduplication.NAMES and normalizes_keys(self.both)

    def _rehashes(self, state: StateContract) -> bool | None:
        """Return whether the hash of the new Spark has the days of calendar intervals; None if that stays as it is."""
        after = hashes_days(self.both.new)
        changes = hashes_days(self.both.old) != after and contains(state.key, CalendarIntervalType)
        return after if changes else None

    @property
    def _merges(self) -> bool:
        """Whether entries with the same key can become one."""
        return self.place.operator_name in deduplication.NAMES

    def _match_keys(self, place: Place, old: StructType, new: StructType) -> StructChange | None:
        """Return how keys change. The plans say what their columns are; those after them keep their names."""
        if self.place.operator_name == join.NAME and len(old) != len(new):
            self._refuse(place, _OTHER_JOIN_KEYS)
            return None
        if self.plans is None or self.place.operator_name not in _PLANNED_KEYS:
            return self.matcher.match(place, old, new, merges=self._merges)
        sides = []
        plans = [QueryPlan.of(operator.plan or ()) for operator in (self.old, self.new)]
        for plan, new_plan, key in zip(plans, self.plans, (old, new), strict=True):
            texts = [pair for pair in zip(plan.keys, new_plan.keys, strict=True) if not is_session(pair[0])]
            if len(texts) > len(key):
                return self.matcher.match(place, old, new)
            sides.append([_Part(*pair, ordinal, (key.fields[ordinal],)) for ordinal, pair in enumerate(texts)])
        paired = self._pair(place, *sides)
        if self.place.operator_name == join.NAME and (None in paired or len(sides[0]) != len(sides[1])):
            self._refuse(place, _OTHER_JOIN_KEYS)
            return None
        names_after = [key.names[len(parts) :] for parts, key in zip(sides, (old, new), strict=True)]
        if names_after[0] != names_after[1]:
            self._refuse(
                place,
                f"after its grouping columns it had {', '.join(names_after[0])}, and has {', '.join(names_after[1])}",
            )
            return None
        sources: list[Source] = [None if part is None else part.first for part in paired]
        sources += range(len(sides[0]), len(old))
        return self.matcher.match(place, old, new, sources)

    def _match_buffers(
        self, place: Place, old_state: StateContract, new_state: StateContract, key: StructChange | None
    ) -> StructChange | None:
        """Return how values change that have the columns of aggregates, and others before them.

        An aggregate takes its own old columns, or the values before any row. Before the aggregates, a value may repeat
        the columns of the key, which change as in the ``key``.
        """
        old, new = old_state.value, new_state.value
        old_buffers, new_buffers = self.old.buffers, self.new.buffers
        if old_buffers is None or new_buffers is None or self.plans is None:
            self._refuse_unknown_buffers(place)
            return None
        before = _parts_of_buffers(old_buffers, old, self.both.new_expression)
        after = _parts_of_buffers(new_buffers, new)
        head_sizes = [parts[0].first if parts else len(side) for parts, side in ((before, old), (after, new))]
        sources: list[Source] = []
        for name in new.names[: head_sizes[1]]:
            repeated = self._find_repeated(name, old_state, new_state, key, head_sizes[0])
            if repeated is None:
                self._refuse(place.at(field=f"{place.field}.{name}"), "it is new, and not a column of the key")
            sources.append(repeated)
            if isinstance(repeated, Constant):
                value_text = f"{repeated.value} (as in the key)"
                self.matcher.steps.append(Step("add", place.at(field=f"{place.field}.{name}"), None, value_text))
        ordinals = [source for source in sources if isinstance(source, int)]
        if ordinals != sorted(ordinals):
            texts = (", ".join(old.names[ordinal] for ordinal in numbers) for numbers in (sorted(ordinals), ordinals))
            self.matcher.steps.append(Step("reorder", place, *texts))
        old_parts, steps = self._pair(place, before, after), self.matcher.steps
        for buffer, part, source in zip(new_buffers, after, old_parts, strict=True):
            if source is not None:
                sources += range(source.first, source.first + len(source.fields))
            else:
                values = zip(buffer.initial, part.fields, strict=True)
                sources += [Constant(_from_json(value, field.type)) for value, field in values]
                steps.append(Step("add", place, None, part.text))
        steps += [Step("drop", place, old_part.text, None) for old_part in before if old_part not in old_parts]
        kept_parts = [old_part for old_part in old_parts if old_part is not None]
        if kept_parts != sorted(kept_parts, key=attrgetter("first")):
            orders = (sorted(kept_parts, key=attrgetter("first")), kept_parts)
            steps.append(Step("reorder", place, *(", ".join(old_part.text for old_part in order) for order in orders)))
        return self.matcher.match(place, old, new, sources, has_steps=True)

    def _refuse_unknown_buffers(self, place: Place) -> None:
        self._refuse(place, "it is not known which aggregate a column belongs to", self._needs)

    def _refuse_retyped_buffers(self, steps: Sequence[Step], key_names: Sequence[str]) -> None:
        """Add an obstacle for each aggregate of another type: a name like ``sum`` does not say what is summed."""
        for step in steps:
            _, name = (step.place.field or "").split(".", 1)
            if step.change in ("widen", "narrow") and name not in key_names:
                self._refuse(step.place, f"does {name} still aggregate the same values? Its type changed", self._needs)

    def _with_needs(self, obstacle: UnrepairedFinding) -> UnrepairedFinding:
        if not obstacle.stays:
            return obstacle
        return replace(obstacle, message=f"{obstacle.message}. {self._needs}", needs=self._needs)

    @property
    def _needs(self) -> str:
        """The contract that would tell what the operator computes."""
        if self.old.plan is None:
            return OLD_NEEDS_QUERY
        return NEW_NEEDS_QUERY if self.new.plan is None else SAME_VERSIONS

    @staticmethod
    def _find_repeated(
        name: str, old: StateContract, new: StateContract, key: StructChange | None, head_size: int
    ) -> Source:
        """Return the source of a column before the aggregates, of which the old value has ``head_size``."""
        names = list(old.value.names[:head_size])
        if name in new.key.names:
            ordinal = new.key.names.index(name)
            column = key.columns[ordinal] if key is not None else Take(ordinal)
            if isinstance(column, Constant):
                return column
            name = old.key.names[column.ordinal]
        return names.index(name) if names.count(name) == 1 else None

    def _pair(self, place: Place, old: Sequence[_Part], new: Sequence[_Part]) -> list[_Part | None]:
        """Return the old part for each new one; None for one that is new."""
        assert self.plans is not None
        is_value, retyped = place.field == "value", find_retyped(self.plans[0].sources, self.plans[1].sources)
        old_parts: list[_Part | None] = []
        for new_part in new:
            same_parts = (
                old_part
                for old_part in old
                if old_part not in old_parts
                # A key of another type is still that key. ``match`` compares the types of columns.
                and (not is_value or self._can_become(place, old_part, new_part))
                and are_same(old_part.new_text, new_part.text, retyped=retyped, aggregate=is_value)
            )
            old_parts.append(next(same_parts, None))
        afresh, dropped_parts = self._pair_retyped(place, old, new, old_parts)
        for number, new_part in enumerate(new):
            for old_part in old if old_parts[number] is None and number not in afresh else ():
                if (
                    old_part in old_parts
                    or old_part in dropped_parts
                    or not self._can_become(place, old_part, new_part)
                ):
                    continue
                if is_window(old_part.text) and is_window(new_part.text):
                    self._refuse(place, "the windows changed; existing windows match new ones only by coincidence")
                    old_parts[number] = old_part
                elif self.matcher.ask_if_same(place, old_part.text, new_part.text) is not False:
                    old_parts[number] = old_part
                if old_parts[number] is not None:
                    break
        return old_parts

    def _pair_retyped(
        self, place: Place, old: Sequence[_Part], new: Sequence[_Part], old_parts: list[_Part | None]
    ) -> tuple[set[int], list[_Part]]:
        """Find the parts that have only other types, which the old values do not have.

        Put a key into ``old_parts``: ``match`` says then that its type does not fit. Return the numbers of aggregates
        that start afresh, and the old aggregates in their places. The user must agree to that with ``--drop``.
        """
        afresh: set[int] = set()
        dropped_parts: list[_Part] = []
        for number, new_part in enumerate(new):
            for old_part in old if old_parts[number] is None else ():
                if old_part in (*old_parts, *dropped_parts) or self._can_become(place, old_part, new_part):
                    continue
                if not differ_by_types(old_part.new_text, new_part.text):
                    continue
                if is_key(place):
                    old_parts[number] = old_part
                    break
                afresh.add(number)
                dropped_parts.append(old_part)
                if not self.matcher.is_dropped(place, old_part.text):
                    option = f"--drop {shell_word(old_part.text)}"
                    message = (
                        f"the arguments of {new_part.text} have other types, and its buffer cannot be converted. "
                        f"To start it afresh, add {option}"
                    )
                    self.matcher.obstacles.append(UnrepairedFinding(place, message, option, old=old_part.text))
                break
        return afresh, dropped_parts

    def _can_become(self, place: Place, old: _Part, new: _Part) -> bool:
        """Return whether the old values of a key or an aggregate can become those of the new one."""
        if old.layout != new.layout or not self.matcher.can_become(old.fields, new.fields):
            return False
        types = [(old_field.type, new_field.type) for old_field, new_field in zip(old.fields, new.fields, strict=True)]
        return is_key(place) or not any(starmap(have_other_order, types))

    def _refuse(self, place: Place, message: str, needs: str = "") -> None:
        self.matcher.obstacles.append(
            UnrepairedFinding(place, f"{message}. {needs}" if needs else message, needs=needs)
        )


def _layouts(buffers: Sequence[AggregateBuffer] | None) -> list[Any]:
    return [(buffer.aggregate, buffer.layout) for buffer in buffers or ()]


def _types(schema: StructType) -> list[DataType]:
    return [field.type for field in schema.fields]


def _user_part(state: StateContract) -> StructType:
    """Return the schema of a variable's values without the expiry time."""
    if not state.ttl:
        return state.value
    schema = state.value.fields[0].type
    assert isinstance(schema, StructType)
    return schema


def _family_of(state: StateContract) -> ColumnFamilySchema:
    """Return the column family of a state that Spark derives, or of timers."""
    encoder = state.key_encoder or ""
    more: dict[str, dict[str, Any]] = {
        "PrefixKeyScanStateEncoderSpec": {"numColsPrefixKey": 1},
        "RangeKeyScanStateEncoderSpec": {"orderingOrdinals": [0]},
    }
    document = {"keyStateEncoderType": encoder, **more.get(encoder, {})}
    return ColumnFamilySchema(state.name, state.key, state.value, document)


def _from_json(value: Any, kind: DataType) -> Any:
    """Return a value as PyArrow takes it; see ``ttlsnap.contract.buffers``."""
    arrow = arrow_type(kind)
    if value is not None and pa.types.is_large_binary(arrow):
        return bytes.fromhex(value)
    if value is not None and isinstance(physical(kind), DecimalType):
        return pa.scalar(value, pa.large_string()).cast(arrow).as_py()
    return value
