"""The key that a user names as JSON: ``{"user": "u1"}``, some of its columns, or ``"u1"`` for the only one.

A name is that of a column by which the query groups or joins, as ``inspect`` and ``export`` print keys. A value has the
form in which they print it, too; a time may also be ISO 8601.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.entries.batch import RowEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import json_texts
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.operators.placement import find_partition, grouping_types, is_placed_by_hash
from ttlsnap.printable import shell_word
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.fields import distinct_names
from ttlsnap.schema.literals import parse_literal
from ttlsnap.schema.types import ArrayType, DataType, MapType, StructField, StructType, physical
from ttlsnap.unsaferow.decode import decode_column
from ttlsnap.unsaferow.gather import Mask

_LONGEST = 200
"""The most characters of a key in a message."""


@dataclass(frozen=True)
class Key:
    """A key, or some columns of it. ``text`` is as the user wrote it, or its beginning."""

    text: str
    value: Any

    @classmethod
    def parse(cls, text: str) -> Key:
        """Return the key in a text. Raise UsageError if it is not JSON, names a column twice, or is a list."""
        excerpt = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        try:
            value = json.loads(text, object_pairs_hook=partial(_object, excerpt))
        except (ValueError, RecursionError) as error:
            quoted_excerpt = json.dumps(excerpt, ensure_ascii=False)
            raise UsageError(
                f"--key {excerpt} is not JSON. Write an object such as '{{\"user\": \"u1\"}}', or '{quoted_excerpt}' "
                "for a key with one column"
            ) from error
        if isinstance(value, list):
            raise UsageError(f'--key {excerpt} is a list. Write an object such as \'{{"user": "u1"}}\'')
        return cls(excerpt, value)

    def of(self, state: StateDescriptor) -> StateKey:
        """Return the key as one of ``state``. Raise UsageError if its columns, or their types, are others."""
        columns, value = key_columns(state), self.value
        if not isinstance(value, Mapping):
            if len(columns) != 1:
                names = ", ".join(columns) or "no columns"
                examples = {name: _example(field.type) for name, (_, field) in columns.items()}
                example = json.dumps(examples, ensure_ascii=False)
                raise UsageError(
                    f"--key {self.text}: the key of {state} has {names}. Write an object with one or more of them: "
                    f"{shell_word(example)}"
                )
            value = {next(iter(columns)): value}
        columns = key_columns(state, whole=True)
        tests = tuple(_tests(value, columns, state.grouping, f"--key {self.text}: {state}"))
        return StateKey(state, value, tests)


@dataclass(frozen=True)
class _Test:
    """The value that a part of a key must have: a scalar, null, or the JSON text of a list or a map."""

    path: tuple[int, ...]
    value: Any
    is_text: bool = False

    def holds(self, column: pa.Array) -> pa.Array:
        if self.is_text:
            return pc.equal(json_texts(column), pa.scalar(self.value, pa.large_string()))
        if not self.value.is_valid:
            return pc.is_null(column)
        if isinstance(self.value.as_py(), float) and np.isnan(self.value.as_py()):
            return pc.fill_null(pc.is_nan(column), False)
        return pc.fill_null(pc.equal(column, self.value), False)


@dataclass(frozen=True)
class StateKey:
    """The key of some entries of a state. ``value`` maps names of columns to JSON."""

    state: StateDescriptor
    value: Mapping[str, Any]
    tests: tuple[_Test, ...]

    def matches(self, entries: RowEntries) -> Mask:
        """Return which entries have the key (bool[n])."""
        is_match: Mask = np.ones(len(entries), np.bool_)
        for test in self.tests:
            column = decode_column(entries.keys, entries.state.key_schema, test.path)
            is_match &= np.asarray(test.holds(column))
        return is_match

    def partition(self, partitions: int) -> int | None:
        """Return the only partition in which Spark looks for the key; None if that is not known."""
        if not is_placed_by_hash(self.state):
            return None
        names, types = list(key_columns(self.state)), grouping_types(self.state)
        try:
            columns = [
                pa.array([_whole(self.value[name], kind)], arrow_type(kind))
                for name, kind in zip(names, types, strict=False)
            ]
            return find_partition(self.state, columns, partitions)
        except (KeyError, UnsupportedError):
            return None  # only some columns are given, or the hash of a type is not known


def key_text(key: str | Mapping[str, Any]) -> str:
    """Return a key as JSON. Raise UsageError if it is neither JSON nor a dict whose values have a form in JSON."""
    if isinstance(key, str):
        return key
    if not isinstance(key, Mapping):
        raise UsageError(
            f"key is {type(key).__name__}. Give a dict of columns, or JSON: '\"u1\"' or '7' for one column"
        )
    try:
        return json.dumps(dict(key), ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"key cannot be written as JSON: {error}") from error


def _plain(value: Any) -> str:
    if isinstance(value, datetime.date):  # or a datetime
        return value.isoformat()
    raise TypeError(f"a value is {type(value).__name__}")


def _example(kind: DataType) -> Any:
    """Return the form of a value in JSON."""
    kind = physical(kind)
    if isinstance(kind, StructType):
        names = distinct_names(kind.names)
        return {name: _example(field.type) for name, field in zip(names, kind.fields, strict=True)}
    return [_example(kind.element)] if isinstance(kind, ArrayType) else "..."


def key_columns(state: StateDescriptor, *, whole: bool = False) -> dict[str, tuple[int, StructField]]:
    """Return the columns of a state's key by which the query groups or joins, each with its place.

    With ``whole``, also return the number or the time that tells a join's rows with one key apart.
    """
    schema: DataType = state.key_schema
    for place in state.grouping:
        assert isinstance(schema, StructType)
        schema = physical(schema.fields[place].type)
    assert isinstance(schema, StructType)
    columns = dict(zip(distinct_names(schema.names), enumerate(schema.fields), strict=True))
    if state.side is not None and state.grouping_without_last and not whole:
        columns.popitem()
    return columns


def _object(excerpt: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raise UsageError if it has a name twice."""
    columns = dict(pairs)
    if len(columns) < len(pairs):
        raise UsageError(f"--key {excerpt} names a column twice")
    return columns


def _tests(
    value: Mapping[str, Any],
    columns: Mapping[str, tuple[int, StructField]],
    path: tuple[int, ...],
    where: str,
    kind_of_name: str = "key column",
) -> Iterator[_Test]:
    for name, wanted_value in value.items():
        if name not in columns:
            raise UsageError(f"{where} has no {kind_of_name} {name}; it has {', '.join(columns) or 'none'}")
        place, field = columns[name]
        kind = physical(field.type)
        if isinstance(kind, StructType) and isinstance(wanted_value, Mapping):
            inner_columns = dict(zip(distinct_names(kind.names), enumerate(kind.fields), strict=True))
            yield from _tests(wanted_value, inner_columns, (*path, place), f"{where}, column {name}", "field")
        elif isinstance(kind, (ArrayType, MapType)):
            yield _Test((*path, place), json.dumps(wanted_value, ensure_ascii=False), is_text=True)
        elif isinstance(kind, StructType) and wanted_value is not None:
            raise UsageError(f"{where}, column {name}: this is not an object with {', '.join(kind.names)}")
        else:
            yield _Test(
                (*path, place), pa.scalar(_literal(wanted_value, kind, f"{where}, column {name}"), arrow_type(kind))
            )


def _literal(value: Any, kind: DataType, where: str) -> Any:
    if isinstance(value, (list, Mapping)):
        raise UsageError(f"{where}: this is not a {kind.simple_string}")
    return parse_literal(json.dumps(value, ensure_ascii=False), kind, where, assume_utc=True)


def _whole(value: Any, kind: DataType) -> Any:
    """Return a value for Arrow. Raise KeyError if a field is not given, or cannot be told."""
    kind = physical(kind)
    if value is None:
        return None
    if isinstance(kind, StructType):
        names = distinct_names(kind.names)
        return {name: _whole(value[name], field.type) for name, field in zip(names, kind.fields, strict=True)}
    if isinstance(kind, (ArrayType, MapType)):
        raise KeyError
    return _literal(value, kind, "--key")
