"""The rule of expiry, and the configuration of a TTL."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ttlsnap import compact
from ttlsnap.clock import MAX_INT64, MIN_INT64
from ttlsnap.errors import UsageError
from ttlsnap.transformers import CleanupStrategies, StateTtlConfig, TtlTransformerFactory, UpdateType, expired

from ..samples import bytes_of, sample

INT64 = st.integers(MIN_INT64, MAX_INT64)


@given(st.lists(INT64, min_size=1), st.integers(0, MAX_INT64), INT64)
@example([90, 91, MAX_INT64], 10, 100)
@example([MIN_INT64, 0, MAX_INT64], MAX_INT64, MAX_INT64)
@example([-1], MAX_INT64, MAX_INT64 - 1)
def test_expiry_does_not_overflow(timestamps: list[int], ttl: int, now: int) -> None:
    # As in Flink, a sum beyond the largest integer expires at the largest integer.
    wanted = [min(ts + ttl, MAX_INT64) <= now for ts in timestamps]
    assert expired(np.array(timestamps, np.int64), ttl, now).tolist() == wanted


def test_the_limit_is_inclusive() -> None:
    assert expired(np.array([89, 90, 91, MAX_INT64]), 10, 100).tolist() == [True, True, False, False]


def test_a_ttl_configuration_has_flinks_defaults_and_refuses_invalid_values() -> None:
    config = StateTtlConfig.of(timedelta(days=7))
    assert (config.update_type, config.visibility) == ("OnCreateAndWrite", "NeverReturnExpired")
    assert config.ttl_us == 7 * 86_400_000_000
    for ttl in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(UsageError, match="positive"):
            StateTtlConfig.of(ttl)
    with pytest.raises(UsageError, match="out of range"):
        StateTtlConfig(-1)
    with pytest.raises(UsageError, match="at least 1"):
        CleanupStrategies(incremental=0)


@pytest.mark.parametrize(
    ("cleanup", "message"),
    [
        (CleanupStrategies(full_snapshot=False), "full_snapshot=False has no effect"),
        (CleanupStrategies(incremental=1000), "incremental=1000 has no effect here; use strategy"),
        (CleanupStrategies(rocksdb=True), "rocksdb=True has no effect here; use rewrite"),
    ],
)
def test_a_cleanup_strategy_without_effect_is_refused(cleanup: CleanupStrategies, message: str) -> None:
    assert StateTtlConfig(1, cleanup=CleanupStrategies()).cleanup.full_snapshot
    with pytest.raises(UsageError, match=message):
        StateTtlConfig(1, cleanup=cleanup)


@pytest.mark.parametrize("timestamp", ["value.max", "@written", "value.nothing"])
def test_a_disabled_ttl_drops_nothing_and_the_report_says_so(tmp_path: Path, timestamp: str) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    before = bytes_of(target)
    assert compact(str(target), [TtlTransformerFactory(StateTtlConfig(1), "value.max")], dry_run=True).totals.dropped
    off = TtlTransformerFactory(StateTtlConfig(1, UpdateType.DISABLED), timestamp)
    report = compact(str(target), [off], stopped=True)
    assert (report.totals.dropped, report.published, report.rules) == (0, False, ("off (update type Disabled)",))
    assert [state.left_alone for state in report.states] == [
        "its update type is Disabled, so the state does not expire"
    ]
    assert bytes_of(target) == before
