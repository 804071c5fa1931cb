"""New values, compared with what would be stored: Arrow cuts off fractions, and takes numbers for times, silently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ttlsnap.quoting import quote

_ROUNDED = 1e-6  # relative; a float32 has 24 bits


def find_inexact(given: Any, stored: Any, where: str) -> str | None:
    """Return a description of the first part of ``given`` that is stored as another value, or None.

    Rounding to a field's own precision is not another value, nor is a datetime without a time zone, which is in UTC.
    """
    if isinstance(stored, Mapping) and isinstance(given, Mapping):
        found = (find_inexact(given[name], stored[name], f"{where}.{name}") for name in stored)
        return next(filter(None, found), None)
    if isinstance(stored, list | tuple) and _is_sequence(given) and len(given) == len(stored):
        pairs = zip(given, stored, strict=True)
        found = (find_inexact(one, other, f"{where}[{n}]") for n, (one, other) in enumerate(pairs))
        return next(filter(None, found), None)
    if _is_same(given, stored):
        return None
    return f"{where} is " + quote(repr(given)) + ", and would be stored as " + quote(repr(stored))


def _is_same(given: Any, stored: Any) -> bool:
    if isinstance(stored, float) and not isinstance(given, str | bytes):
        number = float(given)
        return (number != number and stored != stored) or math.isclose(number, stored, rel_tol=_ROUNDED)
    if isinstance(stored, datetime) and isinstance(given, datetime) and given.tzinfo is None:
        return given.replace(tzinfo=UTC if stored.tzinfo else None) == stored
    if isinstance(stored, bytes) and isinstance(given, str):
        return given.encode() == stored
    if isinstance(stored, str) and isinstance(given, bytes):
        return given == stored.encode()
    return bool(given == stored)


def _is_sequence(given: Any) -> bool:
    return isinstance(given, Sequence) or hasattr(given, "__array__")
