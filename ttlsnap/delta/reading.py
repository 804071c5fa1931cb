"""Rows of a table's data files, with the table's column names, without a JVM.

Files use physical names, and lack columns that were added later. Partition columns are only in the log. Rows that a
deletion vector marks do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.amounts import quantity
from ttlsnap.delta.cutoff import PHYSICAL, require_zone
from ttlsnap.delta.log import DataFile
from ttlsnap.delta.vectors import deleted_rows
from ttlsnap.errors import CorruptionError, UnsupportedError, require_damage
from ttlsnap.quoting import quote
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.types import StructField, StructType
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.parquet import ParquetRows, size_of

_VERSION = re.compile(rb"(\d+)\.(\d+)")
_NUMBER, _FILE_ID = "delta.columnMapping.id", b"PARQUET:field_id"
_AS_SPARK = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
# A char is padded when it is read; a type that was widened is another one in older files.
_SPECIAL = frozenset({"__CHAR_VARCHAR_TYPE_STRING", "delta.typeChanges"})
# Up to 1900 a time of the old calendars is another moment; the dates that are differ to 1582.
_OLD_DAYS, _OLD_MICROS = -25_567, -2_208_988_800_000_000


def place_of(file: DataFile) -> str | None:
    """Return the path of a data file from the table's folder; None if it is elsewhere."""
    path = unquote(file.path)
    return None if "://" in path or path.startswith(("/", "file:")) else path


def data_path(files: Directory, file: DataFile) -> str:
    """Return ``place_of`` a file. Raise UnsupportedError if it is not within the table's folder."""
    path = place_of(file)
    if path is None:
        raise UnsupportedError(
            f"{files.root}: the data file {unquote(file.path)} is outside the table; ttlsnap cannot read shallow clones"
        )
    return path


def reads_as_spark(schema: StructType) -> bool:
    """Return whether Spark reads rows of this schema as ``read_rows`` does, from every file."""
    return all(_reads_as_spark(field.type) and not _SPECIAL & field.metadata.keys() for field in schema)


def _reads_as_spark(kind: T.DataType) -> bool:
    match kind:
        case T.ArrayType(element):
            return _reads_as_spark(element)
        case T.MapType(key, value):
            return _reads_as_spark(key) and _reads_as_spark(value)
        case T.StructType():
            return reads_as_spark(kind)
    return isinstance(kind, _AS_SPARK)


def read_rows(
    files: Directory, file: DataFile, columns: Sequence[StructField], *, by_id: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with ``columns`` of the table's schema. ``by_id`` is as in ``TableMetadata``.

    Raise CorruptionError for a file that cannot be read, and UnsupportedError for values in an unknown form.
    """
    path = data_path(files, file)
    physical = [str(column.metadata.get(PHYSICAL, column.name)) for column in columns]
    deletions = None if file.vector is None else deleted_rows(files, file.vector)
    first_row = 0
    try:
        with files.open(path) as stream:
            parquet = ParquetRows(stream, size_of(files, path), f"{files.root}/{path}")
            if deletions is not None and deletions.last >= parquet.metadata.num_rows:
                raise CorruptionError(
                    f"{files.root}/{path} has {quantity(parquet.metadata.num_rows, 'row')}, but its deletion vector "
                    f"marks the row {deletions.last:,}"
                )
            fields = list(parquet.schema)
            place_of_column = {
                column.name: place for column in columns if (place := _place(fields, column, by_id)) is not None
            }
            names_in_file = [parquet.schema.names[place] for place in place_of_column.values()]
            old_calendars = has_old_calendars(parquet.metadata)
            constants = sum(len(file.partition.get(name) or "") for name in physical)
            for batch in parquet.batches(names_in_file, constants=constants):
                arrays = []
                for name, column in zip(physical, columns, strict=True):
                    if name in file.partition:
                        arrays.append(_constant(file.partition[name], column, batch.num_rows))
                    elif column.name in place_of_column:
                        place = batch.schema.names.index(parquet.schema.names[place_of_column[column.name]])
                        arrays.append(_logical(batch.column(place), column.type, old_calendars, by_id))
                    else:
                        # The file is older than the column.
                        arrays.append(pa.nulls(batch.num_rows, arrow_type(column.type)))
                rows = pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])
                if deletions is not None:
                    rows = rows.filter(pa.array(deletions.kept(first_row, batch.num_rows)))
                first_row += batch.num_rows
                yield rows
    except (pa.ArrowException, OSError) as error:
        require_damage(error, f"{files.root}/{path}")
        raise CorruptionError(f"{files.root}/{path} cannot be read: {str(error)[:200]}") from error


def has_old_calendars(metadata: Any) -> bool:
    """Return whether dates and times use the old calendars of before 1582, as old versions of Spark wrote them.

    Source: Spark's ``DataSourceUtils``."""
    file_metadata = metadata.metadata or {}
    version_match = _VERSION.match(file_metadata.get(b"org.apache.spark.version", b""))
    return (
        b"org.apache.spark.legacyDateTime" in file_metadata
        or b"org.apache.spark.legacyINT96" in file_metadata
        or (version_match is not None and (int(version_match[1]), int(version_match[2])) < (3, 1))
    )


def refuse_old_times(array: Any) -> None:
    """Raise UnsupportedError for a date or a time that differs in the old calendars."""
    numbers = array.cast(pa.int32() if pa.types.is_date(array.type) else pa.timestamp("us")).cast(pa.int64())
    oldest = pc.min(numbers).as_py()
    if oldest is not None and oldest < (_OLD_DAYS if pa.types.is_date(array.type) else _OLD_MICROS):
        raise UnsupportedError(
            "it has a time before 1900 in the calendar of an old Spark, which ttlsnap does not support"
        )


def refuse_old_within(array: Any) -> None:
    """Raise UnsupportedError for a date or a time that differs in the old calendars, at any depth."""
    kind = array.type
    if pa.types.is_struct(kind):
        for child in array.flatten():
            refuse_old_within(child)
    elif pa.types.is_map(kind):
        refuse_old_within(array.keys)
        refuse_old_within(array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        refuse_old_within(array.flatten())
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        refuse_old_times(array)


def _logical(array: Any, kind: T.DataType, old_calendars: bool, by_id: bool) -> Any:
    """Return the values with the table's names and types."""
    kind = T.physical(kind)
    match kind:
        case T.StructType(fields):
            columns = []
            for field in fields:
                place = _place(list(array.type), field, by_id)
                columns.append(
                    pa.nulls(len(array), arrow_type(field.type))
                    if place is None
                    else _logical(array.field(place), field.type, old_calendars, by_id)
                )
            return pa.StructArray.from_arrays(columns, fields=list(arrow_type(kind)), mask=array.is_null())
        case T.ArrayType(element):
            array = array.cast(pa.large_list(array.type.value_field))
            values = _logical(array.values, element, old_calendars, by_id)
            return pa.LargeListArray.from_arrays(array.offsets, values, type=arrow_type(kind), mask=_mask(array))
        case T.MapType(key, item):
            entries = pa.MapArray.from_arrays(
                array.offsets,
                _logical(array.keys, key, old_calendars, by_id),
                _logical(array.items, item, old_calendars, by_id),
                mask=_mask(array),
            )
            return entries.cast(arrow_type(kind))
    if isinstance(kind, T.VariantType) and array.type.get_field_index("typed_value") >= 0:
        raise UnsupportedError("it has a shredded variant, which ttlsnap does not support")
    if old_calendars and isinstance(kind, (T.DateType, T.TimestampType, T.TimestampNTZType)):
        refuse_old_times(array)
    target = arrow_type(kind)
    return array if array.type == target else array.cast(target)


def _place(file_fields: Sequence[pa.Field], field: StructField, by_id: bool) -> int | None:
    """Return the position of a column or field in a file: by its id, or by its physical name, also in another case.

    As in Spark, the ids that another program wrote into the file do not count, unless the table finds columns by them.
    """
    name = str(field.metadata.get(PHYSICAL, field.name))
    ids = [(candidate.metadata or {}).get(_FILE_ID) for candidate in file_fields]
    if by_id and any(ids):
        number = str(field.metadata.get(_NUMBER, "")).encode()
        matches_of_ways = [[candidate == number for candidate in ids]]
    else:
        matches_of_ways = [
            [candidate.name == name for candidate in file_fields],
            [candidate.name.lower() == name.lower() for candidate in file_fields],
        ]
    return next((matches.index(True) for matches in matches_of_ways if matches.count(True) == 1), None)


def _mask(array: Any) -> Any:
    return array.is_null() if array.null_count else None


def _constant(text: str | None, column: StructField, size: int) -> Any:
    """Return a partition value of the log for every row."""
    kind = arrow_type(column.type)
    # An empty text is null, too, for every type (PROTOCOL.md, Partition Value Serialization).
    if text is None or text == "":
        return pa.nulls(size, kind)
    if isinstance(column.type, T.TimestampType):
        require_zone(text, column.name)
    try:
        value = pa.array([text])
        if isinstance(column.type, T.TimestampType):
            value = value.cast(pa.timestamp("us", "UTC"))
        return value.cast(kind).take(pa.array(np.zeros(size, np.int64)))
    except pa.ArrowException as error:
        problem = "the partition value " + quote(repr(text)) + f" of {column.name} has an unknown form"
        raise UnsupportedError(problem) from error
