"""What the store has as a value: ``00``, the version of the encoding, an int16, the id of a schema, and Avro.

When a query goes on with another schema of a variable, new values have a new id, and old ones stay as they are. All
schema files that the operator's metadata lists count, not the last one alone. Spark reads a value with the schema that
it names and makes of it one of the current schema; it writes with the current one. Elements of a list are such values,
each with an id of its own.

Source: apache/spark ``RocksDBStateEncoder.scala`` (``AvroStateEncoder.encodeValue``, ``decodeValue``) and
``StateSchemaMetadata``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.avro import pieces, types
from ttlsnap.avro.decode import decode
from ttlsnap.avro.encode import columns_of
from ttlsnap.avro.resolve import resolve
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.check import Trail, first
from ttlsnap.unsaferow.gather import Int64s, at
from ttlsnap.unsaferow.rows import Rows

if TYPE_CHECKING:
    from ttlsnap.checkpoint.state_schema import ColumnFamilySchema

VERSION = 0
"""The first byte of whatever is stored: the version of the encoding."""
_VERSION_SIZE, _ID_SIZE = 1, 2


@dataclass(frozen=True)
class ValueSchemas:
    """The schemas that the values of one state may have, by their ids; ``current`` is the one that Spark writes."""

    by_id: Mapping[int, StructType]
    current_id: int

    @classmethod
    def of(cls, versions: Sequence[ColumnFamilySchema]) -> ValueSchemas:
        """Of a column family as each of the listed schema files describes it, the oldest first."""
        return cls({version.value_id: version.value for version in versions}, versions[-1].value_id)

    @property
    def current(self) -> StructType:
        return self.by_id[self.current_id]

    @property
    def unsupported(self) -> str | None:
        """Why values cannot be read, if so."""
        return next((reason for schema in self.by_id.values() if (reason := types.unsupported(schema))), None)


def decode_values(raw: Rows, schemas: ValueSchemas) -> pa.StructArray:
    """Values as the store has them, as structs of the current schema; CorruptionError if they are damaged."""
    ids, rows = split_id(without_version(raw))
    if bool((ids == schemas.current_id).all()):
        return decode(rows, schemas.current)
    parts, places = [], []
    for number in np.unique(ids).tolist():
        which = np.flatnonzero(ids == number)
        schema = schemas.by_id.get(number)
        if schema is None:
            known = ", ".join(map(str, sorted(schemas.by_id)))
            Trail().fail(int(which[0]), f"it names the schema {number}, which no schema file has (there are: {known})")
        values = decode(rows.take(which), schema, Trail().step("", which))
        parts.append(resolve(values, schema, schemas.current))
        places.append(which)
    back = np.empty(len(raw), np.int64)
    back[np.concatenate(places)] = np.arange(len(raw))
    return pa.concat_arrays(parts).take(pa.array(back))


def encode_values(values: pa.StructArray, schemas: ValueSchemas) -> Rows:
    """Values as the store has them, written with the current schema as Spark would; errors as ``encode``."""
    head = pieces.constant(header(schemas.current_id), len(values))
    return pieces.side_by_side([head, *columns_of(values, schemas.current)], len(values))


def header(schema_id: int) -> bytes:
    """The bytes before the Avro ones."""
    return VERSION.to_bytes(_VERSION_SIZE) + schema_id.to_bytes(_ID_SIZE, "little", signed=True)


def without_version(raw: Rows) -> Rows:
    """The rows behind the byte of the encoding's version, which must be there."""
    bad = raw.size < _VERSION_SIZE
    if not bad.any():
        bad = at(raw.data, raw.start, "u1") != VERSION
    if bad.any():
        Trail().fail(first(bad), "no row of a known version of the encoding begins where it should")
    return Rows(raw.data, raw.start + _VERSION_SIZE, raw.size - _VERSION_SIZE)


def split_id(rows: Rows) -> tuple[Int64s, Rows]:
    """The ids of the rows' schemas, and the Avro bytes behind them."""
    bad = rows.size < _ID_SIZE
    if bad.any():
        Trail().fail(first(bad), "it is too short to name a schema")
    ids: Int64s = at(rows.data, rows.start, "<i2").astype(np.int64)
    return ids, Rows(rows.data, rows.start + _ID_SIZE, rows.size - _ID_SIZE)
