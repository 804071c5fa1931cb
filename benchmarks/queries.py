"""The streaming queries of the measured checkpoints, by their names in shapes.

Each receives a function that reads the events of ``events.py``, and returns the query and its output mode.
Nothing expires while it runs: watermarks are far behind, and TTLs are longer than the writing takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Read = Callable[[], DataFrame]

NOW = "2025-06-15T12:00:00Z"
TTL = "30d"
TIMESTAMP = "value.max"
"""The rule of ``compact`` for aggregations, of which half the entries have expired."""
TTL_MS = 30 * 86_400_000
FIELDS = 10
"""Entries that a key has in ``variables``: one of a value, the others of a map."""
OWN_TTL = ("variables",)
"""Queries whose entries have Spark's own TTL, which counts from the time of writing."""

_DELAY = "100 days"


def aggregation(read: Read) -> tuple[DataFrame, str]:
    """Return for each key the last time, a count and a sum."""
    from pyspark.sql import functions as F

    return read().groupBy("key").agg(F.max("at"), F.count("*"), F.sum("amount")), "update"


def visits(read: Read) -> tuple[DataFrame, str]:
    """Return for each site, user and page the first and last time, a count, and sums, one of them a decimal."""
    from pyspark.sql import functions as F

    groups = read().groupBy(F.struct("tenant", "country").alias("site"), "user", "url")
    return groups.agg(F.max("at"), F.min("at"), F.count("*"), F.sum("price"), F.sum("amount")), "update"


def join(read: Read) -> tuple[DataFrame, str]:
    """Return the join of events with even and odd amounts, by the key and within an hour of each other."""
    from pyspark.sql import functions as F

    def side(parity: int, name: str) -> DataFrame:
        return read().where(F.col("amount") % 2 == parity).withWatermark("at", _DELAY).alias(name)

    near = F.expr("l.key = r.key AND r.at BETWEEN l.at - INTERVAL 1 HOUR AND l.at + INTERVAL 1 HOUR")
    return side(0, "l").join(side(1, "r"), near).select("l.key", "l.amount"), "append"


def sessions(read: Read) -> tuple[DataFrame, str]:
    """Return for each key the sessions that a pause of a minute ends, each with a count and a sum."""
    from pyspark.sql import functions as F

    groups = read().withWatermark("at", _DELAY).groupBy("key", F.session_window("at", "1 minute"))
    return groups.agg(F.count("*"), F.sum("amount")), "append"


def variables(read: Read) -> tuple[DataFrame, str]:
    """Return a transformWithState query with a value and a map for each key, each with a TTL.

    The amounts of a key differ in their last digit, which decides where an amount is stored.
    """
    from pyspark.sql.streaming import StatefulProcessor

    class Amounts(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.last = handle.getValueState("last", "amount long", TTL_MS)
            self.others = handle.getMapState("others", "digit string", "amount long", TTL_MS)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            for frame in rows:
                for amount in frame["amount"].tolist():
                    if amount % FIELDS:
                        self.others.updateValue((str(amount % FIELDS),), (amount,))
                    else:
                        self.last.update((amount,))
            return iter(())

        def close(self) -> None:
            pass

    groups = read().select("key", "amount").groupBy("key")
    return groups.transformWithStateInPandas(Amounts(), "key string", "Update", "ProcessingTime"), "update"


QUERIES: dict[str, Callable[[Read], tuple[DataFrame, str]]] = {
    query.__name__: query for query in (aggregation, visits, join, sessions, variables)
}


def by_user(df: DataFrame) -> DataFrame:
    """Return a small query for its contract."""
    return df.groupBy("user").sum("amount")
