"""Spark's schema JSON: a parser into the model, and a writer.

Grammar (``DataType.json`` in Spark): a type is a string (``"long"``, ``"decimal(10,2)"``, ``"time(6)"``, ``"interval
day to second"``) or an object with a ``type`` of ``struct``, ``array``, ``map`` or ``udt``.

    {"type":"struct","fields":[{"name":..,"type":..,"nullable":..,"metadata":{..}}]}
    {"type":"array","elementType":..,"containsNull":..}
    {"type":"map","keyType":..,"valueType":..,"valueContainsNull":..}
    {"type":"udt","class":..,"pyClass":..,"sqlType":..}
    {"type":"udt","pyClass":..,"serializedClass":..,"sqlType":..}

Collations: inside a struct, the type of a collated string is plain ``"string"``. The metadata of the nearest field
names the collation: ``{"__COLLATIONS":{"m.key":"icu.en_AI"}}``. The path consists of the field's name and ``element``,
``key``, ``value``. The parser moves the collation into ``StringType.collation``, and the writer puts it back.

Dangers: the JSON comes from a checkpoint and is not trusted. Nesting beyond ``MAX_DEPTH``, text that is not JSON, and
JSON of another grammar raise a CorruptionError. An unknown type name raises an UnsupportedError with that name
(``geometry``, ``geography`` and any type that a later Spark adds).

Source: apache/spark ``sql/api/.../types/DataType.scala`` and real output of Spark 4.2.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.schema import types as T
from ttlsnap.schema.strict_json import parse_json

MAX_DEPTH = 64
COLLATIONS_KEY = "__COLLATIONS"

_PLAIN: dict[str, T.DataType] = {
    t.name: t
    for t in (
        T.NullType(), T.BooleanType(), T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(),
        T.FloatType(), T.DoubleType(), T.BinaryType(), T.DateType(), T.TimestampType(),
        T.TimestampNTZType(), T.VariantType(), T.CalendarIntervalType(),
    )
} | {
    "string": T.StringType(),
    "decimal": T.DecimalType(),
    "null": T.NullType(),  # before Spark 3.2
    "timestamp_ltz": T.TimestampType(),
}  # fmt: skip
for _units, _cls in (
    (T.DAY_TIME_UNITS, T.DayTimeIntervalType), (T.YEAR_MONTH_UNITS, T.YearMonthIntervalType)
):  # fmt: skip
    for _i, _start in enumerate(_units):
        for _end in _units[_i:]:
            _interval = _cls(_start, _end)
            _PLAIN[_interval.simple_string] = _interval

# The scale can be negative, with ``spark.sql.legacy.allowNegativeScaleOfDecimal``.
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(-?\d{1,2})\s*\)")
_SIZED: list[tuple[re.Pattern[str], Callable[[int], T.DataType]]] = [
    (re.compile(r"char\(\s*(\d{1,10})\s*\)"), T.CharType),
    (re.compile(r"varchar\(\s*(\d{1,10})\s*\)"), T.VarcharType),
    (re.compile(r"time\(\s*([0-9])\s*\)"), T.TimeType),
]
_COLLATED = re.compile(r"string\s+collate\s+`?(\w+)`?")


def parse_type(text: str) -> T.DataType:
    """Return the type that a JSON text describes.

    Raises CorruptionError for broken JSON and UnsupportedError for an unknown type.
    """
    try:
        value = parse_json(text)
    except ValueError as error:
        raise CorruptionError(f"schema is not JSON: {error}; it begins with {text[:80]!r}") from None
    return from_value(value)


def parse_struct(text: str) -> T.StructType:
    """Return the struct that a JSON text describes, such as a key or value schema.

    Raises as ``parse_type`` does, and CorruptionError if the type is not a struct.
    """
    data_type = parse_type(text)
    if not isinstance(data_type, T.StructType):
        raise CorruptionError(f"schema should be a struct but is {data_type.simple_string!r}")
    return data_type


def from_value(value: Any) -> T.DataType:
    """Return the type that a decoded JSON value describes; raises as ``parse_type`` does."""
    return _parse(value, 0, {}, "")


def to_value(data_type: T.DataType) -> Any:
    """Return the type as a JSON-ready value, as Spark would write it."""
    return _dump(data_type, None, "")


def dump_type(data_type: T.DataType) -> str:
    """Return the type as Spark's compact JSON."""
    return json.dumps(to_value(data_type), ensure_ascii=False, separators=(",", ":"))


def _parse(value: Any, depth: int, collations: Mapping[str, str], path: str) -> T.DataType:
    if depth > MAX_DEPTH:
        raise CorruptionError(f"schema JSON is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        data_type = parse_name(value)
        if path in collations and isinstance(data_type, T.StringType):
            # "icu.UNICODE_CI": the name implies the provider.
            return T.StringType(collations[path].rpartition(".")[2])
        return data_type
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "struct":
        fields = _want(value, "fields", list)
        return T.StructType(tuple(_parse_field(field, depth + 1) for field in fields))
    if kind == "array":
        element = _parse(_want(value, "elementType"), depth + 1, collations, f"{path}.element")
        return T.ArrayType(element, _want(value, "containsNull", bool))
    if kind == "map":
        key = _parse(_want(value, "keyType"), depth + 1, collations, f"{path}.key")
        value_type = _parse(_want(value, "valueType"), depth + 1, collations, f"{path}.value")
        return T.MapType(key, value_type, _want(value, "valueContainsNull", bool))
    if kind == "udt":
        names = [value.get(attribute) for attribute in ("class", "pyClass", "serializedClass")]
        if not all(name is None or isinstance(name, str) for name in names):
            raise CorruptionError(f"schema JSON: a class name of a udt is not text: {_short(value)}")
        return T.UserDefinedType(_parse(_want(value, "sqlType"), depth + 1, {}, ""), *names)
    if isinstance(kind, str):
        raise UnsupportedError(f"the schema has an unknown type: {kind!r}")
    raise CorruptionError(f"schema JSON: a type should be text or an object with a type, not {_short(value)}")


def _parse_field(value: Any, depth: int) -> T.StructField:
    if not isinstance(value, dict):
        raise CorruptionError(f"schema JSON: a field should be an object, not {_short(value)}")
    name = _want(value, "name", str)
    # JSON can have half of a surrogate pair as an escape sequence.
    if any("\ud800" <= text <= "\udfff" for text in name):
        raise CorruptionError(f"schema JSON: field name {name!r} is not Unicode text")
    metadata = dict(_want(value, "metadata", dict)) if "metadata" in value else {}
    collations = metadata.pop(COLLATIONS_KEY, {})
    if not isinstance(collations, dict) or not all(isinstance(text, str) for text in collations.values()):
        raise CorruptionError(f"schema JSON: {COLLATIONS_KEY} of field {name!r} is not a map of names")
    nullable = _want(value, "nullable", bool) if "nullable" in value else True
    return T.StructField(name, _parse(_want(value, "type"), depth, collations, name), nullable, metadata)


def parse_name(name: str) -> T.DataType:
    """Return the type that one JSON string names, such as ``decimal(10,2)``; raises UnsupportedError if unknown."""
    if name in _PLAIN:
        return _PLAIN[name]
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= T.MAX_DECIMAL_PRECISION and scale <= precision:
            return T.DecimalType(precision, scale)
        raise UnsupportedError(f"the schema has an impossible decimal: {name!r}")
    for pattern, make in _SIZED:
        if match := pattern.fullmatch(name):
            return make(int(match[1]))
    if match := _COLLATED.fullmatch(name):
        return T.StringType(match[1])
    raise UnsupportedError(f"the schema has an unknown type: {name[:80]!r}")


def _want(value: Mapping[str, Any], key: str, kind: type = object) -> Any:
    """Return ``value[key]``; raise CorruptionError if it is missing or not of that kind."""
    if key not in value:
        raise CorruptionError(f"schema JSON: {key!r} is missing in {_short(value)}")
    if not isinstance(value[key], kind):
        raise CorruptionError(f"schema JSON: {key!r} should be {kind.__name__} in {_short(value)}")
    return value[key]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _dump(data_type: T.DataType, collations: dict[str, str] | None, path: str) -> Any:
    """Return the JSON value of a type, and add its collations to ``collations``.

    The enclosing field's metadata has them. ``collations`` is None outside of any field.
    """
    match data_type:
        case T.StringType(collation) if collation != T.UTF8_BINARY and collations is not None:
            # Spark itself implements these collations. All others come from ICU.
            provider = "spark" if collation.startswith("UTF8_") else "icu"
            collations[path] = f"{provider}.{collation}"
            return "string"
        case T.StructType(fields):
            return {"type": "struct", "fields": [_dump_field(field) for field in fields]}
        case T.ArrayType(element, contains_null):
            inner_json = _dump(element, collations, f"{path}.element")
            return {"type": "array", "elementType": inner_json, "containsNull": contains_null}
        case T.MapType(key, value, value_contains_null):
            return {
                "type": "map",
                "keyType": _dump(key, collations, f"{path}.key"),
                "valueType": _dump(value, collations, f"{path}.value"),
                "valueContainsNull": value_contains_null,
            }
        case T.UserDefinedType(sql_type, jvm_class, py_class, serialized):
            names: dict[str, str | None] = {"class": jvm_class} if jvm_class is not None else {}
            # Spark writes this name even if it is null, and omits the other ones.
            names["pyClass"] = py_class
            if serialized is not None:
                names["serializedClass"] = serialized
            return {"type": "udt", **names, "sqlType": _dump(sql_type, None, "")}
    return data_type.name or data_type.simple_string


def _dump_field(field: T.StructField) -> dict[str, Any]:
    collations: dict[str, str] = {}
    type_json = _dump(field.type, collations, field.name)
    metadata = dict(field.metadata) | ({COLLATIONS_KEY: collations} if collations else {})
    return {"name": field.name, "type": type_json, "nullable": field.nullable, "metadata": metadata}
