"""Literals that a user writes on the command line."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UsageError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.types import DataType, StructType


def parse_literal(text: str, kind: DataType, where: str, *, assume_utc: bool = False) -> Any:
    """Return the value of a literal that a user wrote, as PyArrow takes it; None for ``null``.

    A literal is JSON (``5``, ``true``, ``"text"``). A text, a date or a time needs no quotes. A timestamp needs its
    zone, unless ``assume_utc``; it is then ISO 8601, also a date. A struct is a JSON object with such literals. Raise
    UsageError if it is not of the type ``kind``; the message begins with ``where``.
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
        if isinstance(kind, StructType):
            return _parse_struct(value, kind, where, assume_utc)
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
        raise UsageError(f"{where}: this is not a {kind.simple_string}, such as {_example_of(kind)}") from error


def _parse_struct(value: Any, kind: StructType, where: str, assume_utc: bool) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != set(kind.names):
        raise ValueError("a struct has all its fields and no others")
    parts = {}
    for field in kind.fields:
        place = f"{where}, field {field.name}"
        parts[field.name] = parse_literal(json.dumps(value[field.name]), field.type, place, assume_utc=assume_utc)
        if parts[field.name] is None and not field.nullable:
            raise UsageError(f"{place}: it may not be null")
    return parts


def _example_of(kind: DataType) -> str:
    """Return a literal of a type, as ``parse_literal`` takes it; for a type that has none in JSON, the word LITERAL."""
    example = _example(kind)
    return example if isinstance(example, str) else json.dumps(example)


def _example(kind: DataType) -> Any:
    arrow = arrow_type(kind)
    if isinstance(kind, StructType):
        return {field.name: _example(field.type) for field in kind.fields}
    if pa.types.is_timestamp(arrow):
        return "2026-01-31T00:00:00Z" if arrow.tz else "2026-01-31T00:00:00"
    if pa.types.is_date(arrow):
        return "2026-01-31"
    if pa.types.is_boolean(arrow):
        return True
    if pa.types.is_integer(arrow) or pa.types.is_decimal(arrow):
        return 0
    if pa.types.is_floating(arrow):
        return 0.5
    return "text" if pa.types.is_large_string(arrow) else "LITERAL"


def _parse_time(text: str, kind: pa.DataType, assume_utc: bool) -> pa.Scalar:
    text_scalar = pa.scalar(text, pa.large_string())
    try:
        return text_scalar.cast(kind)
    except pa.ArrowInvalid:
        if not assume_utc or getattr(kind, "tz", None) is None:
            raise
        return text_scalar.cast(pa.timestamp(kind.unit)).cast(kind)  # Arrow stores a time with a zone in UTC
