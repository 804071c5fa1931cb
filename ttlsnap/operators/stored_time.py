"""The time of an entry, as an operator stores it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttlsnap.clock import TimeCharacteristic


@dataclass(frozen=True)
class StoredTime:
    """The field ``name`` with the time from which Spark itself may drop an entry, and its ``clock``.

    ``clock`` is None if the checkpoint does not record it. ``written_plus_ttl``: the time is that of writing plus a
    duration. ``is_timeout``: it is the timeout of a group.
    """

    name: str
    clock: TimeCharacteristic | None
    written_plus_ttl: bool = False
    is_timeout: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """The facts as fields of a ``StateDescriptor``."""
        return {
            "stored_timestamp": self.name,
            "stored_time": self.clock.value if self.clock else None,
            "written_plus_ttl": self.written_plus_ttl,
            "timeout": self.name if self.is_timeout else None,
        }
