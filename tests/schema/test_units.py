"""Durations, sizes and shares that users type."""

from __future__ import annotations

import pytest

from ttlsnap.errors import UsageError
from ttlsnap.schema.units import parse_duration, parse_growth, parse_retention, parse_share, parse_size


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("90s", 90_000_000),
        ("36h", 36 * 3_600_000_000),
        ("7d", 7 * 86_400_000_000),
        ("1d12h", 36 * 3_600_000_000),
        ("250ms", 250_000),
        ("2w", 14 * 86_400_000_000),
        ("P7D", 7 * 86_400_000_000),
        ("7 days", 7 * 86_400_000_000),
        ("7days", 7 * 86_400_000_000),
        ("1 Day 12 hours", 36 * 3_600_000_000),
        ("90 sec", 90_000_000),
        ("1 min", 60_000_000),
        ("PT1H30M", 5_400_000_000),
        ("P1DT0.5S", 86_400_500_000),
    ],
)
def test_durations_are_parsed(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "d",
        "-7d",
        "7 daze",
        "7 months",
        "7 M",
        "7 days ago",
        "P",
        "PT",
        "P1DT",
        "0s",
        "P0D",
        "1e3s",
        "9" * 30 + "d",
    ],
)
def test_the_error_quotes_an_invalid_duration(text: str) -> None:
    with pytest.raises(UsageError, match=r"duration|ttl") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


def test_sizes_and_retentions_are_parsed() -> None:
    assert [parse_size(text) for text in ("1", "2kB", "3KiB", "512MiB", "2GB")] == [1, 2000, 3072, 512 << 20, 2 * 10**9]
    assert [parse_retention(text) for text in ("0", "0h", "90s", "7d")] == [0, 0, 90_000, 604_800_000]
    for wrong in ("", "0", "-1", "1.5GB", "many"):
        with pytest.raises(UsageError, match="is not a size"):
            parse_size(wrong)


@pytest.mark.parametrize(
    ("text", "share"),
    [("30%", 0.3), ("0.3", 0.3), ("100%", 1.0), ("1.0", 1.0), ("1%", 0.01), ("0", 0.0), ("0.1 %", 0.001)],
)
def test_percentages_and_fractions_are_parsed(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1", "write 1% or 100%"),
        ("30", "is too large.*; write 30%"),
        ("120%", "at most 100%, or 1.0$"),
        ("x", "30% or 0"),
    ],
)
def test_ambiguous_and_invalid_shares_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_share(text)


@pytest.mark.parametrize(
    ("text", "share", "days"),
    [("20%/d", 0.2, 1), ("150 % / 7d", 1.5, 7), ("0.5%/12h", 0.005, 0.5), ("5%/week", 0.05, 7)],
)
def test_growth_is_a_share_in_a_time(text: str, share: float, days: float) -> None:
    assert parse_growth(text) == (share, days * 86_400_000_000)
