"""Batches of state entries, as a transformer sees them.

An entry of a state store is raw key bytes and raw value bytes plus their schema. Nothing is decoded until it is asked
for, and then one field at a time, as an Arrow array; what is kept is copied untouched. A row of a table is an entry,
too (``ttlsnap.delta.entries``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ttlsnap.errors import UsageError
from ttlsnap.fields import Field
from ttlsnap.schema.types import StructType
from ttlsnap.state import StateDescriptor
from ttlsnap.unsaferow.decode import decode, decode_column, decode_words
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_words

Mask = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StateEntries(ABC):
    """n entries of one state.

    ``index`` says which entries of the batch handed to the first transformer these are (int64[n], ascending),
    ``rewritten`` which of them have a new value (bool[n]).
    """

    state: StateDescriptor
    index: Int64
    rewritten: Mask

    @staticmethod
    def of(state: StateDescriptor, keys: Rows, values: Rows) -> RowEntries:
        """A batch as it comes from a store: raw rows."""
        return RowEntries(state, np.arange(len(keys)), np.zeros(len(keys), np.bool_), keys, values)

    def __len__(self) -> int:
        return len(self.index)

    @abstractmethod
    def column(self, name: str | Field) -> pa.Array:
        """One field of every entry, decoded: an Arrow array of n values, null where the field is.

        Raises UsageError when the state has no such field, CorruptionError for a row that is damaged.
        """

    @abstractmethod
    def words(self, name: str | Field) -> tuple[Int64, Mask]:
        """The raw 8-byte words of a field of fixed width (int64[n]), and where it is null (bool[n])."""

    @property
    @abstractmethod
    def key_structs(self) -> pa.StructArray:
        """All keys, decoded whole."""

    @property
    @abstractmethod
    def value_structs(self) -> pa.StructArray:
        """All values, decoded whole."""

    def filter(self, keep: Mask | pa.BooleanArray) -> StateEntries:
        """The entries for which ``keep`` is true; these entries themselves when that is all of them."""
        mask = np.asarray(keep)
        if mask.dtype != np.bool_ or mask.shape != (len(self),):
            raise UsageError(f"filter wants {len(self)} booleans without nulls, not {mask.dtype}{list(mask.shape)}")
        return self if mask.all() else self._taken(np.flatnonzero(mask))  # once, where each mask is searched for itself

    def replace_values(self, values: pa.StructArray, where: Mask | pa.BooleanArray | None = None) -> StateEntries:
        """The same entries with new values, encoded with the state's value schema.

        ``values`` has one struct for each entry, or with ``where`` one for each true place in it. Raises UsageError
        when the number does not fit, or a null stands where the schema has none.
        """
        mask = np.ones(len(self), np.bool_) if where is None else np.asarray(where)
        if mask.dtype != np.bool_ or mask.shape != (len(self),) or len(values) != int(mask.sum()):
            raise UsageError(f"replace_values: {len(values)} values do not fit {len(self)} entries")
        return self._replaced(values, mask) if mask.any() else self

    def to_pylist(self) -> list[dict[str, Any]]:
        """Decoded entries, ``[{"key": {...}, "value": {...}}, ...]``, for looking at a few."""
        pairs = zip(self.key_structs.to_pylist(), self.value_structs.to_pylist(), strict=True)
        return [{"key": key, "value": value} for key, value in pairs]

    @abstractmethod
    def _taken(self, kept: Int64) -> StateEntries:
        """The entries of these numbers, ascending."""

    @abstractmethod
    def _replaced(self, values: pa.StructArray, mask: Mask) -> StateEntries:
        """The same with ``values`` where ``mask`` is true."""

    def _field(self, name: str | Field) -> Field:
        field = self.state.field(name) if isinstance(name, str) else name
        if field is None:
            raise UsageError(f"{self.state} has no field {name!r}")
        return field


@dataclass(frozen=True, eq=False)
class RowEntries(StateEntries):
    """Entries of a state store: ``keys`` and ``values`` are their raw rows."""

    keys: Rows
    values: Rows

    def column(self, name: str | Field) -> pa.Array:
        field = self._field(name)
        rows, schema = self._side(field.side)
        return decode_column(rows, schema, field.path)

    def words(self, name: str | Field) -> tuple[Int64, Mask]:
        field = self._field(name)
        rows, schema = self._side(field.side)
        if len(field.path) == 1:
            return read_words(rows, len(schema.fields), field.path[0])
        return decode_words(rows, schema, field.path)

    @cached_property
    def key_structs(self) -> pa.StructArray:
        return decode(self.keys, self.state.key_schema)

    @cached_property
    def value_structs(self) -> pa.StructArray:
        return decode(self.values, self.state.value_schema)

    def _taken(self, kept: Int64) -> RowEntries:
        return RowEntries(
            self.state, self.index[kept], self.rewritten[kept], self.keys.take(kept), self.values.take(kept)
        )

    def _replaced(self, values: pa.StructArray, mask: Mask) -> RowEntries:
        new = encode(values, self.state.value_schema)
        old_size = len(self.values.data)
        start, size = self.values.start.copy(), self.values.size.copy()
        start[mask], size[mask] = new.start + old_size, new.size
        rows = Rows(np.concatenate([self.values.data, new.data]), start, size)
        return replace(self, values=rows, rewritten=self.rewritten | mask)

    def up_to_first_of_each_list(self, answer: RowEntries, lists: Int64) -> RowEntries:
        """What ``answer`` says of each list's values up to the first that it kept; those behind it as they are here.

        ``answer`` is some of these entries; ``lists`` says which list each entry of the whole batch is of, ascending.
        """
        kept = np.zeros(len(self), np.bool_)
        at = np.searchsorted(self.index, answer.index)
        kept[at] = True
        number = lists[self.index]
        place = np.arange(len(self))
        first = np.full(int(lists[-1]) + 1, len(self))
        np.minimum.at(first, number[kept], place[kept])
        behind = place > first[number]
        mine = kept & ~behind
        from_answer = np.zeros(len(self), np.int64)
        from_answer[at] = np.arange(len(answer))
        start, size, rewritten = self.values.start.copy(), self.values.size.copy(), self.rewritten.copy()
        number = from_answer[mine]
        start[mine] = answer.values.start[number] + len(self.values.data)
        size[mine], rewritten[mine] = answer.values.size[number], answer.rewritten[number]
        values = Rows(np.concatenate([self.values.data, answer.values.data]), start, size)
        return replace(self, values=values, rewritten=rewritten)._taken(np.flatnonzero(kept | behind))

    def _side(self, side: str) -> tuple[Rows, StructType]:
        if side == "key":
            return self.keys, self.state.key_schema
        return self.values, self.state.value_schema
