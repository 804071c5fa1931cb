"""The declarations of a transformWithState processor in ``init``: its state variables and their TTLs.

Spark records whether a variable has a TTL, but not its length. So ttlsnap calls ``init`` on a copy of the processor, as
Spark's driver does before a query starts. The handle that it passes records each variable. Afterwards the attributes of
the processor show what ``init`` did, independent of how it is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Declared:
    """The declarations of one processor.

    ``named`` is the processor after ``init``, in which a tuple of kind and name replaces each variable. ``nameless`` is
    the same without the names. ``ttls`` has the TTLs in milliseconds by the names of the variables; None for no TTL.
    """

    named: Any
    nameless: Any
    ttls: dict[str, int | None]


def read_declaration(processor: Any) -> Declared | None:
    """Return what ``processor`` declares.

    None if the object is not a processor, or if its ``init`` does not run without Spark.
    """
    from pyspark import cloudpickle
    from pyspark.sql import streaming

    # Spark before 4.0 has no such class.
    if not isinstance(processor, getattr(streaming, "StatefulProcessor", ())):
        return None
    ttls: dict[str, int | None] = {}
    try:
        named, nameless = (cloudpickle.loads(cloudpickle.dumps(processor)) for _ in range(2))
        named.init(_handle(ttls, True))
        nameless.init(_handle(ttls, False))
    except Exception:  # the user's code may raise anything
        return None
    return Declared(named, nameless, ttls)


def _handle(ttls: dict[str, int | None], with_names: bool) -> Any:
    """Return a ``StatefulProcessorHandle`` that works without Spark."""

    def declare(kind: str, name: str, ttl: int | None) -> tuple[str, ...]:
        ttls[name] = ttl
        return ("state variable", kind, name) if with_names else ("state variable", kind)

    class Handle:
        """A handle without attributes: a processor keeps it, and everything in a processor counts for its digest."""

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
