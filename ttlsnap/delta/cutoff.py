"""The rows of a table that are older than a given time: as SQL, and decided by a file's statistics or by its column.

For the first columns of a table, the log has the minimum and maximum of each file, and the number of nulls. They show
that a file is dropped completely, kept completely, or must be read. They are bounds even if rows are marked as deleted.

Dangers: a partition's timestamp can be in an unknown time zone. A timestamp's bounds are truncated to milliseconds, so
the greatest value can be up to one millisecond above its bound. With column mapping, a column has another, physical
name. A partition column has only one value in a file.

Source: delta-io/delta, PROTOCOL.md (Per-file Statistics, Partition Value Serialization, Column Mapping).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.clock import EPOCH, MAX_INT64, MIN_INT64, to_micros
from ttlsnap.delta.log import DataFile
from ttlsnap.errors import UnsupportedError
from ttlsnap.quoting import quote
from ttlsnap.schema import types as T
from ttlsnap.schema.types import StructField, StructType
from ttlsnap.transform.protocols import Cutoff

Mask = npt.NDArray[np.bool_]

_DAY_US = 86_400_000_000
_STATISTICS_US = 1_000  # what a timestamp's bound may be short of
_LEAST, _MOST = (to_micros(moment.replace(tzinfo=UTC)) for moment in (datetime.min, datetime.max))
_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_SUFFIXES = {8: "Y", 16: "S", 32: "", 64: "L"}
_IN_UTC = "spark.databricks.delta.write.utcTimestampPartitionValues"
PHYSICAL = "delta.columnMapping.physicalName"


@dataclass(frozen=True)
class ColumnPath:
    """A column, or a field within one: its names from the top, in the table and in the files."""

    names: tuple[str, ...]
    physical: tuple[str, ...]
    type: T.DataType

    @property
    def sql(self) -> str:
        """The column's name in SQL."""
        return ".".join(quote_identifier(name) for name in self.names)


def column_at(schema: StructType, names: Sequence[str]) -> ColumnPath:
    """Return the column with these names, which must exist."""
    physical: list[str] = []
    data_type: T.DataType = schema
    for name in names:
        assert isinstance(data_type, StructType)
        next_field: StructField = next(field for field in data_type if field.name == name)
        physical.append(str(next_field.metadata.get(PHYSICAL, name)))
        data_type = next_field.type
    return ColumnPath(tuple(names), tuple(physical), data_type)


def quote_identifier(name: str) -> str:
    """Return a name quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class TableCutoff:
    """The rule that drops rows whose ``column`` is at most ``most`` and not null.

    ``most`` is in the column's unit: microseconds for a timestamp, days for a date.
    """

    column: ColumnPath
    most: int

    @classmethod
    def of(cls, cutoff: Cutoff, column: ColumnPath) -> TableCutoff:
        """Return the rule in the column's unit, for exactly the values that are read as at most ``cutoff.at_us``."""
        scale = cutoff.timestamp.scale
        return cls(column, cutoff.at_us // scale if scale > 0 else cutoff.at_us * -scale)

    @property
    def sql(self) -> str:
        """The condition, with a literal of the column's own type, which Delta needs to skip files."""
        kind, name = self.column.type, self.column.sql
        if _is_time(kind):
            micros = self.most * _DAY_US if isinstance(kind, T.DateType) else self.most
            # Python's datetime ends with the years 1 and 9999.
            if micros < _LEAST:
                return "false"
            if micros > _MOST:
                return f"{name} IS NOT NULL"
            moment = EPOCH + timedelta(microseconds=micros)
            if isinstance(kind, T.DateType):
                return f"{name} <= DATE '{moment.date().isoformat()}'"
            timestamp_text = f"{moment.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}"
            return (
                f"{name} <= TIMESTAMP_NTZ '{timestamp_text}'"
                if isinstance(kind, T.TimestampNTZType)
                else f"{name} <= TIMESTAMP '{timestamp_text}Z'"
            )
        bits = _BITS[type(kind)]
        least_number, largest_number = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        if self.most < least_number:
            return "false"
        return f"{name} IS NOT NULL" if self.most >= largest_number else f"{name} <= {self.most}{_SUFFIXES[bits]}"

    def decide(self, file: DataFile) -> bool | None:
        """Return whether all rows of a file are dropped (True), or none (False); None if the file must be read."""
        if self.column.physical[0] in file.partition:
            value = self._parse(file.partition[self.column.physical[0]], exact=True)
            return None if value is None else value.known and value.most <= self.most
        count = file.stats.get("numRecords")
        least_bound, largest_bound, nulls = (
            self._bound(file.stats.get(name)) for name in ("minValues", "maxValues", "nullCount")
        )
        # All values are null, and a null is kept. Such a column has no bounds.
        if isinstance(nulls, int) and isinstance(count, int) and nulls >= count:
            return False
        least_range, largest_range = self._parse(least_bound, exact=False), self._parse(largest_bound, exact=False)
        if least_range is not None and least_range.least > self.most:
            return False
        # The bounds say nothing about nulls, which are kept.
        if largest_range is not None and largest_range.most <= self.most and nulls == 0:
            return True
        return None

    def bounds(self, file: DataFile) -> tuple[int, int]:
        """Return the minimum and maximum that a file can have, in the column's unit; the limits of int64 if unknown."""
        if self.column.physical[0] in file.partition:
            value = self._parse(file.partition[self.column.physical[0]], exact=True)
            return (MIN_INT64, MAX_INT64) if value is None else (value.least, value.most)
        least_range, largest_range = (
            self._parse(self._bound(file.stats.get(name)), exact=False) for name in ("minValues", "maxValues")
        )
        return (
            MIN_INT64 if least_range is None else least_range.least,
            MAX_INT64 if largest_range is None else largest_range.most,
        )

    def range_us(self, files: Sequence[DataFile], scale: int) -> tuple[int | None, int | None]:
        """Return the oldest and newest time that the files can have, in microseconds; None if unknown.

        ``scale`` is the factor from the column's unit to microseconds; a negative one divides.
        """
        bounds = [self.bounds(file) for file in files if file.rows]
        smallest, largest = (
            min((low for low, _ in bounds), default=MIN_INT64),
            max((high for _, high in bounds), default=MAX_INT64),
        )

        def micros(number: int) -> int:
            return number * scale if scale > 0 else number // -scale

        return None if smallest == MIN_INT64 else micros(smallest), None if largest == MAX_INT64 else micros(largest)

    def mask(self, rows: pa.RecordBatch) -> Mask:
        """Return which rows are dropped."""
        kind = self.column.type
        column = rows.column(self.column.names[0])
        for name in self.column.names[1:]:
            column = pc.struct_field(column, name)
        # As ``ttlsnap.schema.arrow`` has them: days, or microseconds.
        numbers = column.view(pa.int32() if isinstance(kind, T.DateType) else pa.int64()) if _is_time(kind) else column
        bound = max(min(self.most, (1 << 63) - 1), -(1 << 63))
        at_most = pc.less_equal(pc.cast(numbers, pa.int64()), pa.scalar(bound, pa.int64()))
        is_expired: Mask = np.asarray(pc.fill_null(at_most, False))
        return is_expired if self.most >= -(1 << 63) else np.zeros(len(is_expired), np.bool_)

    def _bound(self, values: Any) -> Any:
        """Return a bound or the number of nulls of the column, from those of all columns."""
        for name in self.column.physical:
            if not isinstance(values, Mapping):
                return None
            values = values.get(name)
        return values

    def _parse(self, value: Any, exact: bool) -> _Range | None:
        """Return a value of the log in the column's unit; None if it says nothing about the file."""
        kind = self.column.type
        if exact and value is None:
            return _Range(0, 0, known=False)
        if exact and isinstance(kind, T.TimestampType):
            require_zone(str(value), self.column.names[0])
        try:
            if isinstance(kind, T.DateType):
                days = (date.fromisoformat(str(value)) - EPOCH.date()).days
                return _Range(days, days)
            if isinstance(kind, T.TimestampType | T.TimestampNTZType):
                moment = datetime.fromisoformat(str(value))
                if moment.tzinfo is None and isinstance(kind, T.TimestampType):
                    return None  # in the time zone of whoever wrote it
                micros = to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
                return _Range(micros, micros if exact else micros + _STATISTICS_US)
            number = int(value)
            return _Range(number, number)
        except (ValueError, TypeError):
            return None


def require_zone(text: str, column: str) -> None:
    """Raise UnsupportedError for a value of a partition by a timestamp that does not say in which time zone it is."""
    try:
        has_zone = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return
    if not has_zone:
        raise UnsupportedError(
            f"the table is partitioned by the timestamp {column}, and its value "
            + quote(repr(text))
            + " has no time zone: it is in the zone of the session that wrote it, which the table does not record. "
            "Name another column with --timestamp, or write the values again with their zone. In a Spark session whose "
            "spark.sql.session.timeZone is that zone: SET spark.sql.sources.partitionOverwriteMode = static; SET "
            f"{_IN_UTC} = true; INSERT OVERWRITE delta.`TABLE` SELECT * FROM delta.`TABLE`. Until a stream writes "
            "to the table again, also name the time with --now: the INSERT counts as the last write"
        )


def _is_time(kind: T.DataType) -> bool:
    return isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType)


@dataclass(frozen=True)
class _Range:
    least: int
    most: int
    known: bool = True
