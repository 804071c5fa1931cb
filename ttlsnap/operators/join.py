"""Stream-stream join (``symmetricHashJoin``): formats 1 and 2 in four stores, 3 and 4 in column families of one store.

Each side, left and right, has

    <side>-keyWithIndexToValue    key fields, index -> the buffered row [, matched]     primary: an entry is a row
    <side>-keyToNumValues         key fields -> their number                             derived: the counts of those

The rows of one key have the indexes 0 to n - 1. When rows are dropped, the last kept rows of the key move into the
gaps, as in Spark itself: an index has no other meaning. ``matched`` (from format 2 on) says whether a row has joined.
In an outer join, Spark still emits a row that has not, with nulls. (With format 1, Spark runs only inner joins.)

Format 4 (RocksDB, Spark 4.2 and later) has for each side

    <side>-keyWithTsToValues      key fields, time -> the buffered rows, matched        primary: an entry is a row
    <side>-tsWithKey              time, key fields -> nothing, once for each row        derived: by which Spark evicts

The row's column with a watermark, on the event clock, is the time by which a user may drop it. It is not an expiry
time: the join's condition decides how long a row is needed, and no file records it. Source: Spark's
``SymmetricHashJoinStateManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.entries.descriptor import SIDES, StateDescriptor, derived_among
from ttlsnap.operators.aggregation import times_of, watermarked_column
from ttlsnap.schema.types import BooleanType, LongType, NullType, StructField, StructType

if TYPE_CHECKING:
    from ttlsnap.operators.links import Link, StateId

NAME = "symmetricHashJoin"
VALUES = "keyWithIndexToValue"
COUNTS = "keyToNumValues"
MATCHED = "matched"
TIMED_VALUES = "keyWithTsToValues"
TIMES = "tsWithKey"
_ROWS = (VALUES, TIMED_VALUES)
_KINDS = {VALUES: "row", COUNTS: "count", TIMED_VALUES: "row", TIMES: "index"}
# Rows are found by their key, and evicted by their time. So Spark stores the time behind the key, and in the index
# before it.
_KEY_TIMES = {TIMED_VALUES: ("after", "TimestampAsPostfix"), TIMES: ("before", "TimestampAsPrefix")}
_TIME, _NOTHING = "__event_time", "__dummy__"
FORMAT = "spark.sql.streaming.join.stateFormatVersion"


@dataclass(frozen=True)
class IndexedSide:
    """One side of a join of format 1, 2 or 3: its rows and their counts."""

    option: ClassVar[str | None] = None

    values: StateDescriptor
    counts: StateDescriptor
    has_matched: bool

    @property
    def places(self) -> Mapping[StateId, StateDescriptor]:
        return {state.place: state for state in (self.values, self.counts)}

    @property
    def followers(self) -> Mapping[StateId, StateDescriptor]:
        return derived_among(self.places)


@dataclass(frozen=True)
class TimedSide:
    """One side of a join of format 4: its rows, and the index of their times."""

    option: ClassVar[str | None] = None

    values: StateDescriptor
    times: StateDescriptor

    @property
    def places(self) -> Mapping[StateId, StateDescriptor]:
        return {state.place: state for state in (self.values, self.times)}

    @property
    def followers(self) -> Mapping[StateId, StateDescriptor]:
        return derived_among(self.places)


def states(checkpoint: Checkpoint, operator: Operator, store: Store) -> list[StateDescriptor] | None:
    """Return the states of a join's store; None if its names or keys are not those of formats 1 to 4."""
    descriptors = []
    for family in store.families:
        # Formats 1 and 2 have a store for each kind, and formats 3 and 4 a column family.
        side, kind = _parts(store.name if len(operator.stores) > 1 else family.name)
        key_time, encoder = _KEY_TIMES.get(kind or "", (None, ""))
        if kind is None or (encoder and not _is_known(family, kind, encoder)):
            return None
        # No file says how long a row is needed: the join's condition is not stored.
        time = watermarked_column(family.key, family.value, "value") if kind in _ROWS else None
        has_watermark = checkpoint.batch.watermark_ms is not None and kind in _ROWS
        unrecorded = times_of(family.key, family.value, "value") if has_watermark and time is None else ()
        descriptors.append(
            StateDescriptor.of(
                operator,
                store,
                family,
                role="primary" if kind in _ROWS else "derived",
                stored_timestamp=time,
                stored_time="event" if time else None,
                unrecorded_times=unrecorded,
                expires=False,
                side=side,
                key_time=key_time,
                # In format 4 the rows of a key and a time are one value, which RocksDB merges. So are the entries of
                # the index.
                lists=key_time is not None,
                # The last column of a key is the row's number or time, which Spark does not hash.
                grouping_without_last=kind != COUNTS,
                kind=_KINDS[kind],
            )
        )
    return descriptors


def links(checkpoint: Checkpoint, operator: Operator) -> tuple[Link, ...]:
    """Return the links of each side's rows and counts; none if the format is unknown."""
    descriptors = described_in(checkpoint, operator)
    if set(descriptors) == {(side, kind) for side in SIDES for kind in (TIMED_VALUES, TIMES)}:
        return tuple(TimedSide(descriptors[side, TIMED_VALUES], descriptors[side, TIMES]) for side in SIDES)
    if set(descriptors) != {(side, kind) for side in SIDES for kind in (VALUES, COUNTS)}:
        return ()
    has_matched = state_format(checkpoint) != "1"
    return tuple(IndexedSide(descriptors[side, VALUES], descriptors[side, COUNTS], has_matched) for side in SIDES)


def state_format(checkpoint: Checkpoint) -> str:
    """Return the join's state format, which the checkpoint pins for all its joins."""
    # What Spark takes for a log that does not pin it (OffsetSeqMetadata.relevantSQLConfDefaultValues).
    return checkpoint.batch.conf.get(FORMAT, "1")


def has_rows(state: str) -> bool:
    """Return whether a column family has rows, and not what is derived from them."""
    return _parts(state)[1] in _ROWS


def is_timed(number: str) -> bool:
    """Return whether rows are found by their times (format 4), and not by their numbers."""
    return number == "4"


def families_of(
    number: str, descriptors: Mapping[tuple[str, str], StateDescriptor], *, has_matched: bool
) -> list[ColumnFamilySchema]:
    """Return the column families of format 3 or 4, in Spark's order.

    ``descriptors`` has a join's states of format 1 to 3 by their sides and kinds.
    """
    families = []
    for (side, kind), state in sorted(descriptors.items()):
        key, value = state.key_schema, state.value_schema
        if kind == VALUES and not has_matched:
            value = with_matched(value)
        encoder = "NoPrefix"
        if is_timed(number):
            kind = TIMED_VALUES if kind == VALUES else TIMES
            encoder = _KEY_TIMES[kind][1]
            columns = descriptors[side, COUNTS].key_schema.fields
            key = StructType((*columns, StructField(_TIME, LongType(), nullable=False)))
            value = value if kind == TIMED_VALUES else StructType((StructField(_NOTHING, NullType()),))
        spec = {"keyStateEncoderType": f"{encoder}KeyStateEncoderSpec"}
        families.append(ColumnFamilySchema(f"{side}-{kind}", key, value, spec))
    return sorted(families, key=attrgetter("name"))


def with_matched(value: StructType) -> StructType:
    """Return the schema of a row with the flag that format 1 lacks."""
    return StructType((*value.fields, StructField(MATCHED, BooleanType())))


def described_in(checkpoint: Checkpoint, operator: Operator) -> dict[tuple[str, str], StateDescriptor]:
    """Return the states of a join by their sides and kinds."""
    return {
        (side, kind): state
        for store in operator.stores
        for state in states(checkpoint, operator, store) or ()
        for place in (state.store, state.state)
        for side, kind in [_parts(place)]
        if side is not None and kind is not None
    }


def _parts(name: str) -> tuple[str | None, str | None]:
    side, _, kind = name.partition("-")
    return (side, kind) if side in SIDES and kind in _KINDS else (None, None)


def _is_known(family: ColumnFamilySchema, kind: str, encoder: str) -> bool:
    """Return whether the keys of rows and index have the known layout of format 4."""
    if (family.key_encoder or {}).get("keyStateEncoderType") != f"{encoder}KeyStateEncoderSpec":
        return False
    return kind == TIMED_VALUES or [type(field.type) for field in family.value.fields] == [NullType]
