"""Which entries belong together: what ttlsnap knows of each stateful operator.

One module per operator says which entries are primary, which timestamp Spark stores and on which clock.
``describe`` turns a checkpoint's stores into the states that transformers see; what must not be touched,
or is not known, is refused by name, but only when it was asked for. See ``docs/operators.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.operators import aggregation, deduplication, group_state, join, session_window, transform_with_state
from ttlsnap.schema.types import NullType, StructType, physical
from ttlsnap.state import StateDescriptor

if TYPE_CHECKING:
    from ttlsnap.links import Link

StoredTimestamp = tuple[str, TimeCharacteristic | None] | None
"""The field, and the clock that it is on; None where that is not recorded."""

_FINDERS: dict[str | None, Callable[[StructType, StructType], StoredTimestamp]] = {
    aggregation.NAME: aggregation.stored_timestamp,
    deduplication.NAME: deduplication.stored_timestamp,
    deduplication.WITHIN_WATERMARK: deduplication.stored_limit,
    session_window.NAME: session_window.stored_timestamp,
    # Spark before 4.0 does not record the name; the fields tell these three apart from what stores no time.
    None: deduplication.stored_anywhere,
}
TimerPolicy = Literal["keep", "follow"]
"""What becomes of the timers of a key when the last of its state goes."""

_PLAIN_KEY = "NoPrefixKeyStateEncoderSpec"
_GLOBAL_LIMIT = "globalLimit"


@dataclass(frozen=True)
class Selection:
    """The part of a checkpoint a run is about; None means all."""

    operator: int | None = None
    store: str | None = None
    state: str | None = None

    def includes(self, state: StateDescriptor) -> bool:
        """Whether ``state`` was asked for."""
        return (
            self.operator in (None, state.operator)
            and self.store in (None, state.store)
            and self.state in (None, state.state)
        )

    def includes_operator(self, operator: int) -> bool:
        """Whether something of an operator was asked for."""
        return self.operator in (None, operator)

    def names(self, state: StateDescriptor) -> bool:
        """Whether ``state`` was asked for by its own name."""
        return self.state is not None and self.includes(state)


@dataclass(frozen=True)
class AnyOf:
    """What any of ``parts`` takes in."""

    parts: tuple[Selection, ...]

    def includes(self, state: StateDescriptor) -> bool:
        return any(part.includes(state) for part in self.parts)

    def includes_operator(self, operator: int) -> bool:
        return any(part.includes_operator(operator) for part in self.parts)

    def names(self, state: StateDescriptor) -> bool:
        return any(part.names(state) for part in self.parts)


def describe(checkpoint: Checkpoint, selection: Selection | AnyOf | None = None) -> list[StateDescriptor]:
    """The states of a checkpoint that ``selection`` takes in, in order.

    Raises UnsupportedError, by name, for an operator that is selected but unknown, keeps linked entries in a
    format that is, or has no schema; UsageError when the selection names nothing, or nothing but what is derived.
    """
    selection = selection or Selection()
    found = []
    for operator in checkpoint.operators:
        for store in operator.stores:
            for state in states_of(checkpoint, operator, store):
                if selection.includes(state):
                    _check_supported(checkpoint, operator, store)
                    if state.opaque and selection.names(state):
                        raise UnsupportedError(f"{state}: {state.opaque}; rewriting it is not supported")
                    found.append(state)
            if not store.families and selection.includes_operator(operator.id):
                _check_supported(checkpoint, operator, store)
    if not found:
        there = ", ".join(f"{o.id}.{s.name}" for o in checkpoint.operators for s in o.stores)
        raise UsageError(f"nothing in {checkpoint.target} fits --operator, --store and --state; there is {there}")
    if all(state.role == "derived" for state in found):
        raise UsageError(f"{found[0]} is derived from other entries, and follows those by itself")
    return found


def states_of(checkpoint: Checkpoint, operator: Operator, store: Store) -> list[StateDescriptor]:
    """Every state of a store with what Spark stores about its time, supported by ``compact`` or not."""
    if is_join(operator) and (found := join.states(checkpoint, operator, store)) is not None:
        return found
    if operator.name in transform_with_state.NAMES and checkpoint.provider == "rocksdb":
        return transform_with_state.states(checkpoint, operator, store)
    states = []
    for recorded in store.families:
        family = group_state.as_stored(operator, recorded)
        family = deduplication.as_stored(checkpoint, operator, store, family)
        stored = _stored_timestamp(operator, family) if len(operator.stores) == 1 else None
        states.append(
            StateDescriptor.of(
                operator,
                store,
                family,
                stored_timestamp=stored[0] if stored else None,
                stored_time=stored[1].value if stored and stored[1] else None,
                prefix_columns=_prefix_columns(checkpoint, operator, store, family),
                opaque=_opaque(checkpoint, operator, store, family),
            )
        )
    return states


def _stored_timestamp(operator: Operator, family: ColumnFamilySchema) -> StoredTimestamp:
    """What Spark stores about the time of an entry."""
    timeout = group_state.stored_timestamp(family.value)
    if timeout and operator.name in (None, *group_state.NAMES):
        return timeout, None
    finder = _FINDERS.get(operator.name)
    if operator.name is None and session_window.is_session(family.value):
        finder = session_window.stored_timestamp
    return finder(family.key, family.value) if finder else None


def _prefix_columns(checkpoint: Checkpoint, operator: Operator, store: Store, family: ColumnFamilySchema) -> int:
    """How many columns of the key RocksDB keeps apart from the others."""
    if checkpoint.provider == "hdfs":
        return 0  # both providers keep the same rows, but RocksDB in an order that can be searched
    if operator.name is None and session_window.is_session(family.value):
        return session_window.prefix_columns(family.key)
    return store.num_cols_prefix_key


def _opaque(checkpoint: Checkpoint, operator: Operator, store: Store, family: ColumnFamilySchema) -> str | None:
    """Why the entries of a column family are not one row for the key and one for the value, if so."""
    if checkpoint.provider == "hdfs":
        return None
    encoder = (family.key_encoder or {}).get("keyStateEncoderType", _PLAIN_KEY)
    if encoder != _PLAIN_KEY:
        return "its keys are laid out for scans in order"
    return None


def is_join(operator: Operator) -> bool:
    """Whether an operator is a stream-stream join, or may be one where the name is not recorded."""
    return operator.name == join.NAME or (operator.name is None and len(operator.stores) > 1)


def behind_join(checkpoint: Checkpoint) -> frozenset[int]:
    """The operators that a join comes before: what it has still to emit lies behind the query's watermark.

    Spark numbers operators from the sink on. One on another branch counts too, as no file tells branches apart.
    """
    last = max((operator.id for operator in checkpoint.operators if is_join(operator)), default=-1)
    return frozenset(operator.id for operator in checkpoint.operators if operator.id < last)


def links_of(checkpoint: Checkpoint, operator: Operator, timers: TimerPolicy = "keep") -> tuple[Link, ...]:
    """What hangs together among an operator's entries; nothing where each stands by itself."""
    if is_join(operator):
        return join.links(checkpoint, operator)
    if operator.name not in transform_with_state.NAMES:
        return ()
    return transform_with_state.links(checkpoint, operator, follow=timers == "follow")


def left_untouched(state: StateDescriptor) -> str | None:
    """Why a state is never offered to a transformer, if so."""
    # Its one key is a void; before Spark 4.0 that is all there is to know it by.
    void_key = all(isinstance(physical(field.type), NullType) for field in state.key_schema.fields)
    if state.opaque:
        return state.opaque
    if state.role == "derived":
        return "it is derived, and follows"
    if transform_with_state.kept(state):
        return transform_with_state.kept(state)
    if state.operator_name == _GLOBAL_LIMIT or (state.operator_name is None and state.key_schema.fields and void_key):
        return "a global limit's count is never touched"
    return None


def _check_supported(checkpoint: Checkpoint, operator: Operator, store: Store) -> None:
    where = f"operator {operator.id}"
    others = f"; --operator N leaves operator {operator.id} as it is"
    if is_join(operator) and store.families:
        if links_of(checkpoint, operator):
            return
        if all(store.families for store in operator.stores):
            number = join.state_format(checkpoint)
            raise UnsupportedError(
                f"{where} is {operator.name or 'a stream-stream join'} of state format {number}, whose linked entries "
                f"are not known (known: 1 to 4){others}"
            )
    if len(store.families) > 1 and operator.name not in transform_with_state.NAMES:
        raise UnsupportedError(
            f"{where}, store {store.name}: {len(store.families)} column families, which {operator.name or 'it'} is not "
            f"known to keep{others}"
        )
    if operator.name in transform_with_state.NAMES and (unknown := transform_with_state.unknown(operator, store)):
        raise UnsupportedError(f"{where}: {unknown}, is nothing that transformWithState is known to keep{others}")
    known = (*_FINDERS, *group_state.NAMES, *transform_with_state.NAMES, _GLOBAL_LIMIT, join.NAME)
    if operator.name not in known:
        raise UnsupportedError(f"{where} is {operator.name!r}, an operator ttlsnap does not know{others}")
    if not store.families:
        raise UnsupportedError(
            f"{where}, store {store.name}: the checkpoint records no state schema (Spark before 3.1 wrote none; a "
            "later one's was lost); give one with "
            f"--schema {operator.id}.{store.name}='key-ddl | value-ddl'"
        )
