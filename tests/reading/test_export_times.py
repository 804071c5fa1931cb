"""Times and ages in a table are those of the entries, and a file has its name only when it is complete."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from ttlsnap import export, inspect
from ttlsnap.engines.progress import SilentWorkListener

from ..samples import SAMPLES

AGG, ALARMS, DEDUP = (str(SAMPLES / name) for name in ("agg-deltas-lz4-4.2", "alarms-4.2", "dedup-watermark-4.2"))


def lines(target: str, **options: Any) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    export(target, stream, **options)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_entry_without_a_time_has_no_age() -> None:
    rows = lines(DEDUP)
    timeless = [row for row in rows if row["key"]["at"] is None]
    assert [(row["timestamp"], row["age_seconds"]) for row in timeless] == [(None, None)]
    for where in ("age >= 0s", "age < 36500d", "age > 365d"):
        assert not [row for row in lines(DEDUP, where=[where]) if row["key"]["at"] is None], where
    old, young = (lines(DEDUP, where=[where]) for where in ("age >= 1d", "age < 1d"))
    assert len(old) + len(young) + 1 == len(rows)


def test_a_timer_has_the_time_at_which_it_fires() -> None:
    found = {row["key"]["key"]: row["time"] for row in lines(ALARMS, tables=["0.eventTimers"])}
    samples = inspect(ALARMS, entries=100).samples or ()
    wanted = {e["key"]["key"]: e["time"] for e in samples if e["state"] == "$eventTimers_keyToTimestamp"}
    assert {key: f"{time[:10]} {time[11:19]}.000000" for key, time in wanted.items()} == found
    assert found["key-0"] == "2026-11-21 22:00:00.000000"


def test_an_age_is_rounded_down_also_before_zero() -> None:
    ages = {}
    for now in ("2026-10-23T23:10:32.500Z", "2026-10-23T23:10:33Z", "2026-10-23T23:10:33.500Z"):
        (row,) = lines(AGG, timestamp="value.max", now=now, where=["key.key = user-0034"])
        assert row["timestamp"] == "2026-10-23 23:10:33.000000"
        ages[now[17:]] = row["age_seconds"]
    assert ages == {"32.500Z": -1, "33Z": 0, "33.500Z": 0}


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    class Looking(SilentWorkListener):
        ended = 0

        def progress(self, entries: int, dropped: int) -> None:
            # The rows of a partition that has not ended are not all written.
            seen.append((len([*(tmp_path / "state/0.state").glob("part-*")]), self.ended))

        def partition_done(self) -> None:
            self.ended += 1

    export(AGG, str(tmp_path / "state"), parallelism=1, listener=Looking())
    assert {ended for _, ended in seen} == {0, 1}
    assert all(complete == ended for complete, ended in seen), seen
    assert len([*(tmp_path / "state/0.state").glob("part-*")]) == 2
    assert not [*(tmp_path / "state/0.state").glob(".*")]
