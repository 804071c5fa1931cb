"""Schemas in which everything may be null."""

from __future__ import annotations

from dataclasses import replace

from ttlsnap.schema.types import ArrayType, DataType, MapType, StructType


def as_nullable(struct: StructType) -> StructType:
    """Return a struct whose fields may all be null, at every depth, as Spark 4.3 and later record it."""
    return StructType(tuple(replace(f, nullable=True, type=_with_nulls(f.type)) for f in struct.fields))


def _with_nulls(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return as_nullable(kind)
        case ArrayType():
            return ArrayType(_with_nulls(kind.element), True)
        case MapType():
            return MapType(_with_nulls(kind.key), _with_nulls(kind.value), True)
    return kind
