"""Stream-stream join (``symmetricHashJoin``), state formats 1 and 2 in four stores, 3 in column families of one.

Each side, left and right, keeps

    <side>-keyWithIndexToValue    key fields, index -> the buffered row [, matched]     primary: an entry is a row
    <side>-keyToNumValues         key fields -> how many                                derived: counted from those

The rows of one key have the indexes 0 to n - 1. Where rows go, the last of the key's rows that stay move into the gaps,
as Spark itself does it: which row has which index means nothing. ``matched`` (from format 2 on) says whether a row has
joined; in an outer join one that has not still has to come out with nulls. (With format 1 Spark runs inner joins only.)

The row's column with a watermark, on the event clock, is the time by which a user may drop it. It is no moment of
expiry: until when a row is needed follows from the join's condition, which no file holds. Source: Spark's
``SymmetricHashJoinStateManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.operators.aggregation import watermarked_column
from ttlsnap.state import SIDES, StateDescriptor

if TYPE_CHECKING:
    from ttlsnap.links import Link, LinkWork, Place

NAME = "symmetricHashJoin"
VALUES = "keyWithIndexToValue"
COUNTS = "keyToNumValues"
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


def states(checkpoint: Checkpoint, operator: Operator, store: Store) -> list[StateDescriptor] | None:
    """The states of a join's store; None where its names are not those of formats 1 to 3."""
    found = []
    for family in store.families:
        side, kind = _parts(store.name if len(operator.stores) > 1 else family.name)
        if kind is None:
            return None
        time = watermarked_column(family.key, family.value, "value") if kind == VALUES else None
        found.append(
            StateDescriptor.of(
                operator,
                store,
                family,
                role="primary" if kind == VALUES else "derived",
                stored_timestamp=time,
                stored_time="event" if time else None,
                expires=False,
                side=side,
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
    if set(described) != {(side, kind) for side in SIDES for kind in (VALUES, COUNTS)}:
        return ()
    has_matched = state_format(checkpoint) != "1"
    return tuple(IndexedSide(described[side, VALUES], described[side, COUNTS], has_matched) for side in SIDES)


def state_format(checkpoint: Checkpoint) -> str:
    """The join's state format, which the checkpoint pins for all its joins."""
    return checkpoint.batch.conf.get(_FORMAT, "1")


def _parts(name: str) -> tuple[str | None, str | None]:
    side, _, kind = name.partition("-")
    return (side, kind) if side in SIDES and kind in (VALUES, COUNTS) else (None, None)
