"""Batches of state entries, as a transformer sees them.

An entry of a state store has raw key bytes and raw value bytes. A field is decoded only if a transformer reads it, and
then as an Arrow array for the whole batch. Kept entries are copied unchanged. A row of a table is an entry, too
(``ttlsnap.delta.entries``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UsageError
from ttlsnap.quoting import quotes_nothing
from ttlsnap.schema.fields import Field
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.decode import decode, decode_column, decode_words
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_words

Mask = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]


class KnowsWrites(Protocol):
    """Something that knows when the entries of a state were last written; see ``StateEntries.written``."""

    def of_keys(self, keys: Rows) -> tuple[Int64, Mask]: ...


@dataclass(frozen=True, eq=False)
class StateEntries(ABC):
    """n entries of one state.

    ``index`` has their positions in the batch that the first transformer received (int64[n], ascending). ``rewritten``
    marks those with a new value (bool[n]).
    """

    state: StateDescriptor
    index: Int64
    rewritten: Mask

    @staticmethod
    def of(state: StateDescriptor, keys: Rows, values: Rows, times: KnowsWrites | None = None) -> RowEntries:
        """Return a batch of raw rows, as a store gives it. ``times`` knows when keys were last written."""
        return RowEntries(state, np.arange(len(keys)), np.zeros(len(keys), np.bool_), keys, values, times)

    def __len__(self) -> int:
        return len(self.index)

    @abstractmethod
    def column(self, name: str | Field) -> pa.Array:
        """Return one field of every entry, decoded: an Arrow array of n values.

        Raise UsageError if the state has no such field, and CorruptionError for a damaged row.
        """

    @abstractmethod
    def words(self, name: str | Field) -> tuple[Int64, Mask]:
        """Return the raw 8-byte words of a field of fixed width (int64[n]), and where it is null (bool[n])."""

    @property
    @abstractmethod
    def key_structs(self) -> pa.StructArray:
        """All keys, completely decoded."""

    @property
    def written(self) -> tuple[Int64, Mask]:
        """When each entry was last written, in microseconds since the epoch, and which were written before that.

        Raise UsageError if that is not known here.
        """
        raise UsageError(f"{self.state}: when entries were last written is not known here")

    @property
    @abstractmethod
    def value_structs(self) -> pa.StructArray:
        """All values, completely decoded."""

    def filter(self, keep: Mask | pa.BooleanArray) -> StateEntries:
        """Return the entries for which ``keep`` is true; this object itself if it is true for all."""
        mask = np.asarray(keep)
        if mask.dtype != np.bool_ or mask.shape != (len(self),):
            raise UsageError(f"filter needs {len(self)} booleans without nulls, not {mask.dtype}{list(mask.shape)}")
        return self if mask.all() else self._take(np.flatnonzero(mask))  # the mask is searched once, not by each array

    def replace_values(self, values: pa.StructArray, where: Mask | pa.BooleanArray | None = None) -> StateEntries:
        """Return the same entries with new values, encoded with the state's value schema.

        ``values`` has one struct for each entry, or for each entry that ``where`` marks. Raise UsageError for another
        number of structs, for another kind of mask, and for a null that the schema does not allow.
        """
        mask = np.ones(len(self), np.bool_) if where is None else np.asarray(where)
        if mask.dtype != np.bool_ or mask.shape != (len(self),):
            needed = f"replace_values needs a mask of {len(self)} booleans without nulls"
            raise UsageError(f"{needed}, not {mask.dtype}{list(mask.shape)}")
        marked = int(mask.sum())
        if len(values) != marked:
            entries = (
                f"there are {marked} entries" if where is None else f"the mask marks {marked} of {len(self)} entries"
            )
            raise UsageError(f"replace_values: {len(values)} values, but {entries}. Give one struct for each of these")
        return self._replace(values, mask) if marked else self

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return decoded entries, ``[{"key": {...}, "value": {...}}, ...]``, to look at a few."""
        keys_and_values = zip(self.key_structs.to_pylist(), self.value_structs.to_pylist(), strict=True)
        return [{"key": key, "value": value} for key, value in keys_and_values]

    @abstractmethod
    def are_of(self, received: StateEntries) -> bool:
        """Return whether these entries, whose index is a part of that of ``received``, are the same ones."""

    @abstractmethod
    def _take(self, kept_places: Int64) -> StateEntries:
        """Return the entries at these positions, ascending."""

    @abstractmethod
    def _replace(self, values: pa.StructArray, mask: Mask) -> StateEntries:
        """Return the same entries with ``values`` where ``mask`` is true."""

    def _field(self, name: str | Field) -> Field:
        field = self.state.field(name) if isinstance(name, str) else name
        if field is None:
            raise UsageError(quotes_nothing(f"{self.state} has no field {name!r}"))
        return field


@dataclass(frozen=True, eq=False)
class RowEntries(StateEntries):
    """Entries of a state store: ``keys`` and ``values`` are their raw rows."""

    keys: Rows
    values: Rows
    times: KnowsWrites | None = None

    @cached_property
    def written(self) -> tuple[Int64, Mask]:
        if self.times is None:
            return super().written
        return self.times.of_keys(self.keys)

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

    def are_of(self, received: StateEntries) -> bool:
        if not isinstance(received, RowEntries) or self.keys.data is not received.keys.data:
            return False
        # Several batches may have one buffer.
        places = np.searchsorted(received.index, self.index)
        return np.array_equal(self.keys.start, received.keys.start[places])

    def _take(self, kept_places: Int64) -> RowEntries:
        keys, values = self.keys.take(kept_places), self.values.take(kept_places)
        return RowEntries(self.state, self.index[kept_places], self.rewritten[kept_places], keys, values, self.times)

    def _replace(self, values: pa.StructArray, mask: Mask) -> RowEntries:
        rows = self.values.replace(mask, encode(values, self.state.value_schema))
        return replace(self, values=rows, rewritten=self.rewritten | mask)

    def up_to_first_of_each_list(self, answer: RowEntries, lists: Int64) -> RowEntries:
        """Return the ``answer`` for each list's values up to the first one that it kept, and later values unchanged.

        ``answer`` has some of these entries. ``lists`` has the number of the list of each entry of the whole batch,
        ascending.
        """
        is_kept = np.zeros(len(self), np.bool_)
        answered_places = np.searchsorted(self.index, answer.index)
        is_kept[answered_places] = True
        number = lists[self.index]
        place = np.arange(len(self))
        first_kept = np.full(int(lists[-1]) + 1, len(self))
        np.minimum.at(first_kept, number[is_kept], place[is_kept])
        is_later = place > first_kept[number]
        is_up_to_first = is_kept & ~is_later
        from_answer = np.zeros(len(self), np.int64)
        from_answer[answered_places] = np.arange(len(answer))
        number = from_answer[is_up_to_first]
        values, rewritten = self.values.replace(is_up_to_first, answer.values.take(number)), self.rewritten.copy()
        rewritten[is_up_to_first] = answer.rewritten[number]
        return replace(self, values=values, rewritten=rewritten)._take(np.flatnonzero(is_kept | is_later))

    def _side(self, side: str) -> tuple[Rows, StructType]:
        if side == "key":
            return self.keys, self.state.key_schema
        return self.values, self.state.value_schema
