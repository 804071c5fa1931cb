"""Conditions on entries: ``key.user = u1``, ``matched = false``, ``age >= 30d``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.entries.batch import StateEntries
from ttlsnap.errors import UsageError
from ttlsnap.reading.state_table import AGE_SECONDS, MissingColumnError, StateTable
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.literals import parse_literal
from ttlsnap.schema.types import StructType
from ttlsnap.schema.units import parse_age

Mask = npt.NDArray[np.bool_]
_FORM = re.compile(r"\s*(?P<field>\S.*?)\s*(?P<sign>!=|<=|>=|=|<|>)\s*(?P<literal>.*\S)\s*", re.DOTALL)
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MEANT = {"==": "=", "=<": "<=", "=>": ">=", "<>": "!="}
AGE = "age"

Filter = Callable[[StateEntries, int], Mask]
"""A function of entries and the number of their partition."""


@dataclass(frozen=True)
class Condition:
    """A comparison of a column of a table, or of the age, with a literal. ``text`` is as the user wrote it."""

    text: str
    field: str
    sign: str
    literal: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Return the condition in a text. Raise UsageError for anything else."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise UsageError(f"--where {text!r} is not a condition, such as 'key.user = u1' or 'age > 30d'")
        sign = match["sign"] + match["literal"][0]
        if sign in _MEANT:
            raise UsageError(f"--where {text!r}: use {_MEANT[sign]} instead of {sign}, or quote the value")
        return cls(text, match["field"], match["sign"], match["literal"])

    def of(self, table: StateTable) -> Filter:
        """Return a function that gives the mask of the entries for which the condition holds; it is false for a null.

        Raise MissingColumnError if the table has no such column or no time, and UsageError if the literal is not of its
        type.
        """
        compare, where = _SIGNS[self.sign], f"--where {self.text!r}"
        if self.field in (AGE, AGE_SECONDS):
            _require_age(table, where)
        if self.field == AGE:
            assert table.timestamp is not None and table.now is not None
            timestamp, limit = table.timestamp, table.now - parse_age(self.literal)

            def by_age(entries: StateEntries, _: int) -> Mask:
                moments, nulls = timestamp.read(entries)
                # Older than a limit means an earlier time.
                is_true = np.asarray(compare(pa.scalar(limit, pa.int64()), pa.array(moments)))
                return is_true & ~nulls

            return by_age
        try:
            column = table.column(self.field)
        except MissingColumnError as error:
            raise MissingColumnError(f"{where}: {error}", error.column) from error
        if isinstance(column.type, StructType):
            raise UsageError(f"{where}: {self.field} is a struct. Compare one of its fields, such as {self.field}.NAME")
        literal = pa.scalar(parse_literal(self.literal, column.type, where, assume_utc=True), arrow_type(column.type))
        if not literal.is_valid:
            raise UsageError(f"{where}: nothing can be compared with null")

        def by_column(entries: StateEntries, partition: int) -> Mask:
            return np.asarray(pc.fill_null(compare(column.build(entries, partition), literal), False))

        return by_column


def _require_age(table: StateTable, where: str) -> None:
    if table.timestamp is None:
        raise MissingColumnError(
            f"{where}: {table.state} has no age: Spark stores no timestamp here. Name one with --timestamp", AGE
        )
    if table.now is None:
        reason = "the checkpoint does not record the clock of its times, or this batch has no watermark"
        text = f"{where}: {table.state} has no age: {reason}. Use --time, or give --now a time"
        raise MissingColumnError(text, AGE)
