"""Transformers for rules, as users write them."""

from __future__ import annotations

from typing import Any

from ttlsnap.transform.protocols import Drop, Keep, Replace, Verdict


def halved(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    """Halve odd sums, and drop multiples of ten."""
    if value["sum"] % 10 == 0:
        return Drop()
    return Replace({**value, "sum": value["sum"] // 2}) if value["sum"] % 2 else Keep()


def small(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    """Drop the numbers below ten."""
    return Drop() if value["number"] < 10 else Keep()
