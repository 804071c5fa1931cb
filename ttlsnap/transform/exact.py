"""New values, compared with what would be stored: Arrow cuts off fractions, and takes numbers for times, silently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ttlsnap.quoting import quote

_ROUNDED = 1e-6  # relative; a float32 has 24 bits


def find_inexact(returned: Any, stored_value: Any, path: str) -> str | None:
    """Return a description of the first part of ``returned`` that is stored as another value, or None.

    Rounding to a field's own precision is not another value, nor is a datetime without a time zone, which is in UTC.
    """
    if isinstance(stored_value, Mapping) and isinstance(returned, Mapping):
        descriptions = (find_inexact(returned[name], stored_value[name], f"{path}.{name}") for name in stored_value)
        return next(filter(None, descriptions), None)
    if isinstance(stored_value, list | tuple) and _is_sequence(returned) and len(returned) == len(stored_value):
        pairs = zip(returned, stored_value, strict=True)
        descriptions = (
            find_inexact(item, stored_item, f"{path}[{index}]") for index, (item, stored_item) in enumerate(pairs)
        )
        return next(filter(None, descriptions), None)
    if _is_same(returned, stored_value):
        return None
    return f"{path} is " + quote(repr(returned)) + ", and would be stored as " + quote(repr(stored_value))


def _is_same(returned: Any, stored_value: Any) -> bool:
    if isinstance(stored_value, float) and not isinstance(returned, str | bytes):
        number = float(returned)
        return (number != number and stored_value != stored_value) or math.isclose(
            number, stored_value, rel_tol=_ROUNDED
        )
    if isinstance(stored_value, datetime) and isinstance(returned, datetime) and returned.tzinfo is None:
        return returned.replace(tzinfo=UTC if stored_value.tzinfo else None) == stored_value
    if isinstance(stored_value, bytes) and isinstance(returned, str):
        return returned.encode() == stored_value
    if isinstance(stored_value, str) and isinstance(returned, bytes):
        return returned == stored_value.encode()
    return bool(returned == stored_value)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) or hasattr(value, "__array__")
