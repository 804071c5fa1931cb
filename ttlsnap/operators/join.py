"""Stream-stream join (``symmetricHashJoin``), formats 1 and 2 in four stores, 3 and 4 in column families of one.

Each side, left and right, keeps

    <side>-keyWithIndexToValue    key fields, index -> the buffered row [, matched]     primary: an entry is a row
    <side>-keyToNumValues         key fields -> how many                                derived: counted from those

The rows of one key have the indexes 0 to n - 1. Where rows go, the last of the key's rows that stay move into the gaps,
as Spark itself does it: which row has which index means nothing. ``matched`` (from format 2 on) says whether a row has
joined; in an outer join one that has not still has to come out with nulls. (With format 1 Spark runs inner joins only.)

Format 4 (RocksDB, Spark 4.2 and later) keeps for each side

    <side>-keyWithTsToValues      key fields, time -> the buffered rows, matched        primary: an entry is a row
    <side>-tsWithKey              time, key fields -> nothing, once for each row        derived: by which Spark evicts

The row's column with a watermark, on the event clock, is the time by which a user may drop it. It is no moment of
expiry: until when a row is needed follows from the join's condition, which no file holds. Source: Spark's
``SymmetricHashJoinStateManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.operators.aggregation import watermarked_column
from ttlsnap.schema.types import NullType
from ttlsnap.state import SIDES, StateDescriptor

if TYPE_CHECKING:
    from ttlsnap.links import Link, LinkWork, Place

NAME = "symmetricHashJoin"
VALUES = "keyWithIndexToValue"
COUNTS = "keyToNumValues"
MATCHED = "matched"
TIMED_VALUES = "keyWithTsToValues"
TIMES = "tsWithKey"
_ROWS = (VALUES, TIMED_VALUES)
_KINDS = {VALUES: "row", COUNTS: "count", TIMED_VALUES: "row", TIMES: "index"}
_KEY_TIMES = {TIMED_VALUES: ("behind", "TimestampAsPostfix"), TIMES: ("before", "TimestampAsPrefix")}
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


@dataclass(frozen=True)
class IndexedSide:
    """One side of a join of format 1, 2 or 3: its rows and their counts."""

    values: StateDescriptor
    counts: StateDescriptor
    has_matched: bool

    @property
    def places(self) -> Mapping[Place, StateDescriptor]:
        return {state.place: state for state in (self.values, self.counts)}

    def begin(self, where: str) -> LinkWork:
        from ttlsnap.operators.join_rows import IndexedRows

        return IndexedRows(self, where)


@dataclass(frozen=True)
class TimedSide:
    """One side of a join of format 4: its rows, and the index of their times."""

    values: StateDescriptor
    times: StateDescriptor

    @property
    def places(self) -> Mapping[Place, StateDescriptor]:
        return {state.place: state for state in (self.values, self.times)}

    def begin(self, where: str) -> LinkWork:
        from ttlsnap.operators.join_rows import TimedRows

        return TimedRows(self, where)


def states(checkpoint: Checkpoint, operator: Operator, store: Store) -> list[StateDescriptor] | None:
    """The states of a join's store; None where its names or its keys are not those of formats 1 to 4."""
    found = []
    for family in store.families:
        side, kind = _parts(store.name if len(operator.stores) > 1 else family.name)
        key_time, encoder = _KEY_TIMES.get(kind or "", (None, ""))
        if kind is None or (encoder and not _is_known(family, kind, encoder)):
            return None
        time = watermarked_column(family.key, family.value, "value") if kind in _ROWS else None
        found.append(
            StateDescriptor.of(
                operator,
                store,
                family,
                role="primary" if kind in _ROWS else "derived",
                stored_timestamp=time,
                stored_time="event" if time else None,
                expires=False,
                side=side,
                key_time=key_time,
                lists=key_time is not None,
                kind=_KINDS[kind],
            )
        )
    return found


def links(checkpoint: Checkpoint, operator: Operator) -> tuple[Link, ...]:
    """Each side's rows with their counts; nothing where the stores are not those of a format that is known."""
    described = {
        (state.side, _parts(place)[1]): state
        for store in operator.stores
        for state in states(checkpoint, operator, store) or ()
        for place in (state.store, state.state)
        if _parts(place)[1] is not None
    }
    if set(described) == {(side, kind) for side in SIDES for kind in (TIMED_VALUES, TIMES)}:
        return tuple(TimedSide(described[side, TIMED_VALUES], described[side, TIMES]) for side in SIDES)
    if set(described) != {(side, kind) for side in SIDES for kind in (VALUES, COUNTS)}:
        return ()
    has_matched = state_format(checkpoint) != "1"
    return tuple(IndexedSide(described[side, VALUES], described[side, COUNTS], has_matched) for side in SIDES)


def state_format(checkpoint: Checkpoint) -> str:
    """The join's state format, which the checkpoint pins for all its joins."""
    return checkpoint.batch.conf.get(_FORMAT, "1")


def _parts(name: str) -> tuple[str | None, str | None]:
    side, _, kind = name.partition("-")
    return (side, kind) if side in SIDES and kind in _KINDS else (None, None)


def _is_known(family: ColumnFamilySchema, kind: str, encoder: str) -> bool:
    """Whether keys are laid out as format 4 is known to; and the index, as each of its entries is of one row."""
    if (family.key_encoder or {}).get("keyStateEncoderType") != f"{encoder}KeyStateEncoderSpec":
        return False
    return kind == TIMED_VALUES or [type(field.type) for field in family.value.fields] == [NullType]
