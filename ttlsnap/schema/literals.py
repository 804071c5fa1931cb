"""Literals that a user writes on the command line."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UsageError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.types import DataType


def parse_literal(text: str, kind: DataType, where: str, *, assume_utc: bool = False) -> Any:
    """Return the value of a literal that a user wrote, as PyArrow takes it; None for ``null``.

    A literal is JSON (``5``, ``true``, ``"text"``). A text, a date or a time needs no quotes. A timestamp needs its
    zone, unless ``assume_utc``; it is then ISO 8601, also a date. Raise UsageError if it is not of the type ``kind``;
    the message begins with ``where``.
    """
    arrow = arrow_type(kind)
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if value is None:
        return None
    is_text = pa.types.is_large_string(arrow) or pa.types.is_temporal(arrow)
    try:
        if is_text and not isinstance(value, str):
            value = text
        if pa.types.is_decimal(arrow) and not isinstance(value, bool):
            value = Decimal(text.strip('"'))
        elif pa.types.is_large_binary(arrow):
            value = bytes.fromhex(str(value))
        elif pa.types.is_temporal(arrow):
            value = _parse_time(value, arrow, assume_utc).as_py()
        elif pa.types.is_floating(arrow) and not isinstance(value, bool):
            value = float(value) + 0.0  # -0.0 is equal to it, and has the same hash in Spark (HashExpression)
        elif pa.types.is_boolean(arrow) != isinstance(value, bool):
            raise ValueError("a boolean is true or false")
        elif pa.types.is_integer(arrow) and not isinstance(value, int):
            raise ValueError("a whole number has no fraction")
        return pa.scalar(value, arrow).as_py()
    except (pa.ArrowException, ValueError, ArithmeticError, TypeError, OverflowError) as error:
        example = ", such as 2026-01-31T00:00:00Z" if getattr(arrow, "tz", None) else ""
        raise UsageError(f"{where}: this is not a {kind.simple_string}{example}") from error


def _parse_time(text: str, kind: pa.DataType, assume_utc: bool) -> pa.Scalar:
    text_scalar = pa.scalar(text, pa.large_string())
    try:
        return text_scalar.cast(kind)
    except pa.ArrowInvalid:
        if not assume_utc or getattr(kind, "tz", None) is None:
            raise
        return text_scalar.cast(pa.timestamp(kind.unit)).cast(kind)  # Arrow stores a time with a zone in UTC
