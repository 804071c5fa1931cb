"""Pairs of queries whose old state is migrated, so that real Spark restarts the new query on it.

The pairs are those of ``tests.check``, in which Spark refuses the old state, or returns wrong rows. ``MIGRATED`` has
those that a migration repairs, and ``REFUSED`` those that it refuses, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ttlsnap.compaction.options import CompactOptions
from ttlsnap.contract import Contract
from ttlsnap.engines.local import LocalEngine
from ttlsnap.migration.changes import Changes
from ttlsnap.migration.report import MigrationReport
from ttlsnap.migration.run import migrate
from ttlsnap.repairs.answers import Answers
from ttlsnap.repairs.new_query import NewQuery

from ..check.observe import Observer, normal, put
from ..check.pair import Pair
from ..check.pairs import PAIRS
from ..check.quality import contracts_of


@dataclass(frozen=True)
class Migrated:
    """A pair that a migration repairs, with the user's ``answers``.

    ``afresh`` are the columns of the result that are as if the query had started with the new rows: those of an added
    aggregate. The ``keys`` are the first columns, which identify a row.
    """

    name: str
    steps: tuple[str, ...]
    answers: Mapping[str, Any] = field(default_factory=dict)
    afresh: tuple[int, ...] = ()
    keys: int = 1
    rows: list[tuple[Any, ...]] | None = None

    @property
    def pair(self) -> Pair:
        return PAIRS[self.name]

    def right(self) -> list[str]:
        """Return the rows that the restarted query must give."""
        if self.rows is not None:
            return normal(self.rows)
        rows = [list(row) for row in self.pair.right()]
        new = {tuple(row[: self.keys]): row for row in self.pair.new.right([], list(self.pair.after))}
        for row in rows:
            for column in self.afresh:
                row[column] = new[tuple(row[: self.keys])][column]
        return normal(rows)


class Migrator(Observer):
    """An observer that migrates the state of the old query before the new one starts."""

    def restart(self, one: Migrated) -> tuple[MigrationReport, dict[str, Any]]:
        """Return the report of the migration, and what real Spark does then: its rows, or its error."""
        pair = one.pair
        checkpoint = self.checkpoint_of(pair, 0)
        report = self.migrate(str(checkpoint), one.name, Answers(**one.answers))
        put(checkpoint.parent / "source", [pair.after])
        return report, self._attempt(pair, 1, checkpoint.parent)

    def migrate(self, checkpoint: str, name: str, answers: Answers) -> MigrationReport:
        """Migrate the state of a pair's old query to its new one."""
        old, new = contracts_of(name)
        assert isinstance(old, Contract) and isinstance(new, Contract)
        changes = Changes(new_query=NewQuery(new, old, answers))
        return migrate(checkpoint, changes, (), CompactOptions(stopped=True), LocalEngine(2))
