"""transformWithState, in Scala, with pandas and with rows (RocksDB only). Each state variable is a state of its own.

    <name>                          key -> value; of a map key and user key -> value        primary
    <name>, with a TTL              the same -> value, ttlExpirationMs                      primary
    $ttl_<name>                     ttlExpirationMs, key -> nothing                         derived: an index of those
    $procTimers_keyToTimestamp      key, moment -> nothing, and $eventTimers_...            primary, always kept
    $procTimers_timestampToKey      moment, key -> nothing                                  derived: the other way round

Spark's own TTL stores the moment of expiry, in milliseconds, in processing time (``ttlExpirationMs``). It stores no
time for a variable without one. A map's key is a prefix of its entries' keys, the moments are ordered. Lists (with
their counters ``$rowCounter_``, ``$count_`` and ``$min_``) and whatever is encoded in Avro are copied as they are.
Source: Spark's ``StatefulProcessorHandleImpl``, ``TTLState`` and ``TimerStateImpl``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.state import StateDescriptor

if TYPE_CHECKING:
    from ttlsnap.links import Link, LinkWork, Place

NAMES = ("transformWithStateExec", "transformWithStateInPandasExec", "transformWithStateInPySparkExec")
_ROWS = ("ValueState", "MapState")
_INDEX = "$ttl_"
_TIMERS = ("$procTimers_", "$eventTimers_")
_BY_KEY = "keyToTimestamp"


@dataclass(frozen=True)
class TtlIndex:
    """A value or map variable with a TTL, and the index of its moments of expiry."""

    elements: StateDescriptor
    index: StateDescriptor

    @property
    def places(self) -> Mapping[Place, StateDescriptor]:
        return {state.place: state for state in (self.elements, self.index)}

    def begin(self, where: str) -> LinkWork:
        from ttlsnap.operators.ttl_index import IndexedElements

        return IndexedElements(self, where)


def states(checkpoint: Checkpoint, operator: Operator, store: Store) -> list[StateDescriptor]:
    """One for each column family."""
    return [_state(checkpoint, operator, store, family) for family in store.families]


def links(checkpoint: Checkpoint, operator: Operator) -> tuple[Link, ...]:
    """Each variable with a TTL that is read, and its index."""
    found: list[Link] = []
    for store in operator.stores:
        described = {state.state: state for state in states(checkpoint, operator, store)}
        for name, index in described.items():
            elements = described.get(name.removeprefix(_INDEX))
            if name.startswith(_INDEX) and elements is not None and not index.opaque and not elements.opaque:
                found.append(TtlIndex(elements, index))
    return tuple(found)


def kept(state: StateDescriptor) -> str | None:
    """Why a state is read, but never changed by itself, if so."""
    return "a timer stays until it fires" if state.state.startswith(_TIMERS) else None


def _state(checkpoint: Checkpoint, operator: Operator, store: Store, family: ColumnFamilySchema) -> StateDescriptor:
    encoder = family.key_encoder or {}
    kind = encoder.get("keyStateEncoderType", "NoPrefixKeyStateEncoderSpec")
    ordered = kind == "RangeKeyScanStateEncoderSpec"
    prefix = encoder.get("numColsPrefixKey", 0) if kind == "PrefixKeyScanStateEncoderSpec" else int(ordered)
    known = kind in ("NoPrefixKeyStateEncoderSpec", "PrefixKeyScanStateEncoderSpec") or (
        ordered and encoder.get("orderingOrdinals") == [0]
    )
    variables = {variable.name: variable for variable in operator.variables}
    variable = variables.get(family.name)
    indexed = variables.get(family.name.removeprefix(_INDEX)) if family.name.startswith(_INDEX) else None
    is_timer = family.name.startswith(_TIMERS)
    derived = variable is None if not is_timer else not family.name.endswith(_BY_KEY)
    opaque = None
    if checkpoint.encoding != "unsaferow":
        opaque = f"it is encoded as {checkpoint.encoding}"
    elif not known:
        opaque = f"its keys are laid out as {kind}"
    elif is_timer or (indexed is not None and indexed.kind in _ROWS):
        pass
    elif variable is None:
        opaque = "it is derived from other states"
    elif variable.kind not in _ROWS:
        opaque = f"it is a {variable.kind}"
    has_ttl = variable is not None and variable.ttl and opaque is None
    return StateDescriptor.of(
        operator,
        store,
        family,
        role="derived" if derived else "primary",
        stored_timestamp="value.ttlExpirationMs:ms" if has_ttl else None,
        stored_time=TimeCharacteristic.PROCESSING.value if has_ttl else None,
        prefix_columns=prefix if opaque is None else 0,
        ordered_prefix=ordered,
        opaque=opaque,
    )
