"""transformWithState, in Scala, with pandas and with rows (RocksDB only). Each state variable is a separate state.

    <name>                          key -> value; of a map key and user key -> value        primary
                                    of a list key -> values, each an entry
    <name>, with a TTL              the same -> value, ttlExpirationMs                      primary
    $ttl_<name>                     ttlExpirationMs, key -> nothing                         derived: an index of those
                                    of a list its first time, key -> nothing
    $min_<name>                     of a list with a TTL: key -> its first time             derived
    $count_<name>                   of a list with a TTL: key -> how many values            derived
    $rowCounter_<name>              of a list without one: key -> how many values           derived
    $procTimers_keyToTimestamp      key, time -> nothing, and $eventTimers_...              primary, kept, or follows
    $procTimers_timestampToKey      time, key -> nothing                                    derived: the same, by time

Spark's own TTL stores the expiry time, in milliseconds of processing time (``ttlExpirationMs``). Spark stores no time
for a variable without a TTL. A map's key is a prefix of its entries' keys, and the times are ordered. A list disappears
with its last value. Source: Spark's ``StatefulProcessorHandleImpl``, ``TTLState``, ``ListStateMetricsImpl`` and
``TimerStateImpl``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.metadata import StateVariable
from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY, ColumnFamilySchema
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.entries.descriptor import StateDescriptor, derived_among
from ttlsnap.errors import UnsupportedError
from ttlsnap.operators.stored_time import StoredTime
from ttlsnap.schema.types import StructType

if TYPE_CHECKING:
    from ttlsnap.avro.unsaferows import AvroRows
    from ttlsnap.operators.links import Link, StateId

NAMES = ("transformWithStateExec", "transformWithStateInPandasExec", "transformWithStateInPySparkExec")
_EXPIRATION = StoredTime("value.ttlExpirationMs:ms", TimeCharacteristic.PROCESSING, written_plus_ttl=True)
_KINDS = {"ValueState": "value", "ListState": "list", "MapState": "map"}
_INDEX, _FIRST, _COUNT, _COUNT_WITHOUT_TTL = _DERIVED = ("$ttl_", "$min_", "$count_", "$rowCounter_")
UNUSED = "unused"
"""The kind of a state in which Spark stores nothing."""

TIMERS = ("$procTimers_", "$eventTimers_")
_BY_KEY, _BY_TIME = "keyToTimestamp", "timestampToKey"


@dataclass(frozen=True)
class Variable:
    """A state variable for which Spark keeps more than its elements.

    ``index`` has the expiry times. For a list it has the first one of each key, and so has ``first``. ``counts`` has
    the numbers of a list's values. ``last_batch_ms`` is when the last batch began. A variable that ``returned`` was
    removed before: Spark's ``deleteIfExists`` leaves the other three states, and Spark continues with them.
    """

    option: ClassVar[str | None] = None

    elements: StateDescriptor
    last_batch_ms: int
    index: StateDescriptor | None = None
    first: StateDescriptor | None = None
    counts: StateDescriptor | None = None
    returned: bool = False

    @property
    def places(self) -> Mapping[StateId, StateDescriptor]:
        states = (self.elements, self.index, self.first, self.counts)
        return {state.place: state for state in states if state is not None}

    @property
    def followers(self) -> Mapping[StateId, StateDescriptor]:
        return derived_among(self.places)


@dataclass(frozen=True)
class Followers:
    """The variables that follow the ``deciding`` ones: a key loses them with the last of its entries in those."""

    option: ClassVar[str | None] = "variables"

    deciding: Mapping[StateId, StateDescriptor]
    following: Mapping[StateId, StateDescriptor]

    @property
    def places(self) -> Mapping[StateId, StateDescriptor]:
        return {**self.deciding, **self.following}

    @property
    def followers(self) -> Mapping[StateId, StateDescriptor]:
        return self.following


@dataclass(frozen=True)
class Timers:
    """The timers of an operator, and the states of its ``variables`` if the timers follow them."""

    option: ClassVar[str | None] = "timers"

    by_key: StateDescriptor
    by_time: StateDescriptor
    variables: Mapping[StateId, StateDescriptor]

    @property
    def places(self) -> Mapping[StateId, StateDescriptor]:
        return {self.by_key.place: self.by_key, self.by_time.place: self.by_time, **self.variables}

    @property
    def followers(self) -> Mapping[StateId, StateDescriptor]:
        return derived_among(self.places)

    @property
    def key_schema(self) -> StructType:
        """The schema of the keys of the timers."""
        schema = self.by_key.key_schema.fields[0].type
        assert isinstance(schema, StructType)
        return schema


def states(checkpoint: Checkpoint, operator: Operator, store: Store) -> list[StateDescriptor]:
    """Return a state for each column family. A variable is opaque if one of its derived states is."""
    descriptors = {family.name: _state(checkpoint, operator, store, family) for family in store.families}
    for variable in operator.variables:
        state = descriptors.get(variable.name)
        if state is None or state.opaque or state.kind not in ("value", "list", "map"):
            continue
        needed_kinds = [_INDEX] if variable.ttl else []
        if state.kind == "list":
            # Spark reads these numbers and does not count again, so a list can only change together with them.
            needed_kinds = [_INDEX, _FIRST, _COUNT] if variable.ttl else [_COUNT_WITHOUT_TTL]
        for name in (f"{kind}{variable.name}" for kind in needed_kinds):
            derived_state = descriptors.get(name)
            if derived_state is None or derived_state.opaque:
                descriptors[variable.name] = replace(
                    state, lists=False, opaque=f"{name}, which would have to follow it, is unknown"
                )
    return list(descriptors.values())


def unused_states(
    checkpoint: Checkpoint, operator: Operator, store: Store, stored_families: Collection[str]
) -> list[StateDescriptor]:
    """Return the states of ``stored_families`` that no variable of the query uses, in order. An earlier query had them.

    Spark keeps them, and what it derived from them. Those that no state schema describes are opaque.
    """
    families = {family.name: family for family in store.unused}
    earlier_operator = replace(operator, variables=_earlier_variables(store))
    descriptors = []
    for name in sorted(set(stored_families) - {family.name for family in store.families} - {DEFAULT_FAMILY}):
        if name in families:
            state = _state(checkpoint, earlier_operator, store, families[name])
        else:
            empty_family = ColumnFamilySchema(name, StructType(()), StructType(()))
            unknown_facts = {"kind": "unknown", "opaque": "no state schema describes it"}
            state = StateDescriptor.of(operator, store, empty_family, **unknown_facts)
        descriptors.append(replace(state, unused=True))
    return descriptors


def _earlier_variables(store: Store) -> tuple[StateVariable, ...]:
    """Return the variables to which the families that are unused belong, as their names and schemas show them."""
    unused_families = {family.name: family for family in store.unused}
    names = [name for name in dict.fromkeys(map(variable_in, unused_families)) if not name.startswith("$")]
    return tuple(
        StateVariable(name, _earlier_kind(unused_families, name), f"{_INDEX}{name}" in unused_families)
        for name in names
    )


def _earlier_kind(unused_families: Mapping[str, ColumnFamilySchema], name: str) -> str:
    if f"{_COUNT}{name}" in unused_families or f"{_COUNT_WITHOUT_TTL}{name}" in unused_families:
        return "ListState"
    if name in unused_families:
        return "ValueState" if unused_families[name].user_key is None else "MapState"
    # Only the index is unused: there is a new variable of this name, of another kind.
    index = unused_families.get(f"{_INDEX}{name}")
    elements = [field.type for field in index.key.fields[-1:]] if index is not None else []
    fields = [inner_field for element in elements if isinstance(element, StructType) for inner_field in element.fields]
    is_map = [inner_field.name for inner_field in fields if isinstance(inner_field.type, StructType)] == [
        "key",
        "userKey",
    ]
    return "MapState" if is_map else "ValueState"


def variable_in(name: str) -> str:
    """Return the variable that a state belongs to, which is the state itself or that from which it is derived."""
    prefix = next((prefix for prefix in _DERIVED if name.startswith(prefix)), "")
    return name.removeprefix(prefix)


def links(
    checkpoint: Checkpoint, operator: Operator, follow: bool, deciding: Collection[StateId] | None = None
) -> tuple[Link, ...]:
    """Return the links of each variable, and of the timers, which may ``follow`` the states of their keys.

    Other variables follow the ``deciding`` ones; None if they do not.
    """
    moment = checkpoint.batch.timestamp_ms
    return tuple(
        link
        for store in operator.stores
        for link in _links(states(checkpoint, operator, store), store.returned, moment, follow, deciding)
    )


def _links(
    descriptors: list[StateDescriptor],
    returned_states: Collection[str],
    last_batch_ms: int,
    follow: bool,
    deciding: Collection[StateId] | None,
) -> Iterator[Link]:
    readable_states = {state.state: state for state in descriptors if not state.opaque}
    for state in descriptors:
        if state.opaque and not state.state.startswith("$"):
            if follow:
                raise UnsupportedError(
                    f"{state}: {state.opaque}; ttlsnap cannot tell whether a key has state left; use --timers keep"
                )
            if deciding is not None:
                raise UnsupportedError(
                    f"{state}: {state.opaque}; ttlsnap cannot tell which of its entries belong to a key; use "
                    "--variables keep"
                )
    variables = {state.place: state for state in readable_states.values() if not state.state.startswith("$")}
    if deciding is not None:
        following = {place: state for place, state in variables.items() if place not in deciding}
        if following:
            yield Followers({place: variables[place] for place in variables if place in deciding}, following)
    for state in variables.values():
        of_variable = [
            readable_states.get(f"{kind}{state.state}") for kind in (_INDEX, _FIRST, _COUNT, _COUNT_WITHOUT_TTL)
        ]
        if any(of_variable):
            index, first_elements, counts, without_ttl = of_variable
            yield Variable(
                state, last_batch_ms, index, first_elements, counts or without_ttl, state.state in returned_states
            )
    for kind in TIMERS:
        by_key, by_time = readable_states.get(kind + _BY_KEY), readable_states.get(kind + _BY_TIME)
        if by_key is not None and by_time is not None:
            yield Timers(replace(by_key, role="derived"), by_time, variables) if follow else Timers(by_key, by_time, {})


def user_part(state: StateDescriptor) -> StructType | None:
    """Return the schema of a variable's values without their expiry times; None for a state without such times."""
    if state.stored_timestamp != _EXPIRATION.name:
        return None
    # With a TTL, the user's value is a struct beside ``ttlExpirationMs``.
    schema = state.value_schema.fields[0].type
    assert isinstance(schema, StructType)
    return schema


def derived_of(variable: str, *, has_ttl: bool) -> dict[str, str]:
    """Return the states that Spark derives from a variable, by name, and what each has of a key.

    That is an ``index`` of its time, its ``first`` time, or the ``count`` of its values; only lists have the last two.
    """
    if not has_ttl:
        return {f"{_COUNT_WITHOUT_TTL}{variable}": "count"}
    return {f"{_INDEX}{variable}": "index", f"{_FIRST}{variable}": "first", f"{_COUNT}{variable}": "count"}


def variable_of(name: str, variables: Iterable[str]) -> str | None:
    """Return the one of the ``variables`` from which the state ``name`` is derived; None if it is from none."""
    variable_of_name = {f"{kind}{variable}": variable for variable in variables for kind in _DERIVED}
    return variable_of_name.get(name)


def explain_kept(state: StateDescriptor) -> str | None:
    """Return why a state is read, but never changed by itself, or None."""
    return "a timer stays until it fires" if state.state.startswith(TIMERS) else None


def _state(checkpoint: Checkpoint, operator: Operator, store: Store, family: ColumnFamilySchema) -> StateDescriptor:
    encoder = family.key_encoder or {}
    layout = encoder.get("keyStateEncoderType", "NoPrefixKeyStateEncoderSpec")
    is_ordered = layout == "RangeKeyScanStateEncoderSpec"
    prefix = encoder.get("numColsPrefixKey", 0) if layout == "PrefixKeyScanStateEncoderSpec" else int(is_ordered)
    is_known = layout in ("NoPrefixKeyStateEncoderSpec", "PrefixKeyScanStateEncoderSpec") or (
        # Spark orders all its indexes by their first column, the time (TTLState and TimerStateImpl).
        is_ordered and encoder.get("orderingOrdinals") == [0]
    )
    kind, derived = _kind(operator, family.name) or ("unknown", True)
    opaque = {"unknown": "it is not known", UNUSED: "Spark stores nothing in it"}.get(kind)
    avro = None
    if opaque is None and checkpoint.encoding == "avro":
        avro = _avro(family, prefix, is_ordered)
        opaque = avro.unsupported
    elif checkpoint.encoding != "unsaferow":
        opaque = f"it is encoded as {checkpoint.encoding}"
    if not is_known:
        opaque = f"its keys are laid out as {layout}"
    variable = next((candidate for candidate in operator.variables if candidate.name == family.name), None)
    has_ttl = variable is not None and variable.ttl and opaque is None
    return StateDescriptor.of(
        operator,
        store,
        family,
        role="derived" if derived else "primary",
        **(_EXPIRATION.facts if has_ttl else {}),
        prefix_columns=prefix if opaque is None else 0,
        ordered_prefix=is_ordered,
        lists=kind == "list" and opaque is None,
        grouping=_grouping(operator, family.name, kind),
        kind=kind,
        avro=avro,
        opaque=opaque,
    )


def _grouping(operator: Operator, name: str, kind: str) -> tuple[int, ...]:
    """Return the place of the grouping columns in a key: beside a map's own key, or beside a time."""
    if kind == "map":
        return (0,)
    if kind == "timer":
        return (1,) if name.endswith(_BY_TIME) else (0,)
    if not name.startswith(_INDEX):
        return ()
    of_a_map = any(
        variable.kind == "MapState" for variable in operator.variables if variable.name == name.removeprefix(_INDEX)
    )
    # After the time, the index has the whole key of an element, which in a map is a struct of both keys.
    return (1, 0) if of_a_map else (1,)


def _avro(family: ColumnFamilySchema, prefix_columns: int, is_ordered: bool) -> AvroRows:
    from ttlsnap.avro.keys import KeyLayout  # slow imports, which few checkpoints need
    from ttlsnap.avro.unsaferows import AvroRows
    from ttlsnap.avro.values import ValueSchemas

    layout = KeyLayout(family.key, family.key_id, prefix_columns, is_ordered)
    return AvroRows(layout, ValueSchemas.of([*family.older, family]))


def unknown(operator: Operator, store: Store) -> str | None:
    """Return the first unknown column family of a store, or None. It may be linked with other entries."""
    names = [family.name for family in store.families if _kind(operator, family.name) is None]
    kinds = {variable.name: variable.kind for variable in operator.variables}
    unknown_parts = [f"{name}, a {kinds[name]}" for name in names if name in kinds]
    return next(iter(unknown_parts + names), None)


def _kind(operator: Operator, name: str) -> tuple[str, bool] | None:
    """Return the kind of a column family, and whether it is derived; None if unknown."""
    variables = {variable.name: variable for variable in operator.variables}
    if name == DEFAULT_FAMILY:
        return UNUSED, True  # the Scala API declares it, and stores nothing in it
    if name.startswith(TIMERS):
        name_part = name.rpartition("_")[2]
        return ("timer", name_part == _BY_TIME) if name_part in (_BY_KEY, _BY_TIME) else None
    if name in variables:
        kind = _KINDS.get(variables[name].kind)
        return None if kind is None else (kind, False)
    name_part = next((kind for kind in (_INDEX, _FIRST, _COUNT, _COUNT_WITHOUT_TTL) if name.startswith(kind)), "")
    variable = variables.get(name.removeprefix(name_part))
    if variable is None or variable.kind not in _KINDS:
        return None
    is_list = variable.kind == "ListState"
    if name_part == _COUNT_WITHOUT_TTL and is_list:
        return "count", True  # for a list with a TTL Spark declares it, but does not use it
    if not variable.ttl or (name_part != _INDEX and not is_list):
        return None
    return ("count" if name_part == _COUNT else "index"), True
