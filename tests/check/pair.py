"""A pair: the old query, the changed one, the events before and after the restart, and the right rows.

``change`` is the kind of the change, one of ``CHANGES``. A pair of kind ``nothing`` or ``harmless`` must restart with
the right rows, so a checker must let it pass. A pair can state its right ``rows``. Otherwise they are the rows of the
new query as if it had run from the beginning (``queries``, ``processors``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .processors import Field, Variable, pandas, transform
from .queries import Event, Query, Rows, aggregate, dedup, join

NEWEST = "4.2"
Conf = Mapping[str, str]

CHANGES = (
    "nothing",
    "harmless",
    "key added",
    "key removed",
    "key renamed",
    "key reordered",
    "key retyped",
    "keys swapped",
    "key nullability",
    "value added",
    "value removed",
    "value renamed",
    "value reordered",
    "value retyped",
    "value widened",
    "value nullability",
    "values swapped",
    "aggregate replaced",
    "operator added",
    "operator removed",
    "operators swapped",
    "operator replaced",
    "variable added",
    "variable removed",
    "variable renamed",
    "variable kind",
    "field added",
    "field removed",
    "field renamed",
    "field retyped",
    "field nullability",
    "fields swapped",
    "ttl on",
    "ttl off",
    "ttl shorter",
    "ttl longer",
    "time mode",
    "timers",
    "timeout",
    "function body",
    "window length",
    "window slide",
    "session gap",
    "dedup columns",
    "dedup delay",
    "join type",
    "join sides",
    "join key",
    "join range",
    "join format",
    "watermark shorter",
    "watermark longer",
    "watermark removed",
    "watermark added",
    "watermark policy",
    "output mode",
    "limit",
    "provider",
    "partitions",
    "codec",
    "encoding",
    "changelog",
    "checkpoint format",
    "row checksum",
    "state format",
    "rocksdb format",
    "schema check",
    "upgrade",
    "downgrade",
)


@dataclass(frozen=True)
class Pair:
    """A pair, as the module describes it. In each tuple of two the first is for the old query.

    ``unchanged`` has the rows that show that Spark ignored the change. ``effect`` looks for the change in the
    checkpoint. ``pause_s`` is the time between the old query and the new one. An empty mode means the query's own.
    """

    name: str
    change: str
    old: Query
    new: Query
    settings: tuple[Conf, Conf] = ({}, {})
    modes: tuple[str, str] = ("", "")
    versions: tuple[str, str] = (NEWEST, NEWEST)
    sinks: tuple[str, str] = ("rows", "rows")
    before: tuple[tuple[Event, ...], ...] = ()
    after: tuple[Event, ...] = ()
    rows: Rows | None = None
    unchanged: Rows | None = None
    effect: Callable[[Path], bool] | None = None
    pause_s: float = 0

    def right(self) -> Rows:
        """Return the rows that are right after the restart."""
        if self.rows is not None:
            return self.rows
        return self.new.right([event for events in self.before for event in events], list(self.after))


PAIRS: dict[str, Pair] = {}

BEFORE = (
    (Event("a", "x", 10, 1, 0), Event("b", "y", 20, 2, 5)),
    (Event("a", "y", 30, 3, 10), Event("c", "x", 5, 4, 12)),
)
AFTER = (
    Event("a", "x", 20, 7, 20),
    Event("b", "x", 1, 9, 25),
    Event("d", "y", 50, 6, 28),
    Event("c", "y", 8, 5, 29),
)
# A day later all windows, sessions and timers have ended.
CLOSING = (*AFTER, Event("z", "z", 0, 0, 1440))
CLOSING_BOTH = (*AFTER, Event("z", "x", 0, 0, 1440), Event("zz", "y", 0, 0, 1440))
WITH_NULL = (BEFORE[0], (*BEFORE[1], Event(None, "x", 7, 5, 15)))
AND_NULL = (*AFTER, Event(None, "y", 9, 8, 26))
# Spark hashes these prices to different partitions as int and as bigint. It hashes 1 to 7 to the same partition.
PRICES = ((Event("a", "x", 10, 8, 0),), (Event("b", "y", 20, 10, 5),))
SAME_PRICES = (Event("a", "x", 6, 8, 20), Event("b", "y", 7, 10, 21))

_STORE = "spark.sql.streaming.stateStore."
_STATE = "org.apache.spark.sql.execution.streaming.state."
HDFS: Conf = {_STORE + "providerClass": _STATE + "HDFSBackedStateStoreProvider"}
ROCKSDB: Conf = {_STORE + "providerClass": _STATE + "RocksDBStateStoreProvider"}
AVRO: Conf = {**ROCKSDB, _STORE + "encodingFormat": "avro"}
UNCHECKED: Conf = {_STORE + "stateSchemaCheck": "false"}


def pair(
    name: str, change: str, old: Query, new: Query, *, conf: Conf | None = None, now: Conf | None = None, **rest: Any
) -> None:
    """Enter a pair. ``conf`` has the settings of both queries, and ``now`` more settings of the new one.

    ``rest`` has other fields of ``Pair``.
    """
    assert name not in PAIRS, name
    assert change in CHANGES, change
    shared = conf or {}
    usual = {"before": BEFORE, "after": AFTER, "settings": (shared, {**shared, **(now or {})})}
    PAIRS[name] = Pair(name, change, old, new, **{**usual, **rest})


TOTAL = {"total": "sum amount"}
BY_USER = aggregate(["user"], TOTAL)
BOTH_KEYS = aggregate(["user", "other"], TOTAL)
WINDOWS = aggregate(["user"], TOTAL, delay=60, window=(60, 60), mode="append")
SESSIONS = aggregate(["user"], TOTAL, delay=60, gap=30, mode="append")
ONCE_EACH = dedup(["user", "other"])
WITHIN = dedup(["user", "other"], delay=60, within=True)
JOINED = join(["amount"], ["amount"])
NEAR = join(["amount"], ["amount"], delay=60, within=60)
KEEPS = transform(Variable("kept"))
STEPS = pandas(Field("total"), Field("n", "n"))
