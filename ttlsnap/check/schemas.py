"""The fields of a key or a value, old against new, compared as Spark compares them: by position and type.

Spark compares types and nullability at every depth, and not names. With Avro it matches the values of
transformWithState by name instead, and a schema may evolve.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

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


def compare_fields(both: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    """Report every difference between two schemas."""
    path = place.field or how.side
    before, after = [both.in_new_names(field.name) for field in old.fields], list(new.names)
    if how.by_name:
        _compare_by_name(both, place, how, old, new)
        return
    if len(before) != len(after):
        _add_other_length(both, place, how, old, new)
        return
    if before != after and Counter(before) == Counter(after) and how.names_count:
        _add_other_order(both, place, how, old, new)
        return
    moved = [name for number, name in enumerate(before) if name != after[number] and name in after]
    if how.by_code and moved:
        names = (", ".join(kind.names) for kind in (old, new))
        both.add(FIELDS_SWAPPED_IN_CODE, place.at(field=path), *names)
    for number, (was, now) in enumerate(zip(old.fields, new.fields, strict=True)):
        at = place.at(field=f"{path}.{now.name}")
        if before[number] != now.name and how.names_count and _are_same(was.type, now.type):
            both.add(COLUMN_RENAMED, at, was.name, now.name, side=how.side)
        _compare_columns(both, at, how, was, now)
        if was.nullable != now.nullable:
            _compare_nullability(both, at, how, was, now)


def _compare_columns(both: Comparison, at: Place, how: How, was: StructField, now: StructField) -> None:
    """Compare two columns of one name or position: their fields, their elements, or their types."""
    match was.type, now.type:
        case StructType(), StructType():
            compare_fields(both, at, how.within, was.type, now.type)
        case ArrayType(), ArrayType():
            pair = [StructField("element", kind.element, kind.contains_null) for kind in (was.type, now.type)]
            _compare_elements(both, at, how.within, *pair)
        case MapType(), MapType():
            keys, values = zip(
                *(
                    (StructField("key", kind.key, False), StructField("value", kind.value, kind.value_contains_null))
                    for kind in (was.type, now.type)
                ),
                strict=True,
            )
            _compare_elements(both, at, how.within, *keys)
            _compare_elements(both, at, how.within, *values)
        case _:
            if how.by_name and _is_promoted(was.type, now.type):
                _add_promotion(both, at, was, now)
            elif not _are_same(was.type, now.type):
                _add_retyped(both, at, how, was, now)


def _compare_elements(both: Comparison, place: Place, how: How, was: StructField, now: StructField) -> None:
    """Compare the elements of two arrays, or the keys or values of two maps."""
    at = place.at(field=f"{place.field}.{now.name}")
    if how.by_name and isinstance(was.type, StructType) and isinstance(now.type, StructType):
        _compare_by_name(both, at, how, was.type, now.type)
        return
    _compare_columns(both, at, how, was, now)
    if was.nullable != now.nullable:
        _compare_nullability(both, at, how, was, now)


def _are_same(old: DataType, new: DataType) -> bool:
    """Return whether Spark considers two types the same: it ignores names and metadata."""
    match old, new:
        case StructType(), StructType():
            pairs = zip(old.fields, new.fields, strict=False)
            return len(old.fields) == len(new.fields) and all(_are_same(a.type, b.type) for a, b in pairs)
        case ArrayType(), ArrayType():
            return _are_same(old.element, new.element)
        case MapType(), MapType():
            return _are_same(old.key, new.key) and _are_same(old.value, new.value)
    return old == new


def _add_other_length(both: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    before, after = Counter(map(both.in_new_names, old.names)), Counter(new.names)
    path = place.field or how.side
    types = {field.name: field.type.simple_string for field in (*new.fields, *old.fields)}
    words: dict[str, object] = {"side": how.side, "before": len(old.fields), "after": len(new.fields)}
    is_value = how.side == "value"
    for name in before - after:
        shown, instead = f"{name} {types.get(name, '')}".strip(), INSTEAD_OF_REMOVING if is_value else ""
        both.add(COLUMN_REMOVED, place.at(field=f"{path}.{name}"), shown, None, name=name, instead=instead, **words)
    for name in after - before:
        shown, instead = f"{name} {types.get(name, '')}".strip(), INSTEAD_OF_ADDING if is_value else ""
        both.add(COLUMN_ADDED, place.at(field=f"{path}.{name}"), None, shown, name=name, instead=instead, **words)


def _add_other_order(both: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    silent = all(_are_same(a.type, b.type) for a, b in zip(old.fields, new.fields, strict=True))
    names = (", ".join(kind.names) for kind in (old, new))
    at = place.at(field=place.field or how.side)
    if place.operator_name in deduplication.NAMES and len(old) > ORDERED and place.field is None:
        both.add(DEDUPLICATION_SWAPPED if silent else DEDUPLICATION_REORDERED, at, *names, side=how.side)
        return
    both.add(COLUMNS_SWAPPED if silent else COLUMNS_REORDERED, at, *names, side=how.side)


def _add_retyped(both: Comparison, place: Place, how: How, was: StructField, now: StructField) -> None:
    wider = type(was.type) in _WIDER and _rank(now.type) > _rank(was.type)
    floats = isinstance(was.type, FloatType) and now.type.name == "double"
    # A wider key has another hash, and another partition.
    if both.unchecked and wider and how.side == "value":
        outcome = COLUMN_WIDENED_UNCHECKED
    else:
        outcome = COLUMN_WIDENED if wider or floats else COLUMN_RETYPED
    both.add(outcome, place, was.type.simple_string, now.type.simple_string, name=now.name, side=how.side)


def _rank(kind: DataType) -> int:
    return _WIDER.get(type(kind), 4 if kind.name == "long" else 0)


def _compare_nullability(both: Comparison, place: Place, how: How, was: StructField, now: StructField) -> None:
    if not both.knows_nullability:
        both.cannot_compare(
            "which columns may be null: from 4.3 on, Spark records all columns in a checkpoint as nullable"
        )
        return
    if now.nullable and both.widens:
        return
    if now.nullable:
        outcome = NOW_NULLABLE_UNCHECKED if both.unchecked else NOW_NULLABLE
    else:
        outcome = NOW_REQUIRED if how.names_count else NOW_REQUIRED_SAME_COLUMN
    words = ("nullable" if field.nullable else "required" for field in (was, now))
    both.add(outcome, place, *words, name=now.name, side=how.side)


def _compare_by_name(both: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    """Compare fields as Avro does: it drops an old one, reads null or the default for a new one, and widens types."""
    path = place.field or how.side
    before = {field.name: field for field in old.fields}
    common = [[name for name in names if name in before and name in new.names] for names in (before, new.names)]
    if not how.names_count and common[0] != common[1]:
        names = (", ".join(kind.names) for kind in (old, new))
        both.add(FIELDS_SWAPPED_IN_AVRO, place.at(field=path), *names)
        return
    for name in [name for name in new.names if name not in before]:
        now = next(field for field in new.fields if field.name == name)
        gone = [n for n, f in before.items() if n not in new.names and _are_same(f.type, now.type)]
        if gone:
            certain = len(gone) == 1 or both.in_new_names(gone[0]) == name
            outcome = FIELD_RENAMED_IN_AVRO if certain else FIELD_MAYBE_RENAMED_IN_AVRO
            both.add(outcome, place.at(field=f"{path}.{name}"), gone[0], name)
    for field in new.fields:
        was = before.get(field.name)
        if was is None:
            continue
        at = place.at(field=f"{path}.{field.name}")
        if isinstance(was.type, StructType) and isinstance(field.type, StructType):
            _compare_by_name(both, at, how.within, was.type, field.type)
        else:
            _compare_columns(both, at, how, was, field)


_AVRO = ("integer", "long", "float", "double")  # Avro reads each as the types after it
_DIGITS = {"integer": 32, "long": 64, "float": 24, "double": 53}  # bits of exact integers


def _is_promoted(old: DataType, new: DataType) -> bool:
    """Return whether Avro reads ``old`` as ``new``."""
    return old.name in _AVRO and new.name in _AVRO and _AVRO.index(old.name) < _AVRO.index(new.name)


def _add_promotion(both: Comparison, at: Place, was: StructField, now: StructField) -> None:
    """Report a number that Avro reads as a wider type, which may have fewer digits."""
    digits = _DIGITS[now.type.name]
    outcome = COLUMN_PROMOTED if _DIGITS[was.type.name] <= digits else COLUMN_PROMOTED_INEXACTLY
    both.add(outcome, at, was.type.simple_string, now.type.simple_string, name=now.name, digits=digits)
