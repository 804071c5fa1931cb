"""Variables with Spark's own TTL of a day: the events, the times of batches, and the entries of the first batch."""

from __future__ import annotations

import json
from typing import Any

from ..judge.outcomes import Batch
from ..judge.queries import Event
from ..judge.spark import Checkpoint, Events
from ..matrix import FULL
from .stories import T

DAY_MS = 24 * 3600 * 1000
BATCHES: list[Events] = [
    [Event(key, T + i, number) for i, (key, number) in enumerate([("a", 1), ("b", 2), ("c", 3), ("a", 2), ("é", 12)])],
    [Event("a", T + 100, 1), Event("d", T + 9, 5), Event("é", T + 11, 8)],
    [Event("b", T + 50, 7), Event("a", T + 200, 9)],
]
MORE: list[Events] = [
    [Event(key, T + 1000 + n, n) for key in ("a", "b", "c", "d", "é", "new") for n in range(batch, batch + 2)]
    for batch in range(22 if FULL else 2)
]


def began_ms(checkpoint: Checkpoint, batch: int) -> int:
    """Return the time at which a batch began, in milliseconds. Its entries expire a day later."""
    document = json.loads((checkpoint.path / "offsets" / str(batch)).read_text().splitlines()[1])
    return int(document["batchTimestampMs"])


def rows(batches: list[Batch]) -> list[Any]:
    """Return the rows of the batches that emitted any."""
    return [batch.rows for batch in batches if batch.rows]


def in_batch_0(found: Any) -> bool:
    """Return whether the first batch wrote an entry."""
    return bool(found.at("value.batch") == 0)
