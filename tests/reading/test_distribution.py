"""Percentiles from counts: exact for small numbers, at most 0.4 % too high for large ones."""

from __future__ import annotations

import numpy as np
import pytest

from ttlsnap.reading.distribution import Distribution

from .raw import nearest_rank

RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize(
    "numbers",
    [
        RANDOM.integers(0, 4_096, 10_000),
        RANDOM.integers(0, 1 << 20, 10_000),
        (2.0 ** RANDOM.uniform(0, 43, 10_000)).astype(np.int64),
        np.array([4_095, 4_096, 4_097, 8_191, 8_192]),
        np.array([0]),
        np.repeat(np.array([3, (1 << 31) - 1]), [99, 1]),
    ],
    ids=["small", "large", "years", "limits", "zero", "one huge"],
)
def test_percentiles_are_near_those_of_all_numbers(numbers: np.ndarray) -> None:
    whole = Distribution.of(_counted(part) for part in np.array_split(numbers, 3))
    assert whole.counts.sum() == len(numbers)
    for percent in (1, 50, 90, 99, 100):
        exact, found = nearest_rank(numbers.tolist(), percent), whole.percentile(percent)
        assert found is not None
        assert exact <= found <= (exact if exact < 4_096 else exact * (1 + 1 / 256))
    assert whole.percentile(100) == whole.highest == numbers.max()
    assert len(whole.counts) < 4_096 + 256 * 40


def test_nothing_has_no_percentiles() -> None:
    assert Distribution.of([Distribution()]).to_json() == {"p50": None, "p90": None, "p99": None, "max": None}


def _counted(numbers: np.ndarray) -> Distribution:
    found = Distribution()
    found.add(numbers)
    return found
