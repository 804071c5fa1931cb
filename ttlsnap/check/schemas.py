"""The fields of a key or of a value, old against new, by the way in which Spark compares them: by position and type.

Spark looks at types and at what may be null, at every depth, and not at names. Under Avro the values of
transformWithState are matched by name instead, and a schema may evolve.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from ttlsnap.check.collecting import Comparison
from ttlsnap.check.findings import Place, Verdict
from ttlsnap.check.rules import REFUSED_KEY, REFUSED_VALUE, SILENT
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
    """How fields are looked at.

    ``names_count`` is whether a name tells which column is meant; where the plan tells what each is, it does not.
    ``nested_count`` is the same of fields within a column, of which no plan tells. ``by_name`` is whether Spark itself
    goes by names (Avro). ``by_code`` is whether it is unchanged code of the user's that knows what a field is.
    """

    side: Side
    names_count: bool
    nested_count: bool = True
    by_name: bool = False
    by_code: bool = False

    @property
    def within(self) -> How:
        """How the fields within a column are looked at."""
        return replace(self, names_count=self.nested_count, by_code=self.by_code and not self.nested_count)

    @property
    def refused(self) -> str:
        return REFUSED_KEY if self.side == "key" else REFUSED_VALUE


def compare_fields(both: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    """Report every difference between two schemas."""
    path = place.field or how.side
    before, after = [both.in_new_names(field.name) for field in old.fields], list(new.names)
    if how.by_name:
        _by_name(both, place, how, old, new)
        return
    if len(before) != len(after):
        _other_length(both, place, how, old, new)
        return
    if before != after and Counter(before) == Counter(after) and how.names_count:
        _other_order(both, place, how, old, new)
        return
    moved = [name for number, name in enumerate(before) if name != after[number] and name in after]
    if how.by_code and moved:
        both.add(
            f"{how.side}s-swapped",
            Verdict.UNKNOWN,
            place.at(field=path),
            ", ".join(old.names),
            ", ".join(new.names),
            "the fields have changed names, and the code is the same: Spark goes by their places; does the code, too?",
            f"{SILENT}: wrong results, if the code goes by names",
            "if it goes by places, ignore this finding; if by names, put the fields into their old order",
        )
    for number, (was, now) in enumerate(zip(old.fields, new.fields, strict=True)):
        at = place.at(field=f"{path}.{now.name}")
        if before[number] != now.name and how.names_count and _same(was.type, now.type):
            _renamed(both, at, how, was, now)
        _within(both, at, how, was, now)
        if was.nullable != now.nullable:
            _nullability(both, at, how, was, now)


def _within(both: Comparison, at: Place, how: How, was: StructField, now: StructField) -> None:
    """What a column consists of."""
    match was.type, now.type:
        case StructType(), StructType():
            compare_fields(both, at, how.within, was.type, now.type)
        case ArrayType(), ArrayType():
            pair = [StructField("element", kind.element, kind.contains_null) for kind in (was.type, now.type)]
            _part(both, at, how.within, *pair)
        case MapType(), MapType():
            keys, values = zip(
                *(
                    (StructField("key", kind.key, False), StructField("value", kind.value, kind.value_contains_null))
                    for kind in (was.type, now.type)
                ),
                strict=True,
            )
            _part(both, at, how.within, *keys)
            _part(both, at, how.within, *values)
        case _:
            if how.by_name and _promoted(was.type, now.type):
                _promotion(both, at, how, was, now)
            elif not _same(was.type, now.type):
                _retyped(both, at, how, was, now)


def _part(both: Comparison, place: Place, how: How, was: StructField, now: StructField) -> None:
    """An array's elements, or a map's keys or values."""
    at = place.at(field=f"{place.field}.{now.name}")
    if how.by_name and isinstance(was.type, StructType) and isinstance(now.type, StructType):
        _by_name(both, at, how, was.type, now.type)
        return
    _within(both, at, how, was, now)
    if was.nullable != now.nullable:
        _nullability(both, at, how, was, now)


def _same(old: DataType, new: DataType) -> bool:
    """Whether Spark takes two types for the same: it compares all but names and metadata."""
    match old, new:
        case StructType(), StructType():
            pairs = zip(old.fields, new.fields, strict=False)
            return len(old.fields) == len(new.fields) and all(_same(a.type, b.type) for a, b in pairs)
        case ArrayType(), ArrayType():
            return _same(old.element, new.element)
        case MapType(), MapType():
            return _same(old.key, new.key) and _same(old.value, new.value)
    return old == new


def _other_length(both: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    before, after = Counter(map(both.in_new_names, old.names)), Counter(new.names)
    path = place.field or how.side
    types = {field.name: field.type.simple_string for field in (*new.fields, *old.fields)}
    words = {
        "added": "Put the new column into a state of its own",
        "removed": "Go on keeping the old column (Spark leaves out an aggregate that nothing behind it uses)",
    }
    if how.side == "key":
        words = {"added": "Begin a new checkpoint", "removed": "Begin a new checkpoint"}
    for what, names in (("removed", before - after), ("added", after - before)):
        for name in names:
            shown = f"{name} {types.get(name, '')}".strip()
            both.add(
                f"{how.side}-{what}",
                Verdict.INCOMPATIBLE,
                place.at(field=f"{path}.{name}"),
                shown if what == "removed" else None,
                shown if what == "added" else None,
                f"{name} was {what}: the {how.side} had {len(old.fields)} columns, and has {len(new.fields)}",
                how.refused,
                f"{words[what]}, or begin a new checkpoint" if how.side == "value" else words[what],
            )


def _other_order(both: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    silent = all(_same(a.type, b.type) for a, b in zip(old.fields, new.fields, strict=True))
    both.add(
        f"{how.side}s-swapped" if silent else f"{how.side}-reordered",
        Verdict.INCOMPATIBLE,
        place.at(field=place.field or how.side),
        ", ".join(old.names),
        ", ".join(new.names),
        "the columns are in another order, by which Spark goes"
        + (": it takes the one for the other, as their types are the same" if silent else ""),
        f"{SILENT}: wrong results" if silent else how.refused,
        "put the columns into their old order",
    )


def _retyped(both: Comparison, place: Place, how: How, was: StructField, now: StructField) -> None:
    wider = type(was.type) in _WIDER and _rank(now.type) > _rank(was.type)
    floats = isinstance(was.type, FloatType) and now.type.name == "double"
    code = f"{how.side}-widened" if wider or floats else f"{how.side}-retyped"
    unchecked = both.unchecked and wider and how.side == "value"  # a wider key has another hash, and another partition
    both.add(
        code,
        Verdict.UNKNOWN if unchecked else Verdict.INCOMPATIBLE,
        place,
        was.type.simple_string,
        now.type.simple_string,
        f"{now.name} was {was.type.simple_string}, and is {now.type.simple_string}"
        + (": a negative number in the state would be read as a large one" if unchecked else ""),
        f"{SILENT}: wrong results for negative numbers" if unchecked else how.refused,
        "if there is no negative number, ignore this finding"
        if unchecked
        else f"cast it back to {was.type.simple_string}, or begin a new checkpoint",
    )


def _rank(kind: DataType) -> int:
    return _WIDER.get(type(kind), 4 if kind.name == "long" else 0)


def _renamed(both: Comparison, place: Place, how: How, was: StructField, now: StructField) -> None:
    both.add(
        f"{how.side}-renamed",
        Verdict.UNKNOWN,
        place,
        was.name,
        now.name,
        f"{now.name} stands where {was.name} stood, with the same type: is it the same column, or another one?",
        f"{SILENT}: takes the one for the other",
        f"if it is the same, say --renamed {was.name}={now.name}; if it is another, begin a new checkpoint",
    )


def _nullability(both: Comparison, place: Place, how: How, was: StructField, now: StructField) -> None:
    old, new = ("nullable" if field.nullable else "required" for field in (was, now))
    if now.nullable:
        verdict = Verdict.AS_IS if both.unchecked else Verdict.RECONFIGURATION
        both.add(
            f"{how.side}-nullability",
            verdict,
            place,
            old,
            new,
            f"{now.name} was required, and may be null now; the bytes are the same, but Spark compares it",
            SILENT if both.unchecked else how.refused,
            ""
            if both.unchecked
            else "set spark.sql.streaming.stateStore.stateSchemaCheck=false for the start, or keep it required: "
            "coalesce(column, a value), or assert_true(column is not null)",
        )
        return
    known = not how.names_count
    both.add(
        f"{how.side}-nullability",
        Verdict.AS_IS if known else Verdict.UNKNOWN,
        place,
        old,
        new,
        f"{now.name} might be null, and is required now: what was kept for null is not met again",
        SILENT,
        "" if known else "if the state has no null there, ignore this finding",
    )


def _by_name(both: Comparison, place: Place, how: How, old: StructType, new: StructType) -> None:
    """Under Avro: a field that is gone is dropped, a new one is null or its default, and types may widen."""
    path = place.field or how.side
    before = {field.name: field for field in old.fields}
    common = [[name for name in names if name in before and name in new.names] for names in (before, new.names)]
    if not how.names_count and common[0] != common[1]:
        both.add(
            f"{how.side}s-swapped",
            Verdict.INCOMPATIBLE,
            place.at(field=path),
            ", ".join(old.names),
            ", ".join(new.names),
            "the code is the same, and takes fields by position; Avro goes by their names, which are in another order",
            f"{SILENT}: wrong results",
            "put the fields into their old order",
        )
        return
    for name in [name for name in new.names if name not in before]:
        now = next(field for field in new.fields if field.name == name)
        gone = [n for n, f in before.items() if n not in new.names and _same(f.type, now.type)]
        if gone:
            both.add(
                f"{how.side}-renamed",
                Verdict.INCOMPATIBLE if len(gone) == 1 or both.in_new_names(gone[0]) == name else Verdict.UNKNOWN,
                place.at(field=f"{path}.{name}"),
                gone[0],
                name,
                f"{gone[0]} is gone and {name} is new: Avro goes by names, and reads null for {name}",
                f"{SILENT}: null for every old entry",
                f"keep the name {gone[0]}",
            )
    for field in new.fields:
        was = before.get(field.name)
        if was is None:
            continue
        at = place.at(field=f"{path}.{field.name}")
        if isinstance(was.type, StructType) and isinstance(field.type, StructType):
            _by_name(both, at, how.within, was.type, field.type)
        else:
            _within(both, at, how, was, field)


_AVRO = ("integer", "long", "float", "double")  # each is read as those behind it
_DIGITS = {"integer": 32, "long": 64, "float": 24, "double": 53}  # bits of what is exact


def _promoted(old: DataType, new: DataType) -> bool:
    """Whether Avro reads the one as the other."""
    return old.name in _AVRO and new.name in _AVRO and _AVRO.index(old.name) < _AVRO.index(new.name)


def _promotion(both: Comparison, at: Place, how: How, was: StructField, now: StructField) -> None:
    """A number that Avro reads as a wider type; one of more digits than that has is not what it was."""
    digits = _DIGITS[now.type.name]
    exact = _DIGITS[was.type.name] <= digits
    both.add(
        f"{how.side}-widened",
        Verdict.AS_IS if exact else Verdict.UNKNOWN,
        at,
        was.type.simple_string,
        now.type.simple_string,
        f"{now.name} was {was.type.simple_string}, and is {now.type.simple_string}: Avro reads the one as the other"
        + ("" if exact else f", and of numbers beyond 2^{digits} only their first {digits} bits: are there such?"),
        SILENT,
        "" if exact else "if there is none, ignore this finding",
    )
