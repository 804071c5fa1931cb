"""Conditions on entries: ``key.user = u1``, ``value.count > 5``, ``age >= 30d``."""

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
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import TimestampField, field_listing
from ttlsnap.errors import UsageError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.literals import parse_literal
from ttlsnap.schema.units import parse_duration

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
AGE = "age"

Filter = Callable[[StateEntries], Mask]


@dataclass(frozen=True)
class Condition:
    """A comparison of a field, or of the age, with a literal. ``text`` is as the user wrote it."""

    text: str
    field: str
    sign: str
    literal: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Return the condition in a text. Raise UsageError for anything else."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise UsageError(f"--where {text!r} is not a condition, such as 'key.user = u1' or 'age > 30d'")
        return cls(text, found["field"], found["sign"], found["literal"])

    def of(self, state: StateDescriptor, timestamp: TimestampField | None, now: int | None) -> Filter:
        """Return a function that gives the mask of the entries for which the condition holds; it is false for a null.

        Raise UsageError if the state has no such field or no time, or if the literal is not of its type.
        """
        compare = _SIGNS[self.sign]
        where = f"--where {self.text!r}"
        if self.field == AGE:
            if timestamp is None:
                raise UsageError(
                    f"{where}: {state} has no age: Spark stores no timestamp here. Name one with --timestamp"
                )
            if now is None:
                words = "the checkpoint does not record the clock of its times, or this batch has no watermark"
                raise UsageError(f"{where}: {state} has no age: {words}. Use --time, or give --now a time")
            limit = now - parse_duration(self.literal)

            def by_age(entries: StateEntries) -> Mask:
                moments, nulls = timestamp.read(entries)
                # Older than a limit means an earlier time.
                holds = np.asarray(compare(pa.scalar(limit, pa.int64()), pa.array(moments)))
                return holds & ~nulls

            return by_age
        field = state.field(self.field)
        if field is None:
            raise UsageError(f"{where}: {state} has no field {self.field}.\nIts fields are:\n{field_listing([state])}")
        literal = pa.scalar(parse_literal(self.literal, field.type, where), arrow_type(field.type))
        if not literal.is_valid:
            raise UsageError(f"{where}: nothing can be compared with null")

        def by_field(entries: StateEntries) -> Mask:
            return np.asarray(pc.fill_null(compare(entries.column(field), literal), False))

        return by_field
