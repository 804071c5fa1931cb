"""Time-to-live: an entry expires when ``timestamp + ttl <= now``.

The limit is inclusive, as in Flink. A null timestamp never expires: an entry without a time is kept and counted. A
negative one is a time before 1970. The sum cannot overflow.

The user names the field of the timestamp (``value.last_seen``, ``key.window.end``, with a unit if it is a number:
``value.seen:ms``). The default is the time that Spark itself stores for the operator. A state without the field stays
unchanged, and the report says so. A field that no state has is an error, which lists the fields.

Of each entry, only one 8-byte word and the words that lead to it are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from ttlsnap.amounts import quantity
from ttlsnap.clock import MAX_INT64, MIN_INT64, Clock, TimeCharacteristic
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import (
    WRITTEN,
    TimestampField,
    WrittenField,
    explain_unnamed,
    field_listing,
    field_names,
    has_time,
    name_for,
    require_fields,
    split_side,
    split_unit,
    timestamp_field,
)
from ttlsnap.errors import UsageError
from ttlsnap.pages.words import SPARKS_TIMES
from ttlsnap.parameters import convert
from ttlsnap.quoting import quotes_nothing
from ttlsnap.schema.units import format_duration, parse_duration
from ttlsnap.suggestions import did_you_mean
from ttlsnap.transform.protocols import CollectionStrategy, Cutoff, TimeSummary, Transformer, TransformerFactory
from ttlsnap.transformers.config import StateTtlConfig, UpdateType

OFF = f"its update type is {UpdateType.DISABLED}, so the state does not expire"
"""Why a state stays unchanged whose TTL is switched off."""

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def expired(timestamp: Int64, ttl: int, now: int) -> Mask:
    """Return where ``timestamp + ttl <= now``, without overflow.

    ``timestamp`` is int64[n]; ``ttl`` (not negative) and ``now`` are int64; all have the same unit. The rule is that of
    Flink's ``TtlUtils``: the TTL is limited so that the sum fits.
    """
    room = np.where(timestamp > 0, MAX_INT64 - np.maximum(timestamp, 0), ttl)
    result: Mask = timestamp + np.minimum(ttl, room) <= now
    return result


@dataclass(frozen=True)
class TtlTransformerFactory(TransformerFactory):
    """Drop entries that have expired.

    ``config`` None means: entries expire at the time that Spark stores, and states without one stay unchanged.
    ``timestamp`` names the field; None means the time that Spark stores. Of several names, each is for the states that
    have the field, or for a side of a join: ``left:value.at``. ``old_ttl_us`` is subtracted from the expiry time that
    Spark stores, so that the TTL counts from the time of writing. ``strategy`` says which values of a list are
    examined.
    """

    config: StateTtlConfig | None = None
    timestamp: str | tuple[str, ...] | None = None
    time: TimeCharacteristic | None = None
    old_ttl_us: int = 0
    strategy: CollectionStrategy = CollectionStrategy.TRANSFORM_ALL

    def __post_init__(self) -> None:
        """Raise UsageError for values of other types. A list of names becomes a tuple, and a text a clock."""
        if isinstance(self.config, str):
            raise UsageError(f"config is {self.config!r}; pass StateTtlConfig.of({self.config!r})")
        convert("config", self.config, StateTtlConfig | None)
        timestamp = convert("timestamp", self.timestamp, str | Sequence[str] | None)
        object.__setattr__(self, "timestamp", timestamp if isinstance(timestamp, str | None) else tuple(timestamp))
        object.__setattr__(self, "time", convert("time", self.time, TimeCharacteristic | None))

    @classmethod
    def from_options(cls, options: dict[str, str]) -> TtlTransformerFactory:
        """``ttl``, ``timestamp``, ``time``, ``old_ttl``, ``strategy``: as the options of ``compact``."""
        known_options = ("ttl", "timestamp", "time", "old_ttl", "strategy")
        unknown_options = set(options) - set(known_options)
        if unknown_options:
            raise UsageError(
                f"the ttl transformer has no option {(name := sorted(unknown_options)[0])!r}"
                f"{did_you_mean(name, known_options)}; its options are {', '.join(known_options)}"
            )
        ttl, time, old_ttl = options.get("ttl"), options.get("time"), options.get("old_ttl")
        return cls(
            None if ttl is None else StateTtlConfig(parse_duration(ttl)),
            options.get("timestamp"),
            None if time is None else _characteristic(time),
            0 if old_ttl is None else parse_duration(old_ttl),
            CollectionStrategy.parse(options.get("strategy", CollectionStrategy.TRANSFORM_ALL)),
        )

    @property
    def uses_written_times(self) -> bool:
        """Whether the time of an entry is when it was last written."""
        return not self._is_off and any(name.endswith(WRITTEN) for name in self._names)

    def describe(self) -> str:
        """Return the rule in the words of the command line: ``ttl 7d by value.max``."""
        if self._is_off:
            return f"off (update type {UpdateType.DISABLED})"
        if self.config is None:
            return SPARKS_TIMES
        old = f" instead of {format_duration(self.old_ttl_us)}" if self.old_ttl_us else ""
        time = f"by {', '.join(self._names)}" if self._names else "after the time that Spark stores"
        return f"ttl {format_duration(self.config.ttl_us)}{old} {time}"

    def plan(self, states: Sequence[StateDescriptor], clock: Clock) -> list[str | None]:
        """Return for each state why it stays unchanged, or None. Raise UsageError if no state has the named field."""
        if self._is_off:
            return [OFF] * len(states)
        if self.old_ttl_us and (self.config is None or self._names):
            raise UsageError(
                "--old-ttl is subtracted from the moment of expiry that Spark stores. Use it with --ttl (how long an "
                "entry lives after it was written), and without --timestamp"
            )
        if not states and self._names:
            raise UsageError(f"no state that can be changed has the field {split_unit(self._names[0])[0]}")
        reasons = [self._reason(state) for state in states]
        if len(states) > 1:  # the reason of a single state says it
            require_fields(states, self._names)
        if states and all(reasons) and (self.timestamp is not None or self.config is not None):
            named_field = split_unit(split_side(self._names[0])[1])[0] if self._names else ""
            hint = did_you_mean(named_field, field_names(states))
            raise UsageError(quotes_nothing(f"{reasons[0]}{hint}.\nIts fields are:\n{field_listing(states)}"))
        self._require_now([state for state, reason in zip(states, reasons, strict=True) if reason is None], clock)
        return reasons

    def _require_now(self, states: Sequence[StateDescriptor], clock: Clock) -> None:
        """Raise UsageError, with the options that help, if the clock of a state has no current time."""
        times = [(self._time(state), clock.of(state.operator)) for state in states]
        has_time = [
            time is TimeCharacteristic.PROCESSING or state_clock.event_us is not None for time, state_clock in times
        ]
        untimed_states = [state for state, is_timed in zip(states, has_time, strict=True) if not is_timed]
        if not untimed_states:
            for time, state_clock in times:
                state_clock.now(time)
            return
        other_operators = sorted({state.operator for state in states} - {state.operator for state in untimed_states})
        if other_operators:
            names = " or ".join(f"--operator {operator}" for operator in other_operators)
            advice = f"Select another operator: {names} (in a policy: operator)"
        else:
            advice = "ame a time up to which the query has emitted everything: --now TIME (in a policy: now)"
            processing = "Compare with the time of the last batch: --time processing (in a policy: time). Or n"
            advice = ("N" if self.time is None else processing) + advice
        raise UsageError(f"{clock.of(untimed_states[0].operator).no_event_time}. Nothing was changed. {advice}")

    def create(self, state: StateDescriptor, clock: Clock) -> Transformer | None:
        """Return a transformer for ``state``; None if it lacks the field."""
        if self._reason(state) is not None:
            return None
        ttl = self.config.ttl_us if self.config else 0
        time = self._time(state)
        now, event_times = clock.now(time), self._find_event_times(state)
        implied = self._implied and not self.old_ttl_us
        is_chosen = self._chosen_time(state) is not None or clock.event_us == now
        return _TtlTransformer(
            state,
            self._field(state),
            ttl,
            now,
            time,
            event_times,
            clock.watermark_us,
            implied,
            self.old_ttl_us,
            None if is_chosen else clock.event_us,
        )

    def with_names(self, spelled: Callable[[str], str]) -> TtlTransformerFactory:
        """Return the same factory with other names for its timestamps."""
        return replace(self, timestamp=tuple(map(spelled, self._names)) or None)

    def cutoff(self, state: StateDescriptor, clock: Clock) -> Cutoff | None:
        """Return the last time that has expired; None if ``state`` lacks the field."""
        if self._reason(state) is not None:
            return None
        time = self._time(state)
        now = clock.now(time)
        ttl = self.config.ttl_us if self.config else 0
        return Cutoff(self._field(state), max(now - ttl, MIN_INT64), now, time.value)

    @property
    def _is_off(self) -> bool:
        """Whether no state expires: in Flink, this update type switches the TTL off."""
        return self.config is not None and self.config.update_type is UpdateType.DISABLED

    def _reason(self, state: StateDescriptor) -> str | None:
        if self._is_off:
            return OFF
        name = self._name(state)
        if name is None and self._names:
            return explain_unnamed(state, self._names)
        if name is None and state.without_time:
            return state.without_time
        if name is None:
            hint = "name one with --timestamp" if self.config else "give --ttl and --timestamp to expire it"
            operator = state.operator_name or "this operator"
            return f"Spark stores no timestamp for {operator}; {hint} (ttlsnap inspect shows which fields hold times)"
        if self._names and self.config is None:
            raise UsageError("--timestamp needs --ttl: how long an entry lives after that time")
        if not self._names and state.stored_time is None and self.time is None:
            return f"the checkpoint does not record whether {name} is in event time or processing time; use --time"
        if self.old_ttl_us and not state.written_plus_ttl:
            return f"{name} is not a moment of writing plus a ttl, so --old-ttl cannot be subtracted"
        if self.config is None and state.unrecorded_times:
            return (
                "the schema of the state records no watermark: it was added to the query later, or it is not that of "
                f"{name}. If it is, Spark itself drops what it has reached. To drop by that time, use --ttl"
            )
        if self.config is None and not state.expires:
            return f"{name} is not a moment of expiry; use --ttl to say how long after it an entry expires"
        path, _ = split_unit(name)
        if not has_time(state, name):
            return f"{state} has no field {path}"
        return None

    @property
    def _implied(self) -> bool:
        """Whether the user named no field, so that the time that Spark stores applies."""
        return self.timestamp is None

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.timestamp,) if isinstance(self.timestamp, str) else self.timestamp or ()

    def _name(self, state: StateDescriptor) -> str | None:
        """Return the name of the field for ``state``: a named one, or the one that Spark stores."""
        return name_for(state, self._names)

    def _find_event_times(self, state: StateDescriptor) -> tuple[TimestampField, ...]:
        """Return the event times by which Spark evicts an entry: one, or those by which it may; none if it does not."""
        names = state.unrecorded_times
        if not names and state.stored_timestamp is not None and state.stored_time == "event":
            names = (state.stored_timestamp,)
        return tuple(timestamp_field(state, name) for name in names)

    def _field(self, state: StateDescriptor) -> TimestampField:
        name = self._name(state)
        assert name is not None
        return timestamp_field(state, name)

    def _time(self, state: StateDescriptor) -> TimeCharacteristic:
        """Return the clock of the times: processing time, if nothing says which."""
        return self._chosen_time(state) or TimeCharacteristic.PROCESSING

    def _chosen_time(self, state: StateDescriptor) -> TimeCharacteristic | None:
        """Return the clock that the user or the checkpoint names; None if neither does."""
        if self._name(state) == WRITTEN:
            if self.time is TimeCharacteristic.EVENT:
                raise UsageError(f"{WRITTEN} is in processing time: omit --time event")
            return TimeCharacteristic.PROCESSING
        if self.time is not None:
            return self.time
        if self.config is not None and self.config.time_characteristic is not None:
            return self.config.time_characteristic
        if state.stored_time is not None and self.timestamp is None:
            return TimeCharacteristic(state.stored_time)
        columns = {time.field.column for time in self._find_event_times(state)}
        # A field of the same column is on the same clock: for example a window's start and its end.
        if self._field(state).field.column in columns:
            return TimeCharacteristic.EVENT
        return None


class _TtlTransformer(Transformer):
    def __init__(
        self,
        state: StateDescriptor,
        field: TimestampField,
        ttl: int,
        now: int,
        time: TimeCharacteristic,
        event_times: Sequence[TimestampField],
        watermark: int | None,
        implied: bool,
        old_ttl: int,
        event_us: int | None,
    ) -> None:
        self._field, self._ttl, self._now, self._time, self._old_ttl = field, ttl, now, time, old_ttl
        self._event_us = event_us
        # Before the first watermark, Spark has closed nothing.
        self._watermark, self._implied = MIN_INT64 if watermark is None else watermark, implied
        self._emits = state.emits_on_close
        self._timeout = timestamp_field(state, state.timeout) if state.timeout else None
        if self._timeout is not None and implied and field.field == self._timeout.field:
            self._ttl += 1  # microsecond: Spark calls a group only when its timeout is before now
        # Spark does not close a group at its timeout, nor a join's row at its time.
        self._event_times = event_times if state.expires and state.timeout is None else ()
        self._oldest: int | None = None
        self._newest: int | None = None
        self._nulls = self._unclosed = self._older = 0
        self._older_than: int | None = None
        self._last: tuple[StateEntries, tuple[Int64, Mask]] | None = None

    def moments(self, entries: StateEntries) -> tuple[Int64, Mask]:
        """See ``Transformer``. The times of the last batch are read once, however often they are needed."""
        if self._last is None or self._last[0] is not entries:
            moments, nulls = self._field.read(entries)
            if self._old_ttl:
                moments = np.maximum(moments, MIN_INT64 + self._old_ttl) - self._old_ttl
            self._last = entries, (moments, nulls)
        return self._last[1]

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        moments, nulls = self.moments(entries)
        known_moments = moments[~nulls] if nulls.any() else moments
        if len(known_moments):
            low, high = int(known_moments.min()), int(known_moments.max())
            self._oldest = low if self._oldest is None else min(self._oldest, low)
            self._newest = high if self._newest is None else max(self._newest, high)
        self._nulls += len(moments) - len(known_moments)
        if isinstance(self._field, WrittenField):
            self._count_older(moments, entries.written[1])
        is_expired = expired(moments, self._ttl, self._now) & ~nulls
        if is_expired.any():
            self._unclosed += int(self.unclosed(entries.filter(is_expired)).sum())
        return entries.filter(~is_expired)

    def unclosed(self, gone: StateEntries) -> Mask:
        """See ``Transformer``. Raise UsageError if Spark itself keeps expired groups."""
        if self._timeout is not None:
            has_timeout: Mask = ~self._timeout.read(gone)[1]
            return has_timeout
        if not self._event_times:
            return np.zeros(len(gone), np.bool_)
        closed = np.ones(len(gone), np.bool_)
        for time in self._event_times:
            moments, nulls = time.read(gone)
            closed &= (moments <= self._watermark) & ~nulls
        if self._implied and closed.any():
            name = self._event_times[0].field.name
            raise UsageError(
                f"{name} of {quantity(int(closed.sum()), 'entry', 'entries')} is behind the watermark, but Spark "
                "keeps them, as it does in "
                "complete mode, and for a column with another watermark. So ttlsnap cannot tell which entries Spark "
                f"considers expired. To drop by that time, use --ttl DURATION --timestamp {name}"
            )
        return ~closed if self._emits else np.zeros(len(gone), np.bool_)

    def _count_older(self, moments: Int64, older: Mask) -> None:
        """Count the entries that were written before the known history."""
        if older.any():
            self._older += int(older.sum())
            newest = int(moments[older].max())
            self._older_than = newest if self._older_than is None else max(newest, self._older_than)

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
            max(self._now - self._ttl, MIN_INT64),
            self._older,
            self._older_than,
            self._event_us,
        )


def _characteristic(text: str) -> TimeCharacteristic:
    try:
        return TimeCharacteristic(text)
    except ValueError as error:
        raise UsageError(f"time is {text!r}; use event or processing") from error
