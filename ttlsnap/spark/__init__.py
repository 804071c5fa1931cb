"""Functions and classes for PySpark.

``read_state``     the state of a checkpoint as a distributed DataFrame
``StateListener``  a listener that measures the state of running queries, and warns when it grows

A name is imported at its first use, so that a driver that only listens loads none of the code that reads state.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ttlsnap.extras import require_package

if TYPE_CHECKING:
    from ttlsnap.spark.listener import StateListener, StateWarning
    from ttlsnap.spark.reading import ReadStateRequest, read_state

_HOME_OF = {
    "ReadStateRequest": "reading",
    "StateListener": "listener",
    "StateWarning": "listener",
    "read_state": "reading",
}

__all__ = ["ReadStateRequest", "StateListener", "StateWarning", "read_state"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ttlsnap.spark' has no attribute {name!r}")
    require_package("pyspark")
    globals()[name] = value = getattr(importlib.import_module(f"ttlsnap.spark.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
