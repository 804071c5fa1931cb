"""Placement of nulls: values are decoded without them, and then spread over all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.unsaferow.gather import Mask


def spread(values: pa.Array, nulls: Mask) -> pa.Array:
    """Return ``values``, in order, at the places where ``nulls`` is false, and null at the others."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(nulls))
    return values.take(pa.array(np.cumsum(~nulls) - 1, mask=nulls))
