"""The limit on what a run may drop of a state when nobody is asked.

A wrong field, unit or clock makes every entry look expired, except a few with odd times. So a run refuses to drop more
than 99 % of a state, or more than a share that the user named, unless a person agrees to it on a terminal. A unit that
is too large makes every entry look far too young, so a run that drops nothing for this reason warns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ttlsnap.amounts import age, quantity
from ttlsnap.clock import FIRST_US, LAST_US, MAX_INT64, MIN_INT64, iso, year_of
from ttlsnap.entries.timestamps import UNITS
from ttlsnap.errors import UNLESS_AGREED, Foreseen, RefusedError, UsageError

_MOST_LISTED = 5
_ALMOST_ALL = 0.99
"""The share of a state that a run may drop by default."""
_LARGE_LAG = 4
"""The part of the time to live that is a large lag: one of so many."""
_PLAUSIBLE_US = 30 * 365 * 86_400_000_000
_SPELLED = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


@dataclass(frozen=True)
class StateDrop:
    """How much of a state a run drops, and by which times; these are microseconds since the epoch.

    ``where`` names the state. ``field`` is None if no timestamp was compared, ``unit`` if it is not a number. ``whole``
    is False if the run visited only some of the state's partitions. Entries up to ``cutoff_us`` have expired.
    """

    where: str
    entries: int
    dropped: int
    field: str | None = None
    unit: str | None = None
    time: str | None = None
    now_us: int | None = None
    now_source: str | None = None
    oldest_us: int | None = None
    newest_us: int | None = None
    whole: bool = True
    cutoff_us: int | None = None

    def exceeds(self, limit: float | None) -> bool:
        """Return whether the share is above ``limit``; without one, whether almost every entry is dropped.

        An incremental run may well drop all entries of a few partitions. There it counts only if the timestamps are far
        from the clock, because they are if they are read in a wrong unit.
        """
        if not self.dropped:
            return False
        if limit is not None:
            return self.dropped / self.entries > limit
        return self.dropped > _ALMOST_ALL * self.entries and (self.whole or self._is_far_off)

    @property
    def is_in_far_future(self) -> bool:
        """Whether nothing is dropped, and a number was probably read in a unit that is too large."""
        if self.dropped or self.oldest_us is None or self.now_us is None or self.unit is None:
            return False
        is_far = self.oldest_us - self.now_us > _PLAUSIBLE_US
        return is_far and (self.oldest_us >= MAX_INT64 or _better_unit(self) is not None)

    @property
    def lag_us(self) -> int | None:
        """How much older than the last batch the newest entry is, if that is a large part of the time to live.

        An event time is often compared with the processing time. Then the entries of a query that works through old
        input look expired, also those of keys in use. None if all is well, if the user gave the time, or if the field
        seems to have another unit.
        """
        is_comparable = self.time == "processing" and self.now_source == "checkpoint"
        if not self.dropped or not is_comparable or self._is_far_off:
            return None
        if self.newest_us is None or self.now_us is None or self.cutoff_us is None:
            return None
        lag_us, ttl_us = self.now_us - self.newest_us, self.now_us - self.cutoff_us
        return lag_us if 0 < ttl_us < _LARGE_LAG * lag_us else None  # Spark's own expiry times have no time to live

    @property
    def _is_far_off(self) -> bool:
        return self.newest_us is not None and not _is_plausible(self.newest_us, self.now_us or 0)


def check_limit(limit: float | None) -> None:
    """Raise UsageError unless ``limit`` is a share."""
    if limit is not None and not 0 <= limit <= 1:
        raise UsageError(f"max_drop is {limit!r}; it is a share from 0.0 to 1.0")


def refuse_excess(target: str, drops: Sequence[StateDrop], limit: float | None) -> None:
    """Raise RefusedError if more than ``limit`` of a state would be dropped."""
    excess = describe_excess(drops, limit)
    if excess is not None:
        raise RefusedError(f"{target}: {excess}\nNothing was changed. {_advise(limit)}")


def warn_of_excess(drops: Sequence[StateDrop], limit: float | None) -> tuple[str, ...]:
    """Return the warning of a dry run about drops that a run refuses."""
    excess = describe_excess(drops, limit)
    if excess is None:
        return ()
    return (Foreseen(f"{excess}\n{UNLESS_AGREED} {_advise(limit)}"),)


def warn_of_lag(drops: Sequence[StateDrop]) -> tuple[str, ...]:
    """Return a warning about each state whose newest entry is so old that the query may be behind its input."""
    return tuple(
        f"the newest {drop.field} of {drop.where} is {age(drop.lag_us // 1_000_000)} older than the last batch, with "
        "whose time it is compared. If the query is behind its input, keys in use may be dropped. Then wait until it "
        f"has caught up, or add --now {iso(drop.newest_us)} (in a policy: now)"
        for drop in drops
        if drop.lag_us is not None
    )


def warn_of_far_future(drops: Sequence[StateDrop]) -> tuple[str, ...]:
    """Return a warning about each state whose times are all so late that their unit is probably wrong."""
    return tuple(
        "\n".join(
            [
                f"this run drops no entry of {drop.where}: every timestamp is more than 30 years in the future. "
                "Probably the unit is wrong.",
                *_describe_times(drop),
            ]
        )
        for drop in drops
        if drop.is_in_far_future
    )


def _advise(limit: float | None) -> str:
    """Return what to do about an excess. Without a ``limit``, it is one of almost all, which 100% allows."""
    option = (
        'add --max-drop 100% (in a policy: max_drop = "100%")'
        if limit is None
        else "use a higher --max-drop (in a policy: max_drop); 100% allows everything"
    )
    return f"Correct the timestamp field, its unit, the ttl or the clock. If this is what you want, {option}"


def describe_excess(drops: Sequence[StateDrop], limit: float | None) -> str | None:
    """Return a description of each state that would lose more than ``limit``; None if there is no such state."""
    excessive_drops = [drop for drop in drops if drop.exceeds(limit)]
    lines = [line for drop in excessive_drops[:_MOST_LISTED] for line in _describe(drop, limit)]
    if len(excessive_drops) > _MOST_LISTED:
        lines.append(f"The same is true of {quantity(len(excessive_drops) - _MOST_LISTED, 'more state')}.")
    return "\n".join(lines) if lines else None


def _describe(drop: StateDrop, limit: float | None) -> list[str]:
    share_text = (
        f"{drop.dropped:,} of {quantity(drop.entries, 'entry', 'entries')} ({_percent(drop.dropped / drop.entries)})"
    )
    is_all = drop.dropped >= drop.entries
    all_text = "the only entry" if drop.entries == 1 else f"all {drop.entries:,} entries"
    by_default = "" if is_all else f", and without --max-drop a run may drop {_percent(_ALMOST_ALL)}"
    limit_text = by_default if limit is None else f", and the limit is {_percent(limit)}"
    return [
        f"this run would drop {all_text if is_all else share_text} of {drop.where}{limit_text}.",
        *_describe_times(drop),
    ]


def _describe_times(drop: StateDrop) -> list[str]:
    """Return how the timestamps were read and compared, and in which unit they are likely; nothing without a field."""
    if drop.field is None:
        return []
    unit_text = f", read in {_SPELLED[drop.unit]} ({drop.unit})" if drop.unit else ""
    dates = ""
    if drop.oldest_us is not None and drop.newest_us is not None:
        dates = f": the oldest is {_moment(drop.oldest_us)}, the newest {_moment(drop.newest_us)}"
    clock = f"{drop.time} time" if drop.time else "time"
    lines = [
        f"Timestamps are those of {drop.field}{unit_text}{dates}.",
        f"They were compared with {clock} {_moment(drop.now_us)} ({drop.now_source}).",
    ]
    better_reading = _better_unit(drop)
    if better_reading is not None:
        unit, oldest_us, newest_us = better_reading
        lines.append(
            f"Read in {_SPELLED[unit]} ({unit}), they are from {_moment(oldest_us)} to {_moment(newest_us)}. "
            f"If that is right, the timestamp is {drop.field}:{unit}"
        )
    return lines


def _better_unit(drop: StateDrop) -> tuple[str, int, int] | None:
    """Return the unit that puts the newest timestamp near the clock, with the oldest and newest in it.

    None if the unit that was used does that, or if no unit does.
    """
    if drop.unit is None or drop.now_us is None or drop.oldest_us is None or drop.newest_us is None:
        return None
    if _is_plausible(drop.newest_us, drop.now_us) or {drop.oldest_us, drop.newest_us} & {MIN_INT64, MAX_INT64}:
        return None
    for unit in UNITS:
        oldest, newest = (_convert(moment, drop.unit, unit) for moment in (drop.oldest_us, drop.newest_us))
        if unit != drop.unit and _is_plausible(newest, drop.now_us):
            return unit, oldest, newest
    return None


def _is_plausible(moment_us: int, now_us: int) -> bool:
    return abs(moment_us - now_us) <= _PLAUSIBLE_US


def _convert(moment_us: int, old_unit: str, new_unit: str) -> int:
    """Return the time that the same number means in ``new_unit``, not in ``old_unit``. A negative scale divides."""
    scale = UNITS[old_unit]
    number = moment_us // scale if scale > 0 else moment_us * -scale
    scale = UNITS[new_unit]
    return number * scale if scale > 0 else number // -scale


def _moment(moment_us: int | None) -> str:
    """Return ISO 8601 to the second; outside the years 1 to 9999 just the year."""
    if moment_us is None:
        return "unknown"
    if FIRST_US <= moment_us <= LAST_US:
        return f"{(iso(moment_us) or '')[:19]}Z"
    return f"in the year {year_of(moment_us)}"


def _percent(share: float) -> str:
    """Return ``30%``; never 100% for less than everything."""
    return f"{min(round(100 * share, 1), 99.9) if share < 1 else 100:g}%"
