"""Time-to-live: an entry goes when ``timestamp + ttl <= now``.

The limit is inclusive, as in Flink. A null timestamp never expires: an entry without a time is kept, and counted. A
negative one is an ordinary moment before 1970. The sum cannot overflow.

Which field is the timestamp is named (``value.last_seen``, ``key.window.end``, with a unit where it is a number:
``value.seen:ms``), or it is the one that Spark itself stores for the operator. A state that has no such field is
left alone, and the report says so; a field that no state has is an error that lists those there are.

What is read of each entry is one 8-byte word, and the words that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from ttlsnap.clock import MAX_INT64, MIN_INT64, Clock, TimeCharacteristic
from ttlsnap.entries import StateEntries
from ttlsnap.errors import UsageError
from ttlsnap.operators import aggregation, group_state, session_window
from ttlsnap.state import SIDES, StateDescriptor
from ttlsnap.timestamps import TimestampField, field_listing, split_unit, timestamp_field
from ttlsnap.transform import CollectionStrategy, Cutoff, StateSnapshotTransformer, TimeSummary
from ttlsnap.transformers.config import StateTtlConfig
from ttlsnap.units import parse_duration

# What is the moment of writing and a duration; a window's end, or an event's own time, is not.
_WRITTEN_PLUS_TTL = ("value.ttlExpirationMs:ms", "value.expiresAtMicros:us", "value.timeoutTimestamp:ms")
_SIDES = tuple(f"{side}:" for side in SIDES)

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def expired(timestamp: Int64, ttl: int, now: int) -> Mask:
    """Where ``timestamp + ttl <= now``, as if integers had no end.

    ``timestamp`` is int64[n]; ``ttl`` (not negative) and ``now`` are int64; all in one unit. Flink's rule, from its
    ``TtlUtils``: the ttl is cut to what the timestamp leaves room for.
    """
    room = np.where(timestamp > 0, MAX_INT64 - np.maximum(timestamp, 0), ttl)
    result: Mask = timestamp + np.minimum(ttl, room) <= now
    return result


@dataclass(frozen=True)
class TtlTransformerFactory:
    """Drops what has outlived ``ttl``.

    ``config`` None means: no ttl beyond the moment of expiry that Spark stores, and states for which Spark stores
    none are left alone. ``timestamp`` names the field; None is what Spark stores for the operator. Of several names
    each is for one side of a join, which stands before it: ``left:value.at``. ``old_ttl_us`` is taken off the moment of
    expiry that Spark stores, so that the ttl counts from the moment of writing. ``strategy`` says how far lists are
    looked at.
    """

    config: StateTtlConfig | None = None
    timestamp: str | tuple[str, ...] | None = None
    time: TimeCharacteristic | None = None
    old_ttl_us: int = 0
    strategy: CollectionStrategy = CollectionStrategy.TRANSFORM_ALL

    @classmethod
    def from_options(cls, options: dict[str, str]) -> TtlTransformerFactory:
        """From ``--set``: ``ttl``, ``timestamp``, ``time``, ``old_ttl``, ``strategy``."""
        known = ("ttl", "timestamp", "time", "old_ttl", "strategy")
        unknown = set(options) - set(known)
        if unknown:
            raise UsageError(f"the ttl transformer has no option {sorted(unknown)[0]!r}; it has {', '.join(known)}")
        ttl, time, old_ttl = options.get("ttl"), options.get("time"), options.get("old_ttl")
        return cls(
            StateTtlConfig(parse_duration(ttl)) if ttl else None,
            options.get("timestamp"),
            _characteristic(time) if time else None,
            parse_duration(old_ttl) if old_ttl else 0,
            CollectionStrategy.parse(options.get("strategy", CollectionStrategy.TRANSFORM_ALL)),
        )

    def plan(self, states: Sequence[StateDescriptor], clock: Clock) -> list[str | None]:
        """Why each state is left alone, if it is. Raises UsageError when none has the field that was named."""
        if self.old_ttl_us and (self.config is None or self._names):
            raise UsageError(
                "--old-ttl is taken off the moment of expiry that Spark stores: it needs --ttl, how long an entry is "
                "to live from the moment of writing, and no --timestamp"
            )
        if not states and self._names:
            raise UsageError(f"no state that may be changed has the field {split_unit(self._names[0])[0]}")
        reasons = [self._reason(state) for state in states]
        self._check_names(states)
        if states and all(reasons) and (self.timestamp is not None or self.config is not None):
            raise UsageError(f"{reasons[0]}.\nThe fields there are:\n{field_listing(states)}")
        for state, reason in zip(states, reasons, strict=True):
            if reason is None:
                clock.of(state.operator).now(self._time(state))
        return reasons

    def _check_names(self, states: Sequence[StateDescriptor]) -> None:
        """What was named for one side of a join must be there."""
        for name in self._names:
            side, _, field = name.partition(":")
            if not name.startswith(_SIDES):
                continue
            meant = [state for state in states if state.side == side]
            if not any(state.field(split_unit(field)[0]) for state in meant):
                raise UsageError(
                    f"--timestamp {name}: no state of a {side} side has the field {split_unit(field)[0]}.\n"
                    f"The fields there are:\n{field_listing(states)}"
                )

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        """A transformer for ``state``; None when it lacks the field."""
        if self._reason(state) is not None:
            return None
        ttl = self.config.ttl_us if self.config else 0
        time = self._time(state)
        now, stored = clock.now(time), self._stored(state)
        implied = self._implied and not self.old_ttl_us
        return _TtlTransformer(
            state, self._field(state), ttl, now, time, stored, clock.watermark_us, implied, self.old_ttl_us
        )

    def with_names(self, spelled: Callable[[str], str]) -> TtlTransformerFactory:
        """The same with its timestamps' names spelled another way."""
        return replace(self, timestamp=tuple(map(spelled, self._names)) or None)

    def cutoff(self, state: StateDescriptor, clock: Clock) -> Cutoff | None:
        """The last moment that has expired; None when ``state`` lacks the field."""
        if self._reason(state) is not None:
            return None
        time = self._time(state)
        now = clock.now(time)
        ttl = self.config.ttl_us if self.config else 0
        return Cutoff(self._field(state), max(now - ttl, MIN_INT64), now, time.value)

    def _reason(self, state: StateDescriptor) -> str | None:
        name = self._name(state)
        if name is None and self._names:
            return f"no --timestamp is for the {state.side} side" if state.side else "every --timestamp is for a join"
        if name is None:
            hint = "; name one with --timestamp" if self.config else "; give --ttl and --timestamp to expire it"
            return f"no timestamp is known that Spark stores for {state.operator_name or 'this operator'}{hint}"
        if self._names and self.config is None:
            raise UsageError("--timestamp needs --ttl: how long is an entry to live after that time?")
        if not self._names and state.stored_time is None and self.time is None:
            return f"whether {name} is in event or in processing time is not recorded; say which with --time"
        if self.old_ttl_us and name not in _WRITTEN_PLUS_TTL:
            return f"{name} is no moment of writing and a ttl, from which that could be taken"
        if self.config is None and not state.expires:
            return f"{name} is no moment of expiry; give --ttl to say how long after it an entry may go"
        path, _ = split_unit(name)
        if state.field(path) is None:
            return f"{state} has no field {path}"
        return None

    @property
    def _implied(self) -> bool:
        """Whether no field was asked for: what Spark itself holds to be expired, or a ttl beyond that."""
        return self.timestamp is None

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.timestamp,) if isinstance(self.timestamp, str) else self.timestamp or ()

    def _name(self, state: StateDescriptor) -> str | None:
        """The field that is meant for ``state``: one that was named, or what Spark stores."""
        if not self._names:
            return state.stored_timestamp
        sides = [tuple(name.split(":", 1)) if name.startswith(_SIDES) else ("", name) for name in self._names]
        mine = [name for side, name in sides if side == state.side] or [name for side, name in sides if not side]
        if len(mine) > 1:
            raise UsageError(
                f"--timestamp is {' and '.join(mine)}: a state has one, and each side of a join may have one"
            )
        return mine[0] if mine else None

    def _stored(self, state: StateDescriptor) -> TimestampField | None:
        """The event time at which Spark evicts an entry, where it stores one."""
        if state.stored_timestamp is None or state.stored_time != "event":
            return None
        return timestamp_field(state, state.stored_timestamp)

    def _field(self, state: StateDescriptor) -> TimestampField:
        name = self._name(state)
        assert name is not None
        return timestamp_field(state, name)

    def _time(self, state: StateDescriptor) -> TimeCharacteristic:
        if self.time is not None:
            return self.time
        if self.config is not None and self.config.time_characteristic is not None:
            return self.config.time_characteristic
        if state.stored_time is not None and self.timestamp is None:
            return TimeCharacteristic(state.stored_time)
        stored = self._stored(state)
        # A field of the same column, as a window's start is of its end's, is on the same clock.
        if stored is not None and self._field(state).field.column == stored.field.column:
            return TimeCharacteristic.EVENT
        return TimeCharacteristic.PROCESSING


class _TtlTransformer:
    def __init__(
        self,
        state: StateDescriptor,
        field: TimestampField,
        ttl: int,
        now: int,
        time: TimeCharacteristic,
        stored: TimestampField | None,
        watermark: int | None,
        implied: bool,
        old_ttl: int,
    ) -> None:
        self._field, self._ttl, self._now, self._time, self._old_ttl = field, ttl, now, time, old_ttl
        self._watermark, self._implied = watermark, implied
        # Only an aggregation has results that come out when Spark closes a group.
        self._emits = state.operator_name in (None, aggregation.NAME, session_window.NAME)
        timeout = group_state.stored_timestamp(state.value_schema)
        self._timeout = timestamp_field(state, timeout) if timeout else None
        if self._timeout is not None and implied and field.field == self._timeout.field:
            self._ttl += 1  # microsecond: Spark calls a group only when its moment lies before now
        # Spark does not close a group at its timeout, nor a join's row at its time.
        self._stored = stored if state.expires and timeout is None else None
        self._oldest: int | None = None
        self._newest: int | None = None
        self._nulls = self._unclosed = 0

    def moments(self, entries: StateEntries) -> tuple[Int64, Mask]:
        """See ``TellsMoments``."""
        moments, nulls = self._field.read(entries)
        if self._old_ttl:
            moments = np.maximum(moments, MIN_INT64 + self._old_ttl) - self._old_ttl
        return moments, nulls

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        moments, nulls = self.moments(entries)
        known = moments[~nulls] if nulls.any() else moments
        if len(known):
            low, high = int(known.min()), int(known.max())
            self._oldest = low if self._oldest is None else min(self._oldest, low)
            self._newest = high if self._newest is None else max(self._newest, high)
        self._nulls += len(moments) - len(known)
        gone = expired(moments, self._ttl, self._now) & ~nulls
        if self._stored is not None and self._watermark is not None and gone.any():
            self._check_against_spark(entries.filter(gone), self._stored, self._watermark)
        if self._timeout is not None and gone.any():
            self._unclosed += int((~self._timeout.read(entries.filter(gone))[1]).sum())
        return entries.filter(~gone)

    def _check_against_spark(self, gone: StateEntries, stored: TimestampField, watermark: int) -> None:
        """Count what Spark had still to close, and refuse to take for expired what Spark itself keeps."""
        moments, nulls = stored.read(gone)
        closed = (moments <= watermark) & ~nulls
        if self._implied and closed.any():
            raise UsageError(
                f"{stored.field.name} of {int(closed.sum())} entries lies behind the watermark, and Spark keeps them "
                "all the same, as it does in complete mode: what it holds to be expired cannot be told. To drop by "
                f"that time nevertheless, say so: --ttl DURATION --timestamp {stored.field.name}"
            )
        if self._emits:
            self._unclosed += len(gone) - int(closed.sum())

    def time_summary(self) -> TimeSummary:
        return TimeSummary(
            self._field.field.name,
            self._now,
            self._oldest,
            self._newest,
            self._nulls,
            self._unclosed,
            self._time.value,
            self._field.unit,
        )


def _characteristic(text: str) -> TimeCharacteristic:
    try:
        return TimeCharacteristic(text)
    except ValueError as error:
        raise UsageError(f"time is 'event' or 'processing', not {text!r}") from error
