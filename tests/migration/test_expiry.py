"""Expiry times of values whose TTL is switched on or off, or has another length."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from ttlsnap import StateDescriptor, StateEntries
from ttlsnap.entries.timestamps import timestamp_field
from ttlsnap.migration.expiry import ExpiryChange
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode

NOW = 1_000_000
KEY, USER, STORED = (
    parse_ddl(ddl) for ddl in ("k INT", "n INT, at BIGINT", "value STRUCT<n INT, at BIGINT>, ttlExpirationMs BIGINT")
)
PLAIN, WITH_TTL = (StateDescriptor(0, None, "default", "v", 0, KEY, value) for value in (USER, STORED))


def change(entries: StateEntries, **facts: object) -> tuple[list[int], list[int], int]:
    """Return the numbers of the values that are kept, their new times, and how many values had no birth."""
    values, times, kept, missing = ExpiryChange(now_ms=NOW, **facts).apply(entries)  # type: ignore[arg-type]
    numbers = decode(values, USER).field("n").to_pylist()
    assert numbers == kept.tolist()
    return numbers, times.tolist(), missing


def with_times(times: Sequence[int]) -> StateEntries:
    """Return values with these expiry times."""
    rows = [{"value": {"n": n, "at": 0}, "ttlExpirationMs": time} for n, time in enumerate(times)]
    keys = encode(pa.array([{"k": n} for n in range(len(times))], arrow_type(KEY)), KEY)
    return StateEntries.of(WITH_TTL, keys, encode(pa.array(rows, arrow_type(STORED)), STORED))


def without_times(births: Sequence[int | None]) -> StateEntries:
    """Return values without expiry times, which were born at these times."""
    rows = [{"n": n, "at": birth} for n, birth in enumerate(births)]
    keys = encode(pa.array([{"k": n} for n in range(len(births))], arrow_type(KEY)), KEY)
    return StateEntries.of(PLAIN, keys, encode(pa.array(rows, arrow_type(USER)), USER))


TIMES = [NOW - 1, NOW, NOW + 1, NOW + 500]


def test_a_value_that_has_expired_never_comes_back() -> None:
    # The query did not see values 0 and 1 any more.
    assert change(with_times(TIMES), had=True, has=False)[0] == [2, 3]
    assert change(with_times(TIMES), had=True, has=True, plus_ms=10_000) == ([2, 3], [NOW + 10_001, NOW + 10_500], 0)


def test_a_shorter_ttl_drops_what_it_would_have_dropped() -> None:
    assert change(with_times(TIMES), had=True, has=True, plus_ms=-1) == ([3], [NOW + 499], 0)
    assert change(with_times(TIMES), had=True, has=True, plus_ms=-500) == ([], [], 0)


def test_a_new_ttl_counts_from_now() -> None:
    found = change(without_times([0, None, NOW]), had=False, has=True, plus_ms=60)
    assert found == ([0, 1, 2], [NOW + 60] * 3, 0)


@pytest.mark.parametrize(("plus_ms", "kept"), [(99, [2]), (100, [2]), (101, [1, 2])])
def test_a_new_ttl_counts_from_the_birth_of_a_value(plus_ms: int, kept: list[int]) -> None:
    births = [NOW - 101, NOW - 100, NOW]
    field = timestamp_field(PLAIN, "value.at:ms")
    found = change(without_times(births), had=False, has=True, plus_ms=plus_ms, birth=field)
    assert found == (kept, [births[number] + plus_ms for number in kept], 0)
    assert change(without_times([NOW, None]), had=False, has=True, plus_ms=5, birth=field)[2] == 1
