"""A report says that nobody chose the clock of a timestamp, where the other clock has another time."""

from __future__ import annotations

import pytest

from ..cli.running import Ttlsnap
from ..samples import SAMPLES

BY_MAX = ("agg-deltas-lz4-4.2", "--ttl", "7d", "--timestamp", "value.max")


@pytest.mark.parametrize(
    ("words", "event_now"),
    [
        (BY_MAX, "2026-11-21T07:00:00.000Z"),
        ((*BY_MAX, "--time", "processing"), None),
        ((*BY_MAX, "--time", "event"), None),
        ((*BY_MAX, "--now", "2026-11-21"), None),
        (("window-append-snappy-4.0", "--ttl", "1s", "--timestamp", "key.window.start"), None),
        (("dedup-columns-3.1", "--ttl", "1s", "--timestamp", "@written"), None),
    ],
)
def test_only_an_assumed_clock_is_told(ttlsnap: Ttlsnap, words: tuple[str, ...], event_now: str | None) -> None:
    name, *rule = words
    command = ("compact", SAMPLES / name, *rule, "--dry-run", "--max-drop", "100%", "--engine", "local")
    (state,) = ttlsnap(*command, "--format", "json").json["stores"]
    assert state.get("event_now") == event_now
    told = f"add --time event (in a policy: time): that compares it with the watermark {str(event_now)[:19]}Z"
    assert (told in ttlsnap(*command).out) == (event_now is not None)
