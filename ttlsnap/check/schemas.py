"""The fields of a key or a value, old against new, compared as Spark compares them: by position and type.

Spark compares types and nullability at every depth, and not names. With Avro it matches the values of
transformWithState by name instead, and a schema may evolve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ttlsnap.amounts import quantity
from ttlsnap.check.comparison import Comparison
from ttlsnap.check.outcomes import (
    COLUMN_ADDED,
    COLUMN_PROMOTED,
    COLUMN_PROMOTED_INEXACTLY,
    COLUMN_REMOVED,
    COLUMN_RENAMED,
    COLUMN_RETYPED,
    COLUMN_WIDENED,
    COLUMN_WIDENED_UNCHECKED,
    COLUMNS_REORDERED,
    COLUMNS_SWAPPED,
    DEDUPLICATION_REORDERED,
    DEDUPLICATION_SWAPPED,
    FIELD_MAYBE_RENAMED_IN_AVRO,
    FIELD_RENAMED_IN_AVRO,
    FIELDS_SWAPPED_IN_AVRO,
    FIELDS_SWAPPED_IN_CODE,
    INSTEAD_OF_ADDING,
    INSTEAD_OF_REMOVING,
    NOW_NULLABLE,
    NOW_NULLABLE_UNCHECKED,
    NOW_REQUIRED,
    NOW_REQUIRED_SAME_COLUMN,
)
from ttlsnap.entries.place import Place
from ttlsnap.operators import deduplication
from ttlsnap.operators.scala_order import ORDERED
from ttlsnap.schema.types import (
    ArrayType,
    ByteType,
    DataType,
    FloatType,
    IntegerType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

Side = Literal["key", "value"]
_WIDER = {ByteType: 1, ShortType: 2, IntegerType: 3}


@dataclass(frozen=True)
class How:
    """How fields are compared.

    ``names_count``: a name identifies a column, because no plan says what each column is. ``nested_count``: the same
    for fields within a column, which no plan describes. ``by_name``: Spark itself matches names (Avro). ``by_code``:
    the user's code, which is unchanged, knows what each field is.
    """

    side: Side
    names_count: bool
    nested_count: bool = True
    by_name: bool = False
    by_code: bool = False

    @property
    def within(self) -> How:
        """How the fields within a column are compared."""
        return replace(self, names_count=self.nested_count, by_code=self.by_code and not self.nested_count)


def compare_fields(comparison: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    """Report every difference between two schemas."""
    path = place.field or how.side
    before, after = [comparison.new_name(field.name) for field in old.fields], list(new.names)
    if how.by_name:
        _compare_by_name(comparison, place, how, old, new)
        return
    if len(before) != len(after):
        _add_other_length(comparison, place, how, old, new)
        return
    if before != after and Counter(before) == Counter(after) and how.names_count:
        _add_other_order(comparison, place, how, old, new)
        return
    moved_names = [name for number, name in enumerate(before) if name != after[number] and name in after]
    if how.by_code and moved_names:
        names = (", ".join(kind.names) for kind in (old, new))
        comparison.add(FIELDS_SWAPPED_IN_CODE, place.at(field=path), *names)
    for number, (old_field, new_field) in enumerate(zip(old.fields, new.fields, strict=True)):
        field_place = place.at(field=f"{path}.{new_field.name}")
        if before[number] != new_field.name and how.names_count and _are_same(old_field.type, new_field.type):
            comparison.add(COLUMN_RENAMED, field_place, old_field.name, new_field.name, side=how.side)
        _compare_columns(comparison, field_place, how, old_field, new_field)
        if old_field.nullable != new_field.nullable:
            _compare_nullability(comparison, field_place, how, old_field, new_field)


def _compare_columns(
    comparison: Comparison, place: Place, how: How, old_field: StructField, new_field: StructField
) -> None:
    """Compare two columns of one name or position: their fields, their elements, or their types."""
    match old_field.type, new_field.type:
        case StructType(), StructType():
            compare_fields(comparison, place, how.within, old_field.type, new_field.type)
        case ArrayType(), ArrayType():
            pair = [
                StructField("element", kind.element, kind.contains_null) for kind in (old_field.type, new_field.type)
            ]
            _compare_elements(comparison, place, how.within, *pair)
        case MapType(), MapType():
            keys, values = zip(
                *(
                    (StructField("key", kind.key, False), StructField("value", kind.value, kind.value_contains_null))
                    for kind in (old_field.type, new_field.type)
                ),
                strict=True,
            )
            _compare_elements(comparison, place, how.within, *keys)
            _compare_elements(comparison, place, how.within, *values)
        case _:
            if how.by_name and _is_promoted(old_field.type, new_field.type):
                _add_promotion(comparison, place, old_field, new_field)
            elif not _are_same(old_field.type, new_field.type):
                _add_retyped(comparison, place, how, old_field, new_field)


def _compare_elements(
    comparison: Comparison, place: Place, how: How, old_field: StructField, new_field: StructField
) -> None:
    """Compare the elements of two arrays, or the keys or values of two maps."""
    element_place = place.at(field=f"{place.field}.{new_field.name}")
    if how.by_name and isinstance(old_field.type, StructType) and isinstance(new_field.type, StructType):
        _compare_by_name(comparison, element_place, how, old_field.type, new_field.type)
        return
    _compare_columns(comparison, element_place, how, old_field, new_field)
    if old_field.nullable != new_field.nullable:
        _compare_nullability(comparison, element_place, how, old_field, new_field)


def _are_same(old: DataType, new: DataType) -> bool:
    """Return whether Spark considers two types the same: it ignores names and metadata."""
    match old, new:
        case StructType(), StructType():
            pairs = zip(old.fields, new.fields, strict=False)
            return len(old.fields) == len(new.fields) and all(
                _are_same(old_field.type, new_field.type) for old_field, new_field in pairs
            )
        case ArrayType(), ArrayType():
            return _are_same(old.element, new.element)
        case MapType(), MapType():
            return _are_same(old.key, new.key) and _are_same(old.value, new.value)
    return old == new


def _add_other_length(comparison: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    old_columns = [(comparison.new_name(field.name), field.type.simple_string) for field in old.fields]
    new_columns = [(field.name, field.type.simple_string) for field in new.fields]
    before, after = (Counter(name for name, _ in columns) for columns in (old_columns, new_columns))
    path = place.field or how.side
    words: dict[str, object] = {
        "side": how.side,
        "before": quantity(len(old.fields), "column"),
        "after": len(new.fields),
    }
    is_value = how.side == "value"
    for name in before - after:
        column_text = _describe_extra(name, old_columns, new_columns)
        instead = INSTEAD_OF_REMOVING if is_value else ""
        comparison.add(
            COLUMN_REMOVED, place.at(field=f"{path}.{name}"), column_text, None, name=name, instead=instead, **words
        )
    for name in after - before:
        column_text = _describe_extra(name, new_columns, old_columns)
        instead = INSTEAD_OF_ADDING if is_value else ""
        comparison.add(
            COLUMN_ADDED, place.at(field=f"{path}.{name}"), None, column_text, name=name, instead=instead, **words
        )
    _compare_common(comparison, place, how, old, new)


def _describe_extra(name: str, columns: Sequence[tuple[str, str]], others: Sequence[tuple[str, str]]) -> str:
    """Return a name of columns with the type of that one which the other schema lacks. Columns are names and types."""
    types, other_types = ([kind for other, kind in group if other == name] for group in (columns, others))
    return f"{name} {next(iter(Counter(types) - Counter(other_types)))}"


def _compare_common(comparison: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    """Report the other types of columns that both schemas have, if one of these has more columns.

    The first of several columns with one name is that of the other schema, and so on, if both have as many of them.
    """
    before: dict[str, list[StructField]] = {}
    after: dict[str, list[StructField]] = {}
    for old_field in old.fields:
        before.setdefault(comparison.new_name(old_field.name), []).append(old_field)
    for new_field in new.fields:
        after.setdefault(new_field.name, []).append(new_field)
    for name in before:
        if len(before[name]) == len(after.get(name, ())):
            field_place = place.at(field=f"{place.field or how.side}.{name}")
            for old_field, new_field in zip(before[name], after[name], strict=True):
                _compare_columns(comparison, field_place, how, old_field, new_field)


def _add_other_order(comparison: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    is_silent = all(
        _are_same(old_field.type, new_field.type) for old_field, new_field in zip(old.fields, new.fields, strict=True)
    )
    names = (", ".join(kind.names) for kind in (old, new))
    struct_place = place.at(field=place.field or how.side)
    if place.operator_name in deduplication.NAMES and len(old) > ORDERED and place.field is None:
        comparison.add(
            DEDUPLICATION_SWAPPED if is_silent else DEDUPLICATION_REORDERED, struct_place, *names, side=how.side
        )
        return
    comparison.add(COLUMNS_SWAPPED if is_silent else COLUMNS_REORDERED, struct_place, *names, side=how.side)


def _add_retyped(
    comparison: Comparison, place: Place, how: How, old_field: StructField, new_field: StructField
) -> None:
    is_wider = type(old_field.type) in _WIDER and _rank(new_field.type) > _rank(old_field.type)
    floats = isinstance(old_field.type, FloatType) and new_field.type.name == "double"
    # A wider key has another hash, and another partition.
    if comparison.unchecked and is_wider and how.side == "value":
        outcome = COLUMN_WIDENED_UNCHECKED
    else:
        outcome = COLUMN_WIDENED if is_wider or floats else COLUMN_RETYPED
    is_renamed = old_field.name != new_field.name  # as the column of an aggregate that another one replaces
    name = f"{old_field.name}, now {new_field.name}," if is_renamed else new_field.name
    comparison.add(outcome, place, old_field.type.simple_string, new_field.type.simple_string, name=name, side=how.side)


def _rank(kind: DataType) -> int:
    return _WIDER.get(type(kind), 4 if kind.name == "long" else 0)


def _compare_nullability(
    comparison: Comparison, place: Place, how: How, old_field: StructField, new_field: StructField
) -> None:
    if not comparison.knows_nullability:
        comparison.cannot_compare(
            "which columns may be null: from 4.3 on, Spark records all columns in a checkpoint as nullable"
        )
        return
    if new_field.nullable and comparison.widens:
        return
    if new_field.nullable:
        outcome = NOW_NULLABLE_UNCHECKED if comparison.unchecked else NOW_NULLABLE
    else:
        outcome = NOW_REQUIRED if how.names_count else NOW_REQUIRED_SAME_COLUMN
    words = ("nullable" if field.nullable else "required" for field in (old_field, new_field))
    comparison.add(outcome, place, *words, name=new_field.name, side=how.side)


def _compare_by_name(comparison: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    """Compare fields as Avro does: it drops an old one, reads null or the default for a new one, and widens types."""
    path = place.field or how.side
    before = {field.name: field for field in old.fields}
    common_names = [[name for name in names if name in before and name in new.names] for names in (before, new.names)]
    if not how.names_count and common_names[0] != common_names[1]:
        names = (", ".join(kind.names) for kind in (old, new))
        comparison.add(FIELDS_SWAPPED_IN_AVRO, place.at(field=path), *names)
        return
    for name in [name for name in new.names if name not in before]:
        new_field = next(field for field in new.fields if field.name == name)
        removed_names = [
            candidate_name
            for candidate_name, candidate in before.items()
            if candidate_name not in new.names and _are_same(candidate.type, new_field.type)
        ]
        if removed_names:
            is_certain = len(removed_names) == 1 or comparison.new_name(removed_names[0]) == name
            outcome = FIELD_RENAMED_IN_AVRO if is_certain else FIELD_MAYBE_RENAMED_IN_AVRO
            comparison.add(outcome, place.at(field=f"{path}.{name}"), removed_names[0], name)
    for field in new.fields:
        old_field = before.get(field.name)
        if old_field is None:
            continue
        field_place = place.at(field=f"{path}.{field.name}")
        if isinstance(old_field.type, StructType) and isinstance(field.type, StructType):
            _compare_by_name(comparison, field_place, how.within, old_field.type, field.type)
        else:
            _compare_columns(comparison, field_place, how, old_field, field)


_AVRO = ("integer", "long", "float", "double")  # Avro reads each as the types after it
_DIGITS = {"integer": 32, "long": 64, "float": 24, "double": 53}  # bits of exact integers


def _is_promoted(old: DataType, new: DataType) -> bool:
    """Return whether Avro reads ``old`` as ``new``."""
    return old.name in _AVRO and new.name in _AVRO and _AVRO.index(old.name) < _AVRO.index(new.name)


def _add_promotion(comparison: Comparison, place: Place, old_field: StructField, new_field: StructField) -> None:
    """Report a number that Avro reads as a wider type, which may have fewer digits."""
    digits = _DIGITS[new_field.type.name]
    outcome = COLUMN_PROMOTED if _DIGITS[old_field.type.name] <= digits else COLUMN_PROMOTED_INEXACTLY
    comparison.add(
        outcome, place, old_field.type.simple_string, new_field.type.simple_string, name=new_field.name, digits=digits
    )
