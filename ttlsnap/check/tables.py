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
    comparison = TableComparison(old=old, new=new, renamed=renamed)
    _compare_keys(comparison)
    _compare_columns(comparison)
    _compare_layout(comparison)
    _compare_protocols(comparison)
    return comparison


def _compare_keys(comparison: TableComparison) -> None:
    old, new = ([_fold_case(name) for name in contract.key] for contract in (comparison.old, comparison.new))
    if not old or not new:
        names = " and the ".join(name for name, key in (("old", old), ("new", new)) if not key)
        comparison.cannot_compare(
            f"the keys of the rows: the {names} contract names no key; create it with --key, or set the table property "
            "ttlsnap.key"
        )
        return
    if {_fold_case(comparison.renamed.get(name, name)) for name in comparison.old.key} == set(new):
        return
    comparison.add(TABLE_KEY, Place(field="key"), ", ".join(comparison.old.key), ", ".join(comparison.new.key))


def _compare_columns(comparison: TableComparison) -> None:
    before = {_fold_case(comparison.renamed.get(column.name, column.name)): column for column in comparison.old.columns}
    if len(before) != len(comparison.old.columns):
        raise UsageError("--renamed gives a column the name of another column of the table")
    after = {_fold_case(column.name): column for column in comparison.new.columns}
    removed = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    for old_name in list(removed):
        candidates = [new_name for new_name in added if after[new_name].type == before[old_name].type]
        if candidates:  # the first of several; for each of them, schema evolution would lose the old values
            names = before[old_name].name, after[candidates[0]].name
            comparison.add(TABLE_COLUMN_MAYBE_RENAMED, Place(field=names[1]), *names)
            removed.remove(old_name)
            added.remove(candidates[0])
    for name in removed:
        column = before[name]
        outcome = TABLE_COLUMN_REMOVED if column.nullable else TABLE_REQUIRED_COLUMN_REMOVED
        comparison.add(outcome, Place(field=column.name), _show(column), None, name=column.name)
    for name in added:
        column = after[name]
        comparison.add(TABLE_COLUMN_ADDED, Place(field=column.name), None, _show(column), name=column.name)
    for name in before.keys() & after.keys():
        _compare_column(comparison, before[name], after[name])


def _compare_column(comparison: TableComparison, old_column: StructField, new_column: StructField) -> None:
    """Compare two columns of one name."""
    place = Place(field=new_column.name)
    if old_column.name != new_column.name and old_column.name in comparison.renamed:
        comparison.add(TABLE_COLUMN_RENAMED, place, old_column.name, new_column.name)
    if old_column.type != new_column.type:
        _add_retyped(comparison, old_column, new_column)
    for rule in _RULES:
        if rule in old_column.metadata and old_column.metadata.get(rule) != new_column.metadata.get(rule):
            comparison.add(
                TABLE_COLUMN_RULE, place, old_column.metadata[rule], new_column.metadata.get(rule), name=new_column.name
            )
    if old_column.nullable != new_column.nullable:
        outcome = TABLE_NOT_NULL if new_column.nullable else TABLE_NULLABLE
        texts = ("nullable" if column.nullable else "NOT NULL" for column in (old_column, new_column))
        comparison.add(outcome, place, *texts, name=new_column.name, old_name=old_column.name)


def _add_retyped(comparison: TableComparison, old_column: StructField, new_column: StructField) -> None:
    before, after = (_NUMBERS.get(column.type.name, 0) for column in (old_column, new_column))
    pair = (old_column.type.name, new_column.type.name)
    are_whole_numbers = after <= _NUMBERS["long"] and (before <= _NUMBERS["long"] or pair in _EXACT)
    as_text = isinstance(old_column.type, StringType) and isinstance(new_column.type, _AS_TEXT)
    if isinstance(old_column.type, StringType) and isinstance(new_column.type, StringType):
        as_text = old_column.type.collation == new_column.type.collation
    # For a column of the key, MERGE casts the table's side of its condition: then '01' equals 1.
    is_key = _fold_case(new_column.name) in map(_fold_case, comparison.new.key)
    value_fits = (0 < after < before and are_whole_numbers) or (as_text and not is_key)
    if 0 < before < after:
        outcome = TABLE_COLUMN_WIDENED if can_widen(old_column.type, new_column.type) else TABLE_COLUMN_NOT_WIDENED
    else:
        outcome = TABLE_COLUMN_FITS if value_fits else TABLE_COLUMN_RETYPED
    texts = old_column.type.simple_string, new_column.type.simple_string
    comparison.add(outcome, Place(field=new_column.name), *texts, name=new_column.name, old_name=old_column.name)


def can_widen(old: DataType, new: DataType) -> bool:
    """Return whether Delta's type widening supports the change."""
    return (old.name, new.name) in _WIDENED


def _compare_layout(comparison: TableComparison) -> None:
    if comparison.old.partition_columns != comparison.new.partition_columns:
        texts = (", ".join(contract.partition_columns) or "none" for contract in (comparison.old, comparison.new))
        comparison.add(TABLE_PARTITIONING, Place(field="partitioning"), *texts)
    old, new = comparison.old.properties, comparison.new.properties
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            _add_property(comparison, name, old.get(name), new.get(name))


def _add_property(comparison: TableComparison, name: str, old_value: str | None, new_value: str | None) -> None:
    place = Place(field=name)
    if name == "delta.appendOnly" and (old_value or "").lower() == "true":
        comparison.add(TABLE_APPEND_ONLY, place, old_value, new_value)
    elif name.startswith("delta.constraints.") and old_value is not None:
        comparison.add(TABLE_CONSTRAINT, place, old_value, new_value, name=name.rpartition(".")[2])
    else:
        comparison.add(
            TABLE_PROPERTY_REMOVED if new_value is None else TABLE_PROPERTY, place, old_value, new_value, name=name
        )


def _compare_protocols(comparison: TableComparison) -> None:
    """Report what the new stream's Delta must support, and may not."""
    old, new = comparison.old.protocol, comparison.new.protocol
    missing_features = sorted(
        {*old.reader_features, *old.writer_features} - {*new.reader_features, *new.writer_features}
    )
    if old.reader <= new.reader and old.writer <= new.writer and not missing_features:
        return
    old_text = f"reader {old.reader}, writer {old.writer}" + (
        f", {', '.join(missing_features)}" if missing_features else ""
    )
    comparison.add(TABLE_PROTOCOL, Place(field="protocol"), old_text, f"reader {new.reader}, writer {new.writer}")
    comparison.cannot_compare(
        "whether the new stream's Delta supports the table's protocol: contracts do not record it"
    )


def _show(column: StructField) -> str:
    return f"{column.name} {column.type.simple_string}"


def _fold_case(name: str) -> str:
    """Return the name as Delta compares it: without regard to case."""
    return name.lower()
