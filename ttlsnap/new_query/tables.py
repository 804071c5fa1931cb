"""The migration of a Delta state table to the contract of its new stream: the statements that ``check`` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ttlsnap.check import compare
from ttlsnap.check.findings import Verdict
from ttlsnap.check.ignores import Ignore, apply
from ttlsnap.check.tables import can_widen
from ttlsnap.contract.table import TableContract
from ttlsnap.delta.altering import Alteration
from ttlsnap.delta.cutoff import quote_identifier
from ttlsnap.delta.log import set_key
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.new_query.answers import Answers
from ttlsnap.new_query.findings import describe_findings
from ttlsnap.schema.types import StructField, StructType
from ttlsnap.suggestions import did_you_mean

_AS_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata with the type of a ``char`` or ``varchar``, which is a string in the schema."""

_MAPPING, _WIDENING, _APPEND_ONLY = "delta.columnMapping.mode", "delta.enableTypeWidening", "delta.appendOnly"


def plan_table(
    target: str, old: TableContract, new: TableContract, answers: Answers, ignores: Sequence[Ignore] = ()
) -> tuple[list[Alteration], list[str]]:
    """Return the steps that give the table ``old`` the columns of ``new``, and what could not be compared.

    Raise UnsupportedError if ``check`` would still find something afterwards, and UsageError for an answer that does
    not belong to tables, or to no column that differs.
    """
    if answers.fills or answers.swaps or answers.births or answers.narrow:
        raise UsageError(f"{target} is a Delta table, for which only --rename, --drop and --ignore can be used")
    for name, columns, owner in (
        *((name, old.columns, "the table") for name in answers.renamed),
        *((name, new.columns, "the new stream") for name in answers.renamed.values()),
    ):
        if name not in columns.names:
            raise UsageError(f"--rename: {owner} has no column {name}{did_you_mean(name, columns.names)}")
    planner = _Planner(old, new, answers.renamed, set(answers.drops))
    planner.plan()
    if planner.drops:
        raise UsageError(
            f"--drop {sorted(planner.drops)[0]}: the table has no such column, or the new stream has it, too"
        )
    report = apply(compare(planner.table, new), ignores)
    unrepaired = [finding for finding in report.findings if finding.verdict.rank > Verdict.RECONFIGURATION.rank]
    if unrepaired:
        raise UnsupportedError(
            f"{target}: the statements that ttlsnap can run do not repair everything:{describe_findings(unrepaired)}"
        )
    return planner.steps, ["not compared: " + line for line in report.unseen]


@dataclass
class _Planner:
    """The search for steps. ``table`` is the contract after the steps so far."""

    old: TableContract
    new: TableContract
    renamed: Mapping[str, str]
    drops: set[str]
    steps: list[Alteration] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = self.old

    def plan(self) -> None:
        if self._property(_APPEND_ONLY) == "true" and self.new.properties.get(_APPEND_ONLY, "false").lower() != "true":
            self.steps.append(
                Alteration("property", None, "append-only", "updates", (self._set(_APPEND_ONLY, "false"),))
            )
        for column in self.old.columns:
            self._change(column)
        existing_names = {column.name.lower() for column in self.table.columns}
        for column in self.new.columns:
            if column.name.lower() not in existing_names:
                self._add(column)

    def _change(self, column: StructField) -> None:
        name = self.renamed.get(column.name, column.name)
        new_column = next((candidate for candidate in self.new.columns if candidate.name.lower() == name.lower()), None)
        if new_column is None:
            if column.name in self.drops:
                self.drops.discard(column.name)
                self._drop(column)
                return
            self._require_no_twin(column)
            if not column.nullable:
                self._relax(column)
            return
        if column.name in self.renamed:
            self._rename(column, new_column)
            column = replace(column, name=new_column.name)
        if column.type != new_column.type and can_widen(column.type, new_column.type):
            texts = column.type.simple_string, new_column.type.simple_string
            alter_statement = f"ALTER COLUMN {quote_identifier(column.name)} TYPE {texts[1]}"
            property_statements = () if self._property(_WIDENING) == "true" else (self._set(_WIDENING, "true"),)
            self.steps.append(Alteration("widen", column.name, *texts, (*property_statements, alter_statement)))
            column = self._replace(column, replace(column, type=new_column.type))
        if new_column.nullable and not column.nullable:
            self._relax(column)

    def _require_no_twin(self, column: StructField) -> None:
        """Raise UnsupportedError if a new column may be an old one that is gone."""
        known_names = {self.renamed.get(candidate.name, candidate.name).lower() for candidate in self.old.columns}
        new_column = next(
            (
                candidate
                for candidate in self.new.columns
                if candidate.name.lower() not in known_names and candidate.type == column.type
            ),
            None,
        )
        if new_column is not None:
            raise UnsupportedError(
                f"the column {column.name} is gone, and {new_column.name} is new: is it the same? If so, add --rename "
                f"{column.name}={new_column.name}; if not, add --drop {column.name}"
            )

    def _add(self, column: StructField) -> None:
        kind = str(column.metadata.get(_AS_DECLARED, column.type.simple_string))
        statement = f"ADD COLUMNS ({quote_identifier(column.name)} {kind})"
        self.steps.append(Alteration("add", column.name, None, f"{kind} = null", (statement,)))
        self._set_columns((*self.table.columns, replace(column, nullable=True)))

    def _drop(self, column: StructField) -> None:
        if column.name in self.table.key:
            raise UnsupportedError(f"{column.name} is a column of the rows' key; without it, several rows have one key")
        statements = (*self._map_columns(), f"DROP COLUMN {quote_identifier(column.name)}")
        self.steps.append(Alteration("drop", column.name, column.type.simple_string, None, statements))
        self._set_columns(tuple(remaining for remaining in self.table.columns if remaining.name != column.name))

    def _rename(self, column: StructField, new_column: StructField) -> None:
        rename = f"RENAME COLUMN {quote_identifier(column.name)} TO {quote_identifier(new_column.name)}"
        statements = [*self._map_columns(), rename]
        if column.name in self.table.key:
            key = tuple(new_column.name if name == column.name else name for name in self.table.key)
            self.table = replace(self.table, key=key)
            statements.append(set_key(key))
        self.steps.append(Alteration("rename", new_column.name, column.name, new_column.name, tuple(statements)))
        self._replace(column, replace(column, name=new_column.name))

    def _relax(self, column: StructField) -> None:
        statement = f"ALTER COLUMN {quote_identifier(column.name)} DROP NOT NULL"
        self.steps.append(Alteration("nullability", column.name, "NOT NULL", "nullable", (statement,)))
        self._replace(column, replace(column, nullable=True))

    def _map_columns(self) -> tuple[str, ...]:
        """Return the statement that lets Delta give a column another name, if the table does not allow it yet."""
        return () if self._property(_MAPPING) in ("name", "id") else (self._set(_MAPPING, "name"),)

    def _set(self, name: str, value: str) -> str:
        self.table = replace(self.table, properties={**self.table.properties, name: value})
        return f"SET TBLPROPERTIES ('{name}' = '{value}')"

    def _property(self, name: str) -> str:
        return self.table.properties.get(name, "").lower()

    def _replace(self, old: StructField, new: StructField) -> StructField:
        self._set_columns(tuple(new if column.name == old.name else column for column in self.table.columns))
        return new

    def _set_columns(self, columns: tuple[StructField, ...]) -> None:
        self.table = replace(self.table, columns=StructType(columns))
