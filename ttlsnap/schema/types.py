"""Spark SQL types that can occur in a state schema, as frozen dataclasses.

Each type has one class, with the name that Spark gives it. Two types are equal if they mean the same. ``simple_string``
prints a type as Spark's ``simpleString`` does (``struct<a:int,b:array<string>>``), but never shortens a long struct.

Inline types: UnsafeRow gives every field one 8-byte word. ``is_fixed_width`` is true if that word *is* the value, and
can therefore be overwritten in place. Otherwise the word has ``offset << 32 | size`` of bytes later in the row.

Dangers
    * ``CharType`` and ``VarcharType`` are rare in state: Spark turns them into ``StringType`` and keeps
      the original spelling in the field's metadata (``CHAR_VARCHAR_KEY``).
    * Field names may repeat (two ``sum`` buffers); ordinals are the only safe address.
    * ``StructField.metadata`` counts in equality, as in Spark, but not in the hash.

Source: apache/spark ``sql/api/src/main/scala/org/apache/spark/sql/types``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

CHAR_VARCHAR_KEY = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata key under which Spark keeps the declared ``char(n)``/``varchar(n)`` of a string field."""

MAX_DECIMAL_PRECISION = 38
MAX_LONG_DIGITS = 18
"""Decimals up to this precision are stored as a long in the word, wider ones in the variable part."""

UTF8_BINARY = "UTF8_BINARY"
"""The default collation: strings compare as bytes."""


@dataclass(frozen=True)
class DataType:
    """Base class of all types. ``name`` is the JSON spelling, ``sql_name`` the DDL spelling."""

    name: ClassVar[str] = ""
    sql_name: ClassVar[str] = ""

    @property
    def simple_string(self) -> str:
        """The type as Spark prints it."""
        return self.sql_name or self.name


class NullType(DataType):
    """The type of a bare NULL; every value is null."""

    name = "void"


class BooleanType(DataType):
    name = "boolean"


class ByteType(DataType):
    name, sql_name = "byte", "tinyint"


class ShortType(DataType):
    name, sql_name = "short", "smallint"


class IntegerType(DataType):
    name, sql_name = "integer", "int"


class LongType(DataType):
    name, sql_name = "long", "bigint"


class FloatType(DataType):
    name = "float"


class DoubleType(DataType):
    name = "double"


class BinaryType(DataType):
    name = "binary"


class DateType(DataType):
    """Days since 1970-01-01, proleptic Gregorian, in an int."""

    name = "date"


class TimestampType(DataType):
    """Microseconds since 1970-01-01T00:00:00Z, in a long."""

    name = "timestamp"


class TimestampNTZType(DataType):
    """Microseconds since 1970-01-01T00:00:00 of an unnamed zone, in a long."""

    name = "timestamp_ntz"


class VariantType(DataType):
    name = "variant"


class CalendarIntervalType(DataType):
    """Months, days and microseconds: 16 bytes in the variable part, reserved even for null."""

    name = "interval"


@dataclass(frozen=True)
class TimeType(DataType):
    """Time of day (Spark 4.1+): nanoseconds since midnight in a long, shown with ``precision`` digits."""

    precision: int = 6

    @property
    def simple_string(self) -> str:
        return f"time({self.precision})"


@dataclass(frozen=True)
class StringType(DataType):
    """UTF-8 text; ``collation`` changes how it compares, never how it is stored."""

    collation: str = UTF8_BINARY

    @property
    def simple_string(self) -> str:
        return "string" if self.collation == UTF8_BINARY else f"string collate {self.collation}"


@dataclass(frozen=True)
class CharType(DataType):
    length: int

    @property
    def simple_string(self) -> str:
        return f"char({self.length})"


@dataclass(frozen=True)
class VarcharType(DataType):
    length: int

    @property
    def simple_string(self) -> str:
        return f"varchar({self.length})"


@dataclass(frozen=True)
class DecimalType(DataType):
    precision: int = 10
    scale: int = 0

    @property
    def simple_string(self) -> str:
        return f"decimal({self.precision},{self.scale})"


DAY_TIME_UNITS = ("day", "hour", "minute", "second")
YEAR_MONTH_UNITS = ("year", "month")


def _interval(start: str, end: str) -> str:
    return f"interval {start}" if start == end else f"interval {start} to {end}"


@dataclass(frozen=True)
class DayTimeIntervalType(DataType):
    """Microseconds in a long, for any units that the type shows."""

    start: str = "day"
    end: str = "second"

    @property
    def simple_string(self) -> str:
        return _interval(self.start, self.end)


@dataclass(frozen=True)
class YearMonthIntervalType(DataType):
    """Months in an int, also for ``interval year``."""

    start: str = "year"
    end: str = "month"

    @property
    def simple_string(self) -> str:
        return _interval(self.start, self.end)


@dataclass(frozen=True)
class ArrayType(DataType):
    element: DataType
    contains_null: bool = True

    @property
    def simple_string(self) -> str:
        return f"array<{self.element.simple_string}>"


@dataclass(frozen=True)
class MapType(DataType):
    key: DataType
    value: DataType
    value_contains_null: bool = True

    @property
    def simple_string(self) -> str:
        return f"map<{self.key.simple_string},{self.value.simple_string}>"


@dataclass(frozen=True)
class StructField:
    name: str
    type: DataType
    nullable: bool = True
    # A mapping has no hash.
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class StructType(DataType):
    fields: tuple[StructField, ...] = ()

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """Field names by ordinal; a name may occur twice."""
        return tuple(f.name for f in self.fields)

    @property
    def simple_string(self) -> str:
        return f"struct<{','.join(f'{f.name}:{f.type.simple_string}' for f in self.fields)}>"


@dataclass(frozen=True)
class UserDefinedType(DataType):
    """A user's class over ``sql_type``; state holds the bytes of ``sql_type`` and nothing else.

    The three class names are kept as found, so that the JSON can be written again.
    """

    sql_type: DataType
    jvm_class: str | None = None
    py_class: str | None = None
    serialized_class: str | None = None

    @property
    def simple_string(self) -> str:
        return self.sql_type.simple_string


def physical(data_type: DataType) -> DataType:
    """Return the type that determines the bytes: the ``sql_type`` of a user-defined type, or the type itself."""
    while isinstance(data_type, UserDefinedType):
        data_type = data_type.sql_type
    return data_type


_INLINE = (
    NullType, BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DateType,
    TimestampType, TimestampNTZType, TimeType, DayTimeIntervalType, YearMonthIntervalType,
)  # fmt: skip


def all_physical(data_type: DataType) -> DataType:
    """Return the type with the physical type in place of each user-defined type, at every depth."""
    match physical(data_type):
        case StructType(fields):
            return StructType(tuple(replace(field, type=all_physical(field.type)) for field in fields))
        case ArrayType() as array:
            return replace(array, element=all_physical(array.element))
        case MapType() as entries:
            return replace(entries, key=all_physical(entries.key), value=all_physical(entries.value))
        case found:
            return found


def is_fixed_width(data_type: DataType) -> bool:
    """Return whether an UnsafeRow holds this type's value in the field's own 8-byte word."""
    data_type = physical(data_type)
    if isinstance(data_type, DecimalType):
        return data_type.precision <= MAX_LONG_DIGITS
    return isinstance(data_type, _INLINE)


def contains(kind: DataType, *classes: type[DataType]) -> bool:
    """Return whether a type is, or has at any depth, one of these."""
    match physical(kind):
        case StructType() as struct:
            return any(contains(field.type, *classes) for field in struct.fields)
        case ArrayType() as array:
            return contains(array.element, *classes)
        case MapType() as found:
            return contains(found.key, *classes) or contains(found.value, *classes)
        case other:
            return isinstance(other, classes)
