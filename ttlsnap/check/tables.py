"""Delta state tables, old against new: may the new stream go on merging into the old table?

Delta resolves columns by name and casts what is merged to the table's types; the table keeps its own schema unless
schema evolution is on. What happens in each case was seen on Delta 4.4 (``tests/check/tables.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ttlsnap.check.collecting import finding
from ttlsnap.check.findings import Finding, Place, Verdict
from ttlsnap.check.rules import SILENT
from ttlsnap.contract.table import TableContract
from ttlsnap.errors import UsageError
from ttlsnap.schema.types import (
    BooleanType,
    ByteType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
)

_EVOLUTION = "spark.databricks.delta.schema.autoMerge.enabled=true, or MERGE WITH SCHEMA EVOLUTION"
_WIDENED = {
    *(("byte", wide) for wide in ("short", "integer", "long", "double")),
    *(("short", wide) for wide in ("integer", "long", "double")),
    *(("integer", wide) for wide in ("long", "double")),
    ("float", "double"),
}
"""What Delta's type widening can do (delta-io/delta, ``TypeWidening.isTypeChangeSupported``)."""

_EXACT = {(wide, small) for wide in ("double",) for small in ("byte", "short", "integer")}
_EXACT |= {("float", "byte"), ("float", "short")}
_AS_TEXT = (BooleanType, ByteType, ShortType, IntegerType, LongType, DateType, StringType)
_RULES = ("__CHAR_VARCHAR_TYPE_STRING", "delta.generationExpression", "delta.invariants", "delta.identity.start")
_NUMBERS = {"byte": 1, "short": 2, "integer": 3, "long": 4, "float": 5, "double": 6}


@dataclass
class TableComparison:
    """Two contracts of tables, and what was found; as ``Comparison`` is of queries."""

    old: TableContract
    new: TableContract
    renamed: Mapping[str, str]
    findings: list[Finding] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def add(
        self, code: str, verdict: Verdict, at: str, old: object, new: object, message: str, delta: str, fix: str = ""
    ) -> None:
        self.findings.append(finding(code, verdict, Place(field=at), old, new, message, delta, fix))


def compare_tables(old: TableContract, new: TableContract, renamed: Mapping[str, str]) -> TableComparison:
    """Whether a stream that would make the table ``new`` goes on with the table ``old``."""
    both = TableComparison(old, new, renamed)
    _key(both)
    _columns(both)
    _layout(both)
    _protocol(both)
    return both


def _key(both: TableComparison) -> None:
    old, new = ([_folded(name) for name in contract.key] for contract in (both.old, both.new))
    if not old or not new:
        names = " and the ".join(name for name, key in (("old", old), ("new", new)) if not key)
        both.unseen.append(
            f"which columns the rows go by: the {names} contract names no key; make it with --key, or set the table "
            "property ttlsnap.key"
        )
        return
    if {_folded(both.renamed.get(name, name)) for name in both.old.key} == set(new):
        return
    both.add(
        "table-key",
        Verdict.INCOMPATIBLE,
        "key",
        ", ".join(both.old.key),
        ", ".join(both.new.key),
        "rows are merged by other columns: old rows were merged by the old ones, so that several of them may match one "
        "new row, or what was kept apart is gone",
        f"{SILENT}: wrong results, or DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE in a batch",
        "keep the key, or fill a new table from the source",
    )


def _columns(both: TableComparison) -> None:
    before = {_folded(both.renamed.get(column.name, column.name)): column for column in both.old.columns}
    if len(before) != len(both.old.columns):
        raise UsageError("--renamed gives a column of the table the name of another one that it has, too")
    after = {_folded(column.name): column for column in both.new.columns}
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    for was in list(gone):
        twins = [now for now in come if after[now].type == before[was].type]
        if twins:  # of several the one whose turn it is; whichever it was, evolution would lose the old values
            _renamed(both, before[was].name, after[twins[0]].name, "is it the same column?")
            gone.remove(was)
            come.remove(twins[0])
    for name in gone:
        column = before[name]
        both.add(
            "table-column-removed",
            Verdict.RECONFIGURATION if column.nullable else Verdict.AFTER_MIGRATION,
            column.name,
            _shown(column),
            None,
            f"{column.name} is not among the new stream's columns, and UPDATE SET * asks for each of the table's",
            "refuses the first batch: DELTA_MERGE_UNRESOLVED_EXPRESSION",
            f"set {_EVOLUTION}, by which it keeps its old values"
            + ("" if column.nullable else f", and first ALTER TABLE ... ALTER COLUMN {column.name} DROP NOT NULL"),
        )
    for name in come:
        column = after[name]
        both.add(
            "table-column-added",
            Verdict.RECONFIGURATION,
            column.name,
            None,
            _shown(column),
            f"the table has no {column.name}, and what the new stream gives for it is dropped",
            f"{SILENT}: the column is not stored",
            f"ALTER TABLE ... ADD COLUMNS ({column.name} {column.type.simple_string}), or set {_EVOLUTION}",
        )
    for name in before.keys() & after.keys():
        _column(both, before[name], after[name])


def _column(both: TableComparison, was: StructField, now: StructField) -> None:
    """A column of one name in both."""
    if was.name != now.name and was.name in both.renamed:
        _renamed(both, was.name, now.name, "it is the same, as you say")
    if was.type != now.type:
        _retyped(both, was, now)
    for rule in _RULES:
        if rule in was.metadata and was.metadata.get(rule) != now.metadata.get(rule):
            both.add(
                "table-constraint",
                Verdict.UNKNOWN,
                now.name,
                was.metadata[rule],
                now.metadata.get(rule),
                f"the table has a rule for {now.name} ({was.metadata[rule]}): do the new rows keep to it?",
                "fails in a batch with a row that does not",
                "if they do, ignore this finding; else change the table's column first",
            )
    if now.nullable and not was.nullable:
        both.add(
            "table-nullability",
            Verdict.UNKNOWN,
            now.name,
            "NOT NULL",
            "nullable",
            f"{now.name} is NOT NULL in the table, and the new stream may give null",
            "fails in a batch with a null: DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
            f"if no null comes, ignore this finding; else ALTER TABLE ... ALTER COLUMN {was.name} DROP NOT NULL",
        )
    elif was.nullable and not now.nullable:
        both.add(
            "table-nullability",
            Verdict.AS_IS,
            now.name,
            "nullable",
            "NOT NULL",
            f"{now.name} stays nullable in the table, and old rows may have null there",
            SILENT,
        )


def _renamed(both: TableComparison, was: str, now: str, asked: str) -> None:
    both.add(
        "table-column-renamed",
        Verdict.AFTER_MIGRATION,
        now,
        was,
        now,
        f"the table has {was}, and the new stream gives {now}: {asked}",
        "refuses the first batch: DELTA_MERGE_UNRESOLVED_EXPRESSION; with schema evolution silent, and old values are "
        "not taken over",
        f"if it is the same: ALTER TABLE ... RENAME COLUMN {was} TO {now} (with delta.columnMapping.mode=name); if it "
        "is another: ADD COLUMNS, and DROP COLUMN",
    )


def _retyped(both: TableComparison, was: StructField, now: StructField) -> None:
    before, after = (_NUMBERS.get(column.type.name, 0) for column in (was, now))
    pair = (was.type.name, now.type.name)
    kept, given = was.type.simple_string, now.type.simple_string
    message = f"the table keeps {now.name} as {kept}, and what the new stream gives is cast to it"
    if 0 < before < after:
        both.add(
            "table-column-widened",
            Verdict.AFTER_MIGRATION,
            now.name,
            kept,
            given,
            message,
            "fails in a batch with a value that does not fit: CAST_OVERFLOW_IN_TABLE_INSERT; a fraction is cut off "
            "silently",
            f"ALTER TABLE ... ALTER COLUMN {was.name} TYPE {given} (with delta.enableTypeWidening=true)"
            if pair in _WIDENED
            else f"Delta does not widen {kept} to {given}: keep it {kept}, or give the new one another name",
        )
        return
    whole = after <= _NUMBERS["long"] and (before <= _NUMBERS["long"] or pair in _EXACT)
    as_text = isinstance(was.type, StringType) and isinstance(now.type, _AS_TEXT)
    if isinstance(was.type, StringType) and isinstance(now.type, StringType):
        as_text = was.type.collation == now.type.collation
    # Of a key the other side of the MERGE's condition is cast: '01' is 1 then.
    is_key = _folded(now.name) in map(_folded, both.new.key)
    fits = (0 < after < before and whole) or (as_text and not is_key)
    both.add(
        "table-column-retyped",
        Verdict.AS_IS if fits else Verdict.UNKNOWN,
        now.name,
        kept,
        given,
        message,
        SILENT if fits else "fails in a batch with a value that is none of the type, or at the first",
        "" if fits else f"keep {now.name} {kept}, or give the new one another name",
    )


def _layout(both: TableComparison) -> None:
    if both.old.partition_columns != both.new.partition_columns:
        both.add(
            "table-partitioning",
            Verdict.AS_IS,
            "partitioning",
            ", ".join(both.old.partition_columns) or "none",
            ", ".join(both.new.partition_columns) or "none",
            "the table stays partitioned as it is",
            SILENT,
        )
    old, new = both.old.properties, both.new.properties
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            _property(both, name, old.get(name), new.get(name))


def _property(both: TableComparison, name: str, was: str | None, now: str | None) -> None:
    if name == "delta.appendOnly" and (was or "").lower() == "true":
        both.add(
            "table-append-only",
            Verdict.RECONFIGURATION,
            name,
            was,
            now,
            "the table takes no updates",
            "refuses the first batch that updates: DELTA_CANNOT_MODIFY_APPEND_ONLY",
            "ALTER TABLE ... SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
        )
        return
    if name.startswith("delta.constraints.") and was is not None:
        both.add(
            "table-constraint",
            Verdict.UNKNOWN,
            name,
            was,
            now,
            f"the table has the constraint {was}: do the new stream's rows keep to it?",
            "fails in a batch with a row that does not: DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
            f"if they do, ignore this finding; else ALTER TABLE ... DROP CONSTRAINT {name.rpartition('.')[2]}",
        )
        return
    both.add(
        "table-property",
        Verdict.AS_IS,
        name,
        was,
        now,
        f"the table keeps its {name}: CREATE TABLE IF NOT EXISTS changes nothing of a table that is there",
        SILENT,
        "" if now is None else f"if it is wanted: ALTER TABLE ... SET TBLPROPERTIES ('{name}' = '{now}')",
    )


def _protocol(both: TableComparison) -> None:
    """What the new stream's Delta has to know of the old table, and might not."""
    old, new = both.old.protocol, both.new.protocol
    needed = sorted({*old.reader_features, *old.writer_features} - {*new.reader_features, *new.writer_features})
    if old.reader <= new.reader and old.writer <= new.writer and not needed:
        return
    what = f"reader {old.reader}, writer {old.writer}" + (f", {', '.join(needed)}" if needed else "")
    both.add(
        "table-protocol",
        Verdict.AS_IS,
        "protocol",
        what,
        f"reader {new.reader}, writer {new.writer}",
        f"the table asks for {what}, which the new one does not",
        "a Delta that does not know it refuses the table: DELTA_UNSUPPORTED_FEATURES_FOR_READ or ..._FOR_WRITE",
    )
    both.unseen.append("whether the new stream's Delta knows what the table's protocol asks for: no contract says")


def _shown(column: StructField) -> str:
    return f"{column.name} {column.type.simple_string}"


def _folded(name: str) -> str:
    """Delta tells no two columns apart by upper and lower case."""
    return name.lower()
