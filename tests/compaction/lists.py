"""The events of queries that keep lists, and the encoding of their state as Avro."""

from __future__ import annotations

from ..judge.queries import Event
from .stories import H, T

LISTS = [
    [Event("a", T + i, i) for i in range(9)] + [Event("b", T, 3), Event("é", T, 4), Event("gone", T, 5)],
    [Event("a", T + 10 * H, 11), Event("b", T + 9 * H, 12), Event("c", T + 9 * H, 13), Event("é", T + 8 * H, 14)],
    [Event("a", T + 20 * H, 21), Event("d", T + 9 * H, 22)],
]
AGAIN = [
    [Event(key, T + 30 * H + n, 30 + n) for key in ("a", "b", "c", "gone", "new") for n in range(batch)]
    for batch in (1, 2, 3)
]
AVRO = (("spark.sql.streaming.stateStore.encodingFormat", "avro"),)
