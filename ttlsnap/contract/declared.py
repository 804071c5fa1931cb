"""What a transformWithState processor declares in ``init``: its state variables and their TTLs.

Spark records of a TTL only that there is one. ``init`` is called on a copy of the processor, as Spark's own driver does
before a query starts, with a handle that notes down what is asked of it. What ``init`` has left in the processor's
attributes then says what it did, however it is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Declared:
    """``named`` is the processor after its ``init``, where each variable is a tuple of its kind and its name.

    ``nameless`` is the same without the variables' names. ``ttls`` are in milliseconds, by the variables' names; None
    for one without a TTL.
    """

    named: Any
    nameless: Any
    ttls: dict[str, int | None]


def declared(processor: Any) -> Declared | None:
    """What ``processor`` declares; None for what is no processor, or whose ``init`` does not run without Spark."""
    from pyspark import cloudpickle
    from pyspark.sql.streaming import StatefulProcessor

    if not isinstance(processor, StatefulProcessor):
        return None
    ttls: dict[str, int | None] = {}
    try:
        named, nameless = (cloudpickle.loads(cloudpickle.dumps(processor)) for _ in range(2))
        named.init(_handle(ttls, True))
        nameless.init(_handle(ttls, False))
    except Exception:  # it is the user's code, and may do anything
        return None
    return Declared(named, nameless, ttls)


def _handle(ttls: dict[str, int | None], named: bool) -> Any:
    """A ``StatefulProcessorHandle`` without Spark."""

    def declare(kind: str, name: str, ttl: int | None) -> tuple[str, ...]:
        ttls[name] = ttl
        return ("state variable", kind, name) if named else ("state variable", kind)

    class Handle:
        """Without attributes of its own: a processor keeps it, and everything in a processor counts."""

        __slots__ = ()

        def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
            return declare("value", stateName, ttlDurationMs)

        def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
            return declare("list", stateName, ttlDurationMs)

        def getMapState(
            self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
        ) -> Any:
            return declare("map", stateName, ttlDurationMs)

        def deleteIfExists(self, stateName: str) -> None:
            return None

    return Handle()
