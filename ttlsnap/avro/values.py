"""Stored values: ``00`` for the version of the encoding, the schema id as an int16, and Avro.

When a query restarts with another schema of a variable, new values get a new id, and old values stay as they are. All
schema files that the operator's metadata lists are needed, not only the last one. Spark reads a value with the schema
that it names, and converts it to the current schema. Spark writes with the current schema. Each element of a list is a
value like this, with its own id.

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
from ttlsnap.unsaferow.gather import Int64s, read_at
from ttlsnap.unsaferow.rows import Rows

if TYPE_CHECKING:
    from ttlsnap.checkpoint.state_schema import ColumnFamilySchema

VERSION = 0
"""The first byte of every stored row: the version of the encoding."""
_VERSION_SIZE, _ID_SIZE = 1, 2


@dataclass(frozen=True)
class ValueSchemas:
    """Schemas that the values of one state may have, by their ids; Spark writes with ``current``."""

    by_id: Mapping[int, StructType]
    current_id: int

    @classmethod
    def of(cls, versions: Sequence[ColumnFamilySchema]) -> ValueSchemas:
        """Return the schemas of a column family from its versions in the listed schema files, the oldest first."""
        # If two schemas have one id, the later one counts, as in Spark.
        return cls({version.value_id: version.value for version in versions}, versions[-1].value_id)

    @property
    def current(self) -> StructType:
        return self.by_id[self.current_id]

    @property
    def unsupported(self) -> str | None:
        """The reason why values cannot be read, or None."""
        return next((reason for schema in self.by_id.values() if (reason := types.explain_unsupported(schema))), None)


def decode_values(raw: Rows, schemas: ValueSchemas) -> pa.StructArray:
    """Return stored values as structs of the current schema; raises CorruptionError if they are damaged.

    Raises UnsupportedError as ``resolve`` does.
    """
    ids, rows = split_id(without_version(raw))
    if bool((ids == schemas.current_id).all()):
        return decode(rows, schemas.current)
    values_of_schemas, places = [], []
    for number in np.unique(ids).tolist():
        rows_of_schema = np.flatnonzero(ids == number)
        schema = schemas.by_id.get(number)
        if schema is None:
            known_ids = ", ".join(map(str, sorted(schemas.by_id)))
            Trail().fail(
                int(rows_of_schema[0]),
                f"it names the schema {number}, which no schema file has (there are: {known_ids})",
            )
        values = decode(rows.take(rows_of_schema), schema, Trail().step("", rows_of_schema))
        values_of_schemas.append(resolve(values, schema, schemas.current))
        places.append(rows_of_schema)
    back = np.empty(len(raw), np.int64)
    back[np.concatenate(places)] = np.arange(len(raw))
    return pa.concat_arrays(values_of_schemas).take(pa.array(back))


def encode_values(values: pa.StructArray, schemas: ValueSchemas) -> Rows:
    """Return values as the store has them, in the current schema, as Spark would write them.

    Raises as ``encode`` does.
    """
    schema_header = pieces.constant(header(schemas.current_id), len(values))
    return pieces.side_by_side([schema_header, *columns_of(values, schemas.current)], len(values))


def header(schema_id: int) -> bytes:
    """Return the bytes before the Avro bytes: the version and the schema id."""
    return VERSION.to_bytes(_VERSION_SIZE) + schema_id.to_bytes(_ID_SIZE, "little", signed=True)


def without_version(raw: Rows) -> Rows:
    """Return the rows after the version byte; raises CorruptionError if that byte is missing or unknown."""
    is_bad = raw.size < _VERSION_SIZE
    if not is_bad.any():
        is_bad = read_at(raw.data, raw.start, "u1") != VERSION
    if is_bad.any():
        Trail().fail(first(is_bad), "no row of a known version of the encoding begins where it should")
    return Rows(raw.data, raw.start + _VERSION_SIZE, raw.size - _VERSION_SIZE)


def split_id(rows: Rows) -> tuple[Int64s, Rows]:
    """Return the schema ids of the rows (int64[n]), and the Avro bytes after them.

    Raises CorruptionError if a row is too short for an id.
    """
    is_bad = rows.size < _ID_SIZE
    if is_bad.any():
        Trail().fail(first(is_bad), "it is too short to name a schema")
    ids: Int64s = read_at(rows.data, rows.start, "<i2").astype(np.int64)
    return ids, Rows(rows.data, rows.start + _ID_SIZE, rows.size - _ID_SIZE)
