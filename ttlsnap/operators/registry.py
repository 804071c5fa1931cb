"""The registry of operators: it describes the states of a checkpoint and their links.

One module for each operator says which entries are primary, which timestamp Spark stores, and on which clock.
``describe`` turns a checkpoint's stores into the states that transformers see. It refuses selected states that are
unknown or must not change, by name. See ``docs/operators.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint import Checkpoint, Operator, Store, layout
from ttlsnap.checkpoint.checkpoint import ALWAYS_NULLABLE, GLOBAL_LIMIT, is_void_key
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.operators import aggregation, deduplication, group_state, join, session_window, transform_with_state
from ttlsnap.operators.stored_time import StoredTime
from ttlsnap.quoting import quotes_nothing
from ttlsnap.schema.types import StructType
from ttlsnap.suggestions import did_you_mean

if TYPE_CHECKING:
    from ttlsnap.operators.links import Link, StateId
    from ttlsnap.stores.lineage import Lineage

_FINDERS: dict[str | None, Callable[[StructType, StructType], StoredTime | None]] = {
    **dict.fromkeys(aggregation.NAMES, aggregation.stored_time),
    deduplication.NAME: deduplication.stored_time,
    deduplication.WITHIN_WATERMARK: deduplication.stored_limit,
    session_window.NAME: session_window.stored_time,
    # Spark before 4.0 does not record the name; the fields distinguish these three from operators without a time.
    None: deduplication.stored_by_any,
}
_UNRECORDED_TIMES: dict[str | None, Callable[[StructType, StructType], tuple[str, ...]]] = {
    **dict.fromkeys(aggregation.NAMES, aggregation.unrecorded_times),
    deduplication.NAME: deduplication.unrecorded_times,
    session_window.NAME: session_window.unrecorded_times,
    None: aggregation.unrecorded_times,
}
_EMITS_ON_CLOSE = (
    None,  # may be an aggregation
    *(operator.NAME for operator in (aggregation, session_window) if operator.EMITS_ON_CLOSE),
)
FollowPolicy = Literal["keep", "follow"]
"""The policy for timers, and for variables that no rule sees, when the other entries of their key are dropped."""

UNUSED = "no variable of the query uses it"
_PLAIN_KEY = "NoPrefixKeyStateEncoderSpec"


@dataclass(frozen=True)
class Selection:
    """The part of a checkpoint that a run processes; None means all."""

    operator: int | None = None
    store: str | None = None
    state: str | None = None

    def includes(self, state: StateDescriptor) -> bool:
        """Return whether ``state`` is selected."""
        return (
            self.operator in (None, state.operator)
            and self.store in (None, state.store)
            and (self.state is None or self.state in state.names)
        )

    def includes_operator(self, operator: int) -> bool:
        """Return whether something of an operator is selected."""
        return self.operator in (None, operator)

    def includes_store(self, operator: int, store: str) -> bool:
        """Return whether something of a store is selected."""
        return self.includes_operator(operator) and self.store in (None, store)

    def names(self, state: StateDescriptor) -> bool:
        """Return whether ``state`` is selected by its own name."""
        return self.state is not None and self.includes(state)


@dataclass(frozen=True)
class AnyOf:
    """The union of ``parts``. If the user has named ``each`` operator, store and state in them, all must exist.

    With ``rules``, the names of the rules of a policy that the parts are from, each part must match something.
    """

    parts: tuple[Selection, ...]
    each: bool = False
    rules: tuple[str, ...] = ()

    def includes(self, state: StateDescriptor) -> bool:
        return any(part.includes(state) for part in self.parts)

    def includes_operator(self, operator: int) -> bool:
        return any(part.includes_operator(operator) for part in self.parts)

    def includes_store(self, operator: int, store: str) -> bool:
        return any(part.includes_store(operator, store) for part in self.parts)

    def names(self, state: StateDescriptor) -> bool:
        return any(part.names(state) for part in self.parts)


def describe(checkpoint: Checkpoint, selection: Selection | AnyOf | None = None) -> list[StateDescriptor]:
    """Return the states of a checkpoint that ``selection`` includes, in order.

    Raise UnsupportedError, by name, for a selected operator that is unknown, has linked entries of an unknown format,
    or has no schema. Raise UsageError if the selection matches nothing, or only derived entries.
    """
    selection = selection or Selection()
    require_matches(checkpoint, selection)
    descriptors = []
    for operator in checkpoint.operators:
        for store in operator.stores:
            for state in states_of(checkpoint, operator, store):
                if selection.includes(state):
                    _check_supported(checkpoint, operator, store)
                    if state.opaque and selection.names(state):
                        raise UnsupportedError(f"{state}: {state.opaque}; rewriting it is not supported")
                    descriptors.append(state)
            if not store.families and selection.includes_operator(operator.id):
                _check_supported(checkpoint, operator, store)
    if not descriptors:
        raise no_match(checkpoint, selection)
    if all(state.role == "derived" for state in descriptors):
        raise UsageError(f"{descriptors[0]} is derived from other entries and cannot be selected; select those entries")
    return descriptors


def require_matches(checkpoint: Checkpoint, selection: Selection | AnyOf) -> None:
    """Raise UsageError if one of several named operators, stores or states is not in the checkpoint, but misspelled.

    Raise it, too, if a rule of a policy matches nothing.
    """
    if not isinstance(selection, AnyOf) or not (selection.each or selection.rules):
        return
    selected_states = [
        state
        for operator in checkpoint.operators
        for store in operator.stores
        for state in states_of(checkpoint, operator, store)
        if selection.includes(state)
    ]
    for rule, part in zip(selection.rules, selection.parts, strict=False):
        if part != Selection() and not any(map(part.includes, selected_states)):
            raise no_match(checkpoint, part, rule)
    if not selection.each:
        return
    for name in ("operator", "store", "state"):
        for value in dict.fromkeys(getattr(part, name) for part in selection.parts):
            if value is not None and not any(Selection(**{name: value}).includes(state) for state in selected_states):
                raise no_match(checkpoint, Selection(**{name: value}))


def no_match(checkpoint: Checkpoint, selection: Selection | AnyOf, rule: str | None = None) -> UsageError:
    """Return the error for a selection that matches nothing in the checkpoint. ``rule`` names that of a policy."""
    states = [
        state
        for operator in checkpoint.operators
        for store in operator.stores
        for state in states_of(checkpoint, operator, store)
    ]
    options, hint = [], ""
    for name in ("operator", "store", "state"):
        values = [getattr(part, name) for part in getattr(selection, "parts", [selection])]
        for value in dict.fromkeys(value for value in values if value is not None):
            options.append(f"--{name} {value}" if rule is None else f"{name} = {json.dumps(value, ensure_ascii=False)}")
            known_names = {str(getattr(state, name)) for state in states}
            hint = hint or did_you_mean(str(value), sorted(known_names))
    states_text = ", ".join(
        _with_states(checkpoint, operator, store) for operator in checkpoint.operators for store in operator.stores
    )
    options_text = (" " if rule is None else ", ").join(options)
    where = checkpoint.target if rule is None else f"{rule}: {checkpoint.target}"
    return UsageError(quotes_nothing(f"{where} has nothing that matches {options_text}{hint}; it has {states_text}"))


def _with_states(checkpoint: Checkpoint, operator: Operator, store: Store) -> str:
    """Return a store by its operator and name, with its states if they have names."""
    names = [state.state for state in states_of(checkpoint, operator, store) if state.state != layout.DEFAULT_STORE]
    return f"{operator.id}.{store.name}" + (f" with the states {', '.join(names)}" if names else "")


def states_of(checkpoint: Checkpoint, operator: Operator, store: Store) -> list[StateDescriptor]:
    """Return every state of a store with what Spark stores about its time, supported by ``compact`` or not."""
    return _with_hash(checkpoint, _states_of(checkpoint, operator, store))


def _with_hash(checkpoint: Checkpoint, states: list[StateDescriptor]) -> list[StateDescriptor]:
    # Spark pins this setting from 4.3 on.
    return (
        [replace(state, hashes_days=True) for state in states] if ALWAYS_NULLABLE in checkpoint.batch.conf else states
    )


def unused_states_of(
    checkpoint: Checkpoint, operator: Operator, store: Store, lineages: Sequence[Lineage]
) -> list[StateDescriptor]:
    """Return the states in the files of a store that the query does not use: those of removed state variables."""
    if operator.name not in transform_with_state.NAMES or checkpoint.provider != "rocksdb" or not store.families:
        return []
    stored_families = frozenset[str]().union(*(lineage.families for lineage in lineages))
    states = transform_with_state.unused_states(checkpoint, operator, store, stored_families)
    return _with_hash(checkpoint, states)


def _states_of(checkpoint: Checkpoint, operator: Operator, store: Store) -> list[StateDescriptor]:
    if is_join(operator) and (join_states := join.states(checkpoint, operator, store)) is not None:
        return join_states
    if operator.name in transform_with_state.NAMES and checkpoint.provider == "rocksdb":
        return transform_with_state.states(checkpoint, operator, store)
    states = []
    for recorded_family in store.families:
        family = group_state.as_stored(operator, recorded_family)
        family = deduplication.as_stored(checkpoint, operator, store, family)
        # Only a join has several stores, and it does not evict by one time.
        stored_time = _stored_time(operator, family) if len(operator.stores) == 1 else None
        unrecorded_times = _unrecorded_times(checkpoint, operator, family) if stored_time is None else ()
        # With two such columns, nothing shows which of them has the watermark.
        if len(unrecorded_times) == 1:
            stored_time = StoredTime(unrecorded_times[0], TimeCharacteristic.EVENT)
        emits_at_once = deduplication.has_values_of_one(family.key, family.value)
        states.append(
            StateDescriptor.of(
                operator,
                store,
                family,
                **(stored_time.facts if stored_time else {}),
                unrecorded_times=unrecorded_times,
                without_time=deduplication.WITHOUT_TIME if family.value == deduplication.NOTHING else None,
                written_once=family.value == deduplication.NOTHING,
                emits_on_close=operator.name in _EMITS_ON_CLOSE and not emits_at_once,
                prefix_columns=_prefix_columns(checkpoint, operator, store, family),
                grouping_without_last=operator.name == session_window.NAME or _is_nameless_session(operator, family),
                opaque=_opaque(checkpoint, operator, store, family),
            )
        )
    return states


def _stored_time(operator: Operator, family: ColumnFamilySchema) -> StoredTime | None:
    """Return what Spark stores about the time of an entry."""
    timeout = group_state.stored_time(family.value)
    if timeout and operator.name in (None, *group_state.NAMES):
        return timeout
    finder = _FINDERS.get(operator.name)
    if _is_nameless_session(operator, family):
        finder = session_window.stored_time
    return finder(family.key, family.value) if finder else None


def _unrecorded_times(checkpoint: Checkpoint, operator: Operator, family: ColumnFamilySchema) -> tuple[str, ...]:
    """Return the times by which Spark may evict an entry: those of a query with a watermark that no schema shows."""
    finder = _UNRECORDED_TIMES.get(operator.name)
    if checkpoint.batch.watermark_ms is None or finder is None or len(operator.stores) != 1:
        return ()
    if _is_nameless_session(operator, family):
        finder = session_window.unrecorded_times
    return finder(family.key, family.value)


def _is_nameless_session(operator: Operator, family: ColumnFamilySchema) -> bool:
    return operator.name is None and session_window.is_session(family.value)


def _prefix_columns(checkpoint: Checkpoint, operator: Operator, store: Store, family: ColumnFamilySchema) -> int:
    """Return how many columns of the key RocksDB stores apart from the others."""
    if checkpoint.provider == "hdfs":
        return 0  # both providers keep the same rows, but RocksDB in an order that can be searched
    if _is_nameless_session(operator, family):
        # Spark before 4.0 does not record the number of prefix columns.
        return session_window.prefix_columns(family.key)
    return store.num_cols_prefix_key


def _opaque(checkpoint: Checkpoint, operator: Operator, store: Store, family: ColumnFamilySchema) -> str | None:
    """Return why the entries of a column family are not one row for the key and one for the value, or None."""
    if checkpoint.provider == "hdfs":
        return None
    encoder = (family.key_encoder or {}).get("keyStateEncoderType", _PLAIN_KEY)
    # Only state schemas of version 3 record the layout of keys. They describe joins and transformWithState, which have
    # modules of their own.
    if encoder != _PLAIN_KEY:
        return "its keys are laid out for ordered scans"
    return None


def is_join(operator: Operator) -> bool:
    """Return whether an operator is a stream-stream join, or may be one because its name is not recorded."""
    return operator.name == join.NAME or (operator.name is None and len(operator.stores) > 1)


def behind_join(checkpoint: Checkpoint) -> frozenset[int]:
    """Return the operators after a join: rows that it has yet to emit are behind the query's watermark.

    Spark numbers operators from the sink. Operators of other branches are included, because no file records branches.
    """
    last_join = max((operator.id for operator in checkpoint.operators if is_join(operator)), default=-1)
    return frozenset(operator.id for operator in checkpoint.operators if operator.id < last_join)


def links_of(
    checkpoint: Checkpoint,
    operator: Operator,
    timers: FollowPolicy = "keep",
    deciding: Collection[StateId] | None = None,
) -> tuple[Link, ...]:
    """Return the links of an operator's entries, those that decide before the others; none if all are independent.

    ``deciding`` are the variables that the others follow; None if they follow none.
    """
    if is_join(operator):
        return join.links(checkpoint, operator)
    if operator.name not in transform_with_state.NAMES:
        return ()
    return transform_with_state.links(checkpoint, operator, timers == "follow", deciding)


def explain_untouched(state: StateDescriptor) -> str | None:
    """Return why no transformer sees a state, or None."""
    if state.unused:
        return UNUSED
    if state.opaque:
        return state.opaque
    if state.role == "derived":
        return "it is derived from other entries, and follows them"
    if transform_with_state.explain_kept(state):
        return transform_with_state.explain_kept(state)
    if state.operator_name == GLOBAL_LIMIT or (state.operator_name is None and is_void_key(state.key_schema)):
        return "the count of a global limit is never changed"
    return None


def _check_supported(checkpoint: Checkpoint, operator: Operator, store: Store) -> None:
    where = f"operator {operator.id}"
    advice = f"; --operator N leaves operator {operator.id} as it is"
    if is_join(operator) and store.families:
        if links_of(checkpoint, operator):
            return
        if all(store.families for store in operator.stores):
            number = join.state_format(checkpoint)
            raise UnsupportedError(
                f"{where} is {operator.name or 'a stream-stream join'} of state format {number}, which is unknown "
                f"(known: 1 to 4){advice}"
            )
    if len(store.families) > 1 and operator.name not in transform_with_state.NAMES:
        raise UnsupportedError(
            f"{where}, store {store.name}: {quantity(len(store.families), 'column family', 'column families')}, but "
            f"{operator.name or 'this operator'} should have one{advice}"
        )
    if operator.name in transform_with_state.NAMES and (unknown_part := transform_with_state.unknown(operator, store)):
        raise UnsupportedError(f"{where}: {unknown_part}, is not a known part of transformWithState{advice}")
    known_names = (*_FINDERS, *group_state.NAMES, *transform_with_state.NAMES, GLOBAL_LIMIT, join.NAME)
    if operator.name not in known_names:
        raise UnsupportedError(f"{where} is {operator.name!r}, an operator ttlsnap does not know{advice}")
    if not store.families:
        raise UnsupportedError(explain_missing_schema(store))


def explain_missing_schema(store: Store) -> str:
    """Return what to do about a store whose schema the checkpoint does not record."""
    return (
        f"operator {store.operator}, store {store.name}: the checkpoint has no state schema (Spark before 3.1 wrote "
        f"none; a later one was lost). Describe it with --schema {store.operator}.{store.name}='key-ddl | value-ddl'"
    )
