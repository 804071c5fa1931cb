"""``migrate`` of a Delta state table: ``ALTER TABLE`` statements, each a commit of its own with the run's name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ttlsnap.delta.committing import commit, sql_name
from ttlsnap.delta.features import check_protocol
from ttlsnap.delta.log import open_table, read_table
from ttlsnap.delta.session import delta_session, require_delta
from ttlsnap.documents import MILLISECONDS, Document, Result
from ttlsnap.engines.launch import SessionSource
from ttlsnap.errors import BusyError, TtlsnapError
from ttlsnap.printable import shell_word
from ttlsnap.publishing.runs import new_run_id

MIGRATE = "migrate"
"""The kind of such a run, in its commits."""


@dataclass(frozen=True)
class Alteration(Document):
    """A step: the change of a ``column``, or of the whole table, and the SQL statements for it.

    Each statement is the part after ``ALTER TABLE`` and the name of the table. ``old`` and ``new`` are the two sides as
    text.
    """

    change: str
    column: str | None
    old: str | None
    new: str | None
    statements: tuple[str, ...]

    def __str__(self) -> str:
        sides = " -> ".join(side for side in (self.old, self.new) if side is not None)
        return f"{self.change} {self.column or 'table'}: {sides}"


@dataclass(frozen=True)
class TableMigrationReport(Result):
    """The result of the migration of a table. ``version`` is the table's last one before, ``version_after`` that after.

    ``statements`` are complete SQL statements, in the order in which they run.
    """

    kind: str = field(default=MIGRATE, init=False)
    run: str
    target: str
    dry_run: bool
    published: bool
    version: int
    version_after: int
    plan: tuple[Alteration, ...]
    statements: tuple[str, ...]
    seconds: float = field(metadata=MILLISECONDS)
    warnings: tuple[str, ...] = ()


def alter_table(
    target: str,
    plan: Sequence[Alteration],
    version: int,
    *,
    dry_run: bool = False,
    session: SessionSource = None,
    jars: str | None = None,
    master: str | None = None,
    confirm: Callable[[TableMigrationReport], bool] | None = None,
    warnings: Sequence[str] = (),
) -> TableMigrationReport:
    """Run the statements of ``plan``, which was made for ``version`` of the table ``target``.

    Raise BusyError if the table has another version, and a ``TtlsnapError`` that says which statements ran if Delta
    refuses one.
    """
    started = time.monotonic()
    files = open_table(target)
    table = read_table(files)
    check_protocol(files, table)
    run, name = new_run_id(), sql_name(files)
    statements = tuple(f"ALTER TABLE {name} {part}" for step in plan for part in step.statements)
    report = TableMigrationReport(
        run, files.root, dry_run, False, version, version, tuple(plan), statements, 0.0, tuple(warnings)
    )
    if dry_run or not statements or (confirm is not None and not confirm(report)):
        return report
    require_delta(session, jars)
    with files.lock(), delta_session(session, jars=jars, master=master) as spark:
        for number, statement in enumerate(statements):
            current_version = read_table(files).version
            if number == 0 and current_version != version:
                raise BusyError(
                    f"{files.root}: another writer has committed version {current_version}. Nothing was changed"
                )
            run_metadata = {"run": run, "kind": MIGRATE, "target": files.root, "part": number, "rules": [statement]}
            try:
                commit(spark, files, statement, run_metadata)
            except TtlsnapError as error:
                progress_text = f"{number} of {len(statements)} statements ran" if number else "Nothing was changed"
                undo = f". To undo them: ttlsnap rollback {shell_word(files.root)}" if number else ""
                raise type(error)(error.text + f"\n{statement}\n{progress_text}{undo}") from error
    version_after = read_table(files).version
    return replace(report, published=True, version_after=version_after, seconds=time.monotonic() - started)
