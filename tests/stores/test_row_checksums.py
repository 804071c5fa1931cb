"""The checksums of many rows at once equal those of the CRC package, row by row."""

from __future__ import annotations

import google_crc32c
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ttlsnap.stores.row_checksums import row_checksums
from ttlsnap.unsaferow.rows import Rows

from ..both_ways import both_ways  # noqa: F401

_SIZES = st.integers(0, 9).map(lambda n: 8 * n) | st.sampled_from([4, 12, 504, 512, 520, 2000]) | st.integers(0, 30)


def _rows(pieces: list[bytes], offset: int) -> Rows:
    size = np.array([len(piece) for piece in pieces], np.int64)
    data = np.frombuffer(bytes(offset) + b"".join(pieces), np.uint8)
    return Rows(data, np.cumsum(size) - size + offset, size)


@given(sizes=st.lists(st.tuples(_SIZES, _SIZES), min_size=1, max_size=12), seed=st.binary(min_size=1, max_size=9))
def test_checksums_equal_those_of_the_crc_package(sizes: list[tuple[int, int]], seed: bytes) -> None:
    noise = np.random.default_rng(list(seed))
    keys = [noise.bytes(key) for key, _ in sizes]
    values = [noise.bytes(value) for _, value in sizes]
    wanted = [google_crc32c.value(key + value) for key, value in zip(keys, values, strict=True)]
    assert row_checksums(_rows(keys, len(seed)), _rows(values, 4)).tolist() == wanted


def test_no_rows_have_no_checksums() -> None:
    assert row_checksums(Rows.none(), Rows.none()).tolist() == []
