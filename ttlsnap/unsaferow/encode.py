"""Encoding of Arrow to UnsafeRows, byte for byte as Spark's own projection writes them, a whole batch at once.

``encode`` first plans all sizes and then writes into one zeroed buffer (``parts``). Padding and null words are zero.
Nested values follow in the order of the fields. Wide decimals and calendar intervals take their 16 bytes even if they
are null.

Dangers: equal bytes matter. For Spark, a key with different bytes is a different key. Do not encode values that lost
information when they were decoded. ``layout`` describes what can vary.

Source: apache/spark ``UnsafeRowWriter``, ``UnsafeArrayWriter``, ``GenerateUnsafeProjection``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UsageError
from ttlsnap.schema import types as T
from ttlsnap.unsaferow.encode_containers import struct_part
from ttlsnap.unsaferow.gather import offsets_of
from ttlsnap.unsaferow.layout import WORD
from ttlsnap.unsaferow.rows import Rows


def encode(values: pa.StructArray, schema: T.StructType) -> Rows:
    """Return rows of ``schema`` that hold ``values``.

    The fields are matched by ordinal. They may be of any Arrow type that casts to the schema's type without loss.

    Raises UsageError for a null row, a null in a field that is not nullable, or a type that does not fit.
    """
    if values.null_count:
        raise UsageError("a row cannot be null, only its fields can")
    plan = struct_part(values, schema)
    offsets = offsets_of(plan.room)
    target = np.zeros(int(offsets[-1]) // WORD, "<i8")
    plan.write(target, offsets[:-1])
    return Rows(target.view(np.uint8), offsets[:-1], plan.room)
