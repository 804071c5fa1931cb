"""The report of an import, for people and machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ttlsnap.amounts import quantity
from ttlsnap.documents import json_property
from ttlsnap.transaction.report import RunReport


@dataclass(frozen=True)
class ImportedTable:
    """A table: its ``rows`` that became entries, the keys of old entries that it ``replaced``, and rows left out.

    ``expired`` rows were left out because their time to live had ended before the last batch. For a state with several
    entries for a key, ``replaced`` counts the keys.
    """

    name: str
    state: str
    rows: int
    replaced: int
    expired: int


@dataclass(frozen=True, kw_only=True)
class ImportReport(RunReport):
    """The result of an import. ``sources`` are the positions from which the query's sources read on, as JSON.

    ``engine_reason`` says why the engine was chosen; None if the caller chose it.
    """

    source: str
    mode: str
    tables: tuple[ImportedTable, ...]
    sources: tuple[Any, ...]
    bytes_before: int
    bytes_after: int
    engine: str
    engine_reason: str | None
    kind: str = field(default="import", init=False)

    @property
    def rows(self) -> int:
        """The number of rows that became entries."""
        return sum(table.rows for table in self.tables)

    @property
    def replaced(self) -> int:
        """The number of keys whose old entries go."""
        return sum(table.replaced for table in self.tables)

    @property
    @json_property()
    def totals(self) -> dict[str, int]:
        """The sums over all tables."""
        return {"imported": self.rows, "dropped": self.replaced}

    @property
    @json_property()
    def rules(self) -> list[str]:
        """What the import does with each table, in words."""
        return [f"{self.mode} {quantity(table.rows, 'row')} into {table.name}" for table in self.tables]
