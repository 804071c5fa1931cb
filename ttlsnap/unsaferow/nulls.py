"""Nulls, put back: values are decoded where they are, and spread out over all rows afterwards."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.unsaferow.gather import Mask


def spread(values: pa.Array, nulls: Mask) -> pa.Array:
    """``values`` in the places where ``nulls`` is false, in order; null in the others."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(nulls))
    return values.take(pa.array(np.cumsum(~nulls) - 1, mask=nulls))
