"""Delta state tables, old against new: can the new stream go on merging into the old table?

Delta resolves columns by name and casts merged values to the table's types. The table keeps its own schema unless
schema evolution is on. ``tests/check/tables.py`` observes each case on Delta 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ttlsnap.check.comparison import Report
from ttlsnap.check.outcomes import (
    TABLE_APPEND_ONLY,
    TABLE_COLUMN_ADDED,
    TABLE_COLUMN_FITS,
    TABLE_COLUMN_MAYBE_RENAMED,
    TABLE_COLUMN_NOT_WIDENED,
    TABLE_COLUMN_REMOVED,
    TABLE_COLUMN_RENAMED,
    TABLE_COLUMN_RETYPED,
    TABLE_COLUMN_RULE,
    TABLE_COLUMN_WIDENED,
    TABLE_CONSTRAINT,
    TABLE_KEY,
    TABLE_NOT_NULL,
    TABLE_NULLABLE,
    TABLE_PARTITIONING,
    TABLE_PROPERTY,
    TABLE_PROPERTY_REMOVED,
    TABLE_PROTOCOL,
    TABLE_REQUIRED_COLUMN_REMOVED,
)
from ttlsnap.contract.table import TableContract
from ttlsnap.entries.place import Place
from ttlsnap.errors import UsageError
from ttlsnap.schema.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
)

_WIDENED = {
    *(("byte", wide) for wide in ("short", "integer", "long", "double")),
    *(("short", wide) for wide in ("integer", "long", "double")),
    *(("integer", wide) for wide in ("long", "double")),
    ("float", "double"),
}
"""The changes of type that Delta's type widening supports (delta-io/delta, ``TypeWidening.isTypeChangeSupported``)."""

_EXACT = {(wide, small) for wide in ("double",) for small in ("byte", "short", "integer")}
_EXACT |= {("float", "byte"), ("float", "short")}
_AS_TEXT = (BooleanType, ByteType, ShortType, IntegerType, LongType, DateType, StringType)
_RULES = ("__CHAR_VARCHAR_TYPE_STRING", "delta.generationExpression", "delta.invariants", "delta.identity.start")
_NUMBERS = {"byte": 1, "short": 2, "integer": 3, "long": 4, "float": 5, "double": 6}


@dataclass
class TableComparison(Report):
    """Two contracts of tables, as ``Comparison`` has two of queries."""

    old: TableContract = field(kw_only=True)
    new: TableContract = field(kw_only=True)
    renamed: Mapping[str, str] = field(kw_only=True)


def compare_tables(old: TableContract, new: TableContract, renamed: Mapping[str, str]) -> TableComparison:
    """Compare the table ``old`` with the table that a new stream would make."""
    both = TableComparison(old=old, new=new, renamed=renamed)
    _compare_keys(both)
    _compare_columns(both)
    _compare_layout(both)
    _compare_protocols(both)
    return both


def _compare_keys(both: TableComparison) -> None:
    old, new = ([_fold_case(name) for name in contract.key] for contract in (both.old, both.new))
    if not old or not new:
        names = " and the ".join(name for name, key in (("old", old), ("new", new)) if not key)
        both.cannot_compare(
            f"the keys of the rows: the {names} contract names no key; create it with --key, or set the table property "
            "ttlsnap.key"
        )
        return
    if {_fold_case(both.renamed.get(name, name)) for name in both.old.key} == set(new):
        return
    both.add(TABLE_KEY, Place(field="key"), ", ".join(both.old.key), ", ".join(both.new.key))


def _compare_columns(both: TableComparison) -> None:
    before = {_fold_case(both.renamed.get(column.name, column.name)): column for column in both.old.columns}
    if len(before) != len(both.old.columns):
        raise UsageError("--renamed gives a column the name of another column of the table")
    after = {_fold_case(column.name): column for column in both.new.columns}
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    for was in list(gone):
        twins = [now for now in come if after[now].type == before[was].type]
        if twins:  # the first of several; for each of them, schema evolution would lose the old values
            names = before[was].name, after[twins[0]].name
            both.add(TABLE_COLUMN_MAYBE_RENAMED, Place(field=names[1]), *names)
            gone.remove(was)
            come.remove(twins[0])
    for name in gone:
        column = before[name]
        outcome = TABLE_COLUMN_REMOVED if column.nullable else TABLE_REQUIRED_COLUMN_REMOVED
        both.add(outcome, Place(field=column.name), _show(column), None, name=column.name)
    for name in come:
        column = after[name]
        both.add(TABLE_COLUMN_ADDED, Place(field=column.name), None, _show(column), name=column.name)
    for name in before.keys() & after.keys():
        _compare_column(both, before[name], after[name])


def _compare_column(both: TableComparison, was: StructField, now: StructField) -> None:
    """Compare two columns of one name."""
    at = Place(field=now.name)
    if was.name != now.name and was.name in both.renamed:
        both.add(TABLE_COLUMN_RENAMED, at, was.name, now.name)
    if was.type != now.type:
        _add_retyped(both, was, now)
    for rule in _RULES:
        if rule in was.metadata and was.metadata.get(rule) != now.metadata.get(rule):
            both.add(TABLE_COLUMN_RULE, at, was.metadata[rule], now.metadata.get(rule), name=now.name)
    if was.nullable != now.nullable:
        outcome = TABLE_NOT_NULL if now.nullable else TABLE_NULLABLE
        texts = ("nullable" if column.nullable else "NOT NULL" for column in (was, now))
        both.add(outcome, at, *texts, name=now.name, old_name=was.name)


def _add_retyped(both: TableComparison, was: StructField, now: StructField) -> None:
    before, after = (_NUMBERS.get(column.type.name, 0) for column in (was, now))
    pair = (was.type.name, now.type.name)
    whole = after <= _NUMBERS["long"] and (before <= _NUMBERS["long"] or pair in _EXACT)
    as_text = isinstance(was.type, StringType) and isinstance(now.type, _AS_TEXT)
    if isinstance(was.type, StringType) and isinstance(now.type, StringType):
        as_text = was.type.collation == now.type.collation
    # For a column of the key, MERGE casts the table's side of its condition: then '01' equals 1.
    is_key = _fold_case(now.name) in map(_fold_case, both.new.key)
    fits = (0 < after < before and whole) or (as_text and not is_key)
    if 0 < before < after:
        outcome = TABLE_COLUMN_WIDENED if can_widen(was.type, now.type) else TABLE_COLUMN_NOT_WIDENED
    else:
        outcome = TABLE_COLUMN_FITS if fits else TABLE_COLUMN_RETYPED
    texts = was.type.simple_string, now.type.simple_string
    both.add(outcome, Place(field=now.name), *texts, name=now.name, old_name=was.name)


def can_widen(old: DataType, new: DataType) -> bool:
    """Return whether Delta's type widening supports the change."""
    return (old.name, new.name) in _WIDENED


def _compare_layout(both: TableComparison) -> None:
    if both.old.partition_columns != both.new.partition_columns:
        texts = (", ".join(contract.partition_columns) or "none" for contract in (both.old, both.new))
        both.add(TABLE_PARTITIONING, Place(field="partitioning"), *texts)
    old, new = both.old.properties, both.new.properties
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            _add_property(both, name, old.get(name), new.get(name))


def _add_property(both: TableComparison, name: str, was: str | None, now: str | None) -> None:
    at = Place(field=name)
    if name == "delta.appendOnly" and (was or "").lower() == "true":
        both.add(TABLE_APPEND_ONLY, at, was, now)
    elif name.startswith("delta.constraints.") and was is not None:
        both.add(TABLE_CONSTRAINT, at, was, now, name=name.rpartition(".")[2])
    else:
        both.add(TABLE_PROPERTY_REMOVED if now is None else TABLE_PROPERTY, at, was, now, name=name)


def _compare_protocols(both: TableComparison) -> None:
    """Report what the new stream's Delta must support, and may not."""
    old, new = both.old.protocol, both.new.protocol
    needed = sorted({*old.reader_features, *old.writer_features} - {*new.reader_features, *new.writer_features})
    if old.reader <= new.reader and old.writer <= new.writer and not needed:
        return
    what = f"reader {old.reader}, writer {old.writer}" + (f", {', '.join(needed)}" if needed else "")
    both.add(TABLE_PROTOCOL, Place(field="protocol"), what, f"reader {new.reader}, writer {new.writer}")
    both.cannot_compare("whether the new stream's Delta supports the table's protocol: contracts do not record it")


def _show(column: StructField) -> str:
    return f"{column.name} {column.type.simple_string}"


def _fold_case(name: str) -> str:
    """Return the name as Delta compares it: without regard to case."""
    return name.lower()
