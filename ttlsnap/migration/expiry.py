"""Expiry times of a state variable whose TTL was switched on or off, or has another length.

With a TTL, Spark stores the user's value as ``struct<value: struct<...>, ttlExpirationMs: bigint>``, and otherwise only
the struct. An entry that has expired is dropped: the query did not see it any more, and so must not see it again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttlsnap.clock import MICROS
from ttlsnap.entries.batch import RowEntries
from ttlsnap.entries.timestamps import TimestampField
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_numbers, rows_of_structs, struct_rows

_LATEST = 1 << 62


@dataclass(frozen=True)
class ExpiryChange:
    """The change of expiry times, in milliseconds since the epoch. Values ``had`` one before, and ``has`` says if now.

    A new expiry time is ``plus_ms`` after the old one. Without an old one, it is that after the time in the field
    ``birth``, or after ``now_ms``. Entries that have expired at ``now_ms``, by their old time or by the new one, are
    dropped.
    """

    had: bool
    has: bool
    now_ms: int
    plus_ms: int = 0
    birth: TimestampField | None = None

    def apply(self, entries: RowEntries) -> tuple[Rows, Int64s, Int64s, int]:
        """Return the user's values of the entries that are kept, their new expiry times, and which entries they are.

        The last number is that of the entries without a birth.
        """
        values, missing_births = entries.values, 0
        if self.had:
            values, times = without_expiry(values)
        elif self.birth is None:
            times = np.full(len(values), self.now_ms)
        else:
            micros, nulls = self.birth.read(entries)
            times, missing_births = micros // MICROS, int(nulls.sum())
        new_times = np.clip(times, -_LATEST, _LATEST) + self.plus_ms
        is_alive = new_times > self.now_ms
        if self.had:
            is_alive &= times > self.now_ms
        kept_entries = np.flatnonzero(is_alive)
        return values.take(kept_entries), new_times[kept_entries], kept_entries, missing_births


def without_expiry(values: Rows) -> tuple[Rows, Int64s]:
    """Return the user's part of values that have an expiry time, and these times."""
    return struct_rows(values, 2, 0), read_numbers(values, 2, 1)


def with_expiry(values: Rows, times: Int64s) -> Rows:
    """Return the user's values with these expiry times."""
    return rows_of_structs(values, times)
