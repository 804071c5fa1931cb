"""Arrow to UnsafeRows, byte for byte what Spark's own projection makes, a whole batch at once.

``encode(values, schema)``                        new rows from a struct array
``replace_word(rows, schema, ordinal, values)``   copies of rows with one fixed-width field replaced

``encode`` plans all sizes first and then writes into one zeroed buffer (``parts``). Padding and null words
are zero, nested values follow in the order of the fields, wide decimals and calendar intervals take
their 16 bytes even where they are null.

Dangers: equal bytes matter. A key that is encoded differently from Spark is another key to
Spark, so encode nothing of which the decoded form lost something (``layout`` tells what can vary).

Source: apache/spark ``UnsafeRowWriter``, ``UnsafeArrayWriter``, ``GenerateUnsafeProjection``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UsageError
from ttlsnap.schema import types as T
from ttlsnap.unsaferow.check import check_rows
from ttlsnap.unsaferow.encode_containers import struct_part
from ttlsnap.unsaferow.encode_values import to_words
from ttlsnap.unsaferow.gather import offsets_of, ragged
from ttlsnap.unsaferow.layout import WORD, bitset_bytes
from ttlsnap.unsaferow.parts import bit, conform
from ttlsnap.unsaferow.rows import Rows


def encode(values: pa.StructArray, schema: T.StructType) -> Rows:
    """Rows of ``schema`` holding ``values``, whose fields are taken by ordinal and may be of any Arrow
    type that casts to the schema's without loss.

    Raises UsageError for a null row, a null in a field that is not nullable, or a type that does not fit.
    """
    if values.null_count:
        raise UsageError("a row cannot be null, only its fields can")
    plan = struct_part(values, schema)
    offsets = offsets_of(plan.room)
    out = np.zeros(int(offsets[-1]) // WORD, "<i8")
    plan.write(out, offsets[:-1])
    return Rows(out.view(np.uint8), offsets[:-1], plan.room)


def replace_word(rows: Rows, schema: T.StructType, ordinal: int, values: pa.Array) -> Rows:
    """Copies of ``rows`` in which field ``ordinal`` has ``values``, n of them; all else stays byte for byte.

    Raises UsageError if the field is not fixed-width or a value does not fit, CorruptionError if the rows
    are damaged.
    """
    if not 0 <= ordinal < len(schema):
        raise UsageError(f"there is no field {ordinal} in {schema.simple_string}")
    field = schema.fields[ordinal]
    if not T.is_fixed_width(field.type):
        raise UsageError(f"field {field.name} is {field.type.simple_string}: no fixed width, encode the rows")
    if len(values) != len(rows):
        raise UsageError(f"{len(values)} values for {len(rows)} rows")
    check_rows(rows, schema)
    nulls = np.asarray(values.is_null())
    if nulls.any() and not field.nullable:
        raise UsageError(f"field {field.name} is not nullable but value {int(np.argmax(nulls))} is null")
    if isinstance(T.physical(field.type), T.NullType) and not nulls.all():
        raise UsageError(f"field {field.name} is void and holds nothing but null")
    present = conform(values.filter(pa.array(~nulls)), field.type, field.name)
    words = np.zeros(len(rows), np.int64)
    words[~nulls] = to_words(present, field.type, field.name)
    # The copy is made even where the rows lie in one piece already: `ragged` may share their memory.
    out = np.frombuffer(ragged(rows.data, rows.start, rows.size), "<i8").copy()
    start = offsets_of(rows.size)[:-1]
    out[(start + (bitset_bytes(len(schema)) + WORD * ordinal)) >> 3] = words
    bitset = (start >> 3) + ordinal // 64
    out[bitset] = np.where(nulls, out[bitset] | bit(ordinal), out[bitset] & ~bit(ordinal))
    return Rows(out.view(np.uint8), start, rows.size)
