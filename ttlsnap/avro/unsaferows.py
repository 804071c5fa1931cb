"""Conversion of stored Avro rows to UnsafeRows and back; the rest of ttlsnap uses UnsafeRows.

They are the rows that Spark would have with ``encodingFormat`` unsaferow, except for the order of map entries. A kept
value must keep its stored bytes. Encoding it again would convert it to the current schema, and Spark does that only
when it writes the value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from ttlsnap.avro import types
from ttlsnap.avro.keys import KeyLayout, decode_keys, encode_keys
from ttlsnap.avro.values import ValueSchemas, decode_values, encode_values
from ttlsnap.schema import types as T
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows


def key_rows(raw: Rows, layout: KeyLayout) -> Rows:
    """Return the UnsafeRows of the whole keys; raises CorruptionError for damage."""
    return encode(decode_keys(raw, layout), nullable(layout.schema))


def value_rows(raw: Rows, schemas: ValueSchemas) -> Rows:
    """Return the UnsafeRows of the values, in the current schema; raises CorruptionError for damage."""
    return encode(decode_values(raw, schemas), nullable(schemas.current))


def stored_keys(rows: Rows, layout: KeyLayout) -> Rows:
    """Return keys as the store has them."""
    return encode_keys(decode(rows, layout.schema), replace(layout, schema=nullable(layout.schema)))


def stored_values(rows: Rows, schemas: ValueSchemas) -> Rows:
    """Return values as the store has them, in the current schema.

    Raises UsageError for a null that Avro cannot have.
    """
    current_schema = nullable(schemas.current)
    return encode_values(
        decode(rows, current_schema), ValueSchemas({schemas.current_id: current_schema}, schemas.current_id)
    )


@cache
def nullable(schema: T.StructType) -> T.StructType:
    """Return the schema with nulls allowed everywhere: Avro has room for them even where the schema forbids them."""
    relaxed = _nullable(schema)
    assert isinstance(relaxed, T.StructType)
    return relaxed


def _nullable(data_type: T.DataType) -> T.DataType:
    match data_type:
        case T.StructType(fields):
            return T.StructType(tuple(replace(field, type=_nullable(field.type), nullable=True) for field in fields))
        case T.ArrayType(element):
            return T.ArrayType(_nullable(element))
        case T.MapType(key, value):
            return T.MapType(_nullable(key), _nullable(value))
        case T.UserDefinedType():
            return replace(data_type, sql_type=_nullable(data_type.sql_type))
    return data_type


@dataclass(frozen=True)
class AvroRows:
    """Conversion of one state's entries, by the layout of its keys and the schemas that its values may have."""

    key_layout: KeyLayout
    value_schemas: ValueSchemas

    @property
    def unsupported(self) -> str | None:
        """The reason why the entries cannot be read, or None."""
        return types.explain_unsupported(self.key_layout.schema) or self.value_schemas.unsupported

    def keys(self, raw: Rows) -> Rows:
        """See ``key_rows``."""
        return key_rows(raw, self.key_layout)

    def stored_keys(self, rows: Rows) -> Rows:
        """See ``stored_keys``."""
        return stored_keys(rows, self.key_layout)

    def values(self, raw: Rows) -> Rows:
        """See ``value_rows``."""
        return value_rows(raw, self.value_schemas)

    def stored_values(self, rows: Rows) -> Rows:
        """See ``stored_values``."""
        return stored_values(rows, self.value_schemas)
