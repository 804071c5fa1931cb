"""Places in the state of a query, as reports name them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any

from ttlsnap.documents import Document, in_json


@dataclass(frozen=True)
class Place(Document):
    """A place in a contract, down to the level that is known."""

    operator: int | None = None
    store: str | None = None
    state: str | None = None
    field: str | None = None
    operator_name: str | None = dataclass_field(default=None, metadata=in_json(hidden=True))

    def __str__(self) -> str:
        """Return the place as ``0.default.visits.value.count``, or ``query`` if it belongs to no operator."""
        names = [None if self.operator is None else str(self.operator), self.store, self.state, self.field]
        return ".".join(name for name in names if name is not None) or "query"

    def at(self, **parts: Any) -> Place:
        """Return a place within this one."""
        return replace(self, **parts)
