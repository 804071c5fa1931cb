"""Checks of rows before their bytes are used.

``check_sizes``  a row has room for its null bits and one word per field
``check_rows``   also: every size is a multiple of 8, and exact if all fields are of fixed width

Offsets and sizes within a row are checked when ``decode`` follows them, so unread fields cost nothing.

``Trail`` records how nested values descend from top-level rows, so that an error can name the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ttlsnap.errors import CorruptionError
from ttlsnap.schema.types import StructType, is_fixed_width
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.layout import bitset_bytes, fixed_bytes
from ttlsnap.unsaferow.rows import Rows


@dataclass(frozen=True, eq=False)
class Trail:
    """The origin of a set of values: a field's name, and each value's index in the set above it."""

    name: str = ""
    above: Trail | None = None
    index: Int64s | None = None  # None: value i descends from value i

    def step(self, name: str, index: Int64s | None = None) -> Trail:
        """Return the trail of the values that these have in ``name``; ``index`` is the index of each one's parent."""
        return Trail(name, self, index)

    def row_of(self, number: int) -> int:
        """Return the index of the top-level row that contains value ``number``."""
        trail: Trail | None = self
        while trail is not None:
            if trail.index is not None:
                number = int(trail.index[number])
            trail = trail.above
        return number

    @property
    def path(self) -> str:
        """The dotted name of the field; empty for the row itself."""
        names = [self.name] if self.name else []
        above = self.above
        while above is not None:
            names += [above.name] if above.name else []
            above = above.above
        return ".".join(reversed(names))

    def fail(self, number: int, problem: str) -> NoReturn:
        """Raise a CorruptionError that names the row of value ``number``, the field and the ``problem``."""
        field = f", field {self.path}" if self.path else ""
        raise CorruptionError(f"row {self.row_of(number)}{field}: " + problem)


def first(mask: Mask) -> int:
    """Return the index of the first true value; there must be one."""
    return int(np.argmax(mask))


def check_rows(rows: Rows, schema: StructType) -> None:
    """Raise CorruptionError, naming the first bad row, unless all sizes are possible for rows of ``schema``."""
    check_sizes(rows, len(schema))
    # UnsafeRow.pointTo asserts this, but assertions are usually off in a JVM.
    if len(rows) and int(np.bitwise_or.reduce(rows.size)) & 7:
        place = first(rows.size & 7 != 0)
        Trail().fail(place, f"its size of {rows.size[place]} bytes is not a multiple of 8")
    exact_size = fixed_bytes(len(schema))
    if len(rows) and int(rows.size.max()) > exact_size and all(is_fixed_width(field.type) for field in schema.fields):
        place = first(rows.size > exact_size)
        Trail().fail(
            place, f"its size is {rows.size[place]} bytes, and the {len(schema)} fields of its schema take {exact_size}"
        )


def check_sizes(rows: Rows, num_fields: int, trail: Trail | None = None) -> None:
    """Raise CorruptionError unless every row has room for the words of ``num_fields`` fields."""
    least_size = fixed_bytes(num_fields)
    if len(rows) and int(rows.size.min()) < least_size:
        place = first(rows.size < least_size)
        needed_parts = f"{bitset_bytes(num_fields)} bytes of null bits and {num_fields} words"
        (trail or Trail()).fail(place, f"{rows.size[place]} bytes have no room for {needed_parts}")
