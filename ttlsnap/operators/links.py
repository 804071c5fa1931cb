"""Linked entries: what happens to some entries of a partition when others are dropped.

An operator may keep one fact in several places: a join's rows have indexes, and counts in another store. A ``Link``
describes this. First its places are scanned, and the transformers decide about the primary entries. Then the link
computes the result for every entry in its places, and only then is anything written. Every scan also checks that linked
entries match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.schema.types import StructType
from ttlsnap.stores.protocols import Renumbering
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.rows import Rows

StateId = tuple[str, str]
"""A state by the names of its store and its column family."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions on n entries of a state, in the order of the store.

    ``kept`` and ``rewritten`` are bool[n]. Rewritten entries are kept, too, and ``values`` has their new rows in order.
    ``moves`` are entries that get another place. ``sources`` are the entries from which those that are kept have their
    values, if these are not the same (int64[n]).
    """

    kept: Mask
    rewritten: Mask
    values: Rows
    moves: Renumbering | None = None
    sources: Int64s | None = None

    @classmethod
    def keep(cls, count: int) -> Decisions:
        """Return the decision to keep everything as it is."""
        return cls(np.ones(count, np.bool_), np.zeros(count, np.bool_), Rows.none())

    @classmethod
    def drop(cls, dropped: Mask) -> Decisions:
        """Return the decision to drop some entries, and to keep the others as they are."""
        return cls(~dropped, np.zeros(len(dropped), np.bool_), Rows.none())

    @property
    def changes(self) -> int:
        """The number of changed entries."""
        return int(np.count_nonzero(~self.kept)) + int(np.count_nonzero(self.rewritten))

    @classmethod
    def join(cls, parts: Sequence[Decisions]) -> Decisions:
        """Return the decisions on consecutive entries as one."""
        if not parts:
            return cls(np.zeros(0, np.bool_), np.zeros(0, np.bool_), Rows.none())
        return cls(
            np.concatenate([part.kept for part in parts]),
            np.concatenate([part.rewritten for part in parts]),
            Rows.concat([part.values for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class LinkDecisions:
    """The decisions on all entries of a link. ``unmatched`` is the number of dropped rows that had not matched yet.

    ``archived`` are the places of followers that contain a fact of their own.
    """

    decisions: Mapping[StateId, Decisions]
    unmatched: int = 0
    archived: tuple[StateId, ...] = ()


Fetch = Callable[[StateId, Mask], Rows]
"""The value rows of the entries of a place for which the mask is true, in their order."""


def encode_keys(keys: Sequence[pa.LargeBinaryArray]) -> Int64s:
    """Return a number for each key (int64[n]), the same for equal keys."""
    keys = [chunk for chunk in keys if len(chunk)]  # Arrow returns no codes at all if every chunk is empty
    if not keys:
        return np.zeros(0, np.int64)
    encoded_keys = pa.chunked_array(keys, pa.large_binary()).dictionary_encode()
    return np.concatenate([np.asarray(chunk.indices) for chunk in encoded_keys.chunks]).astype(np.int64)


class Keys:
    """The keys of the entries in several places."""

    def __init__(self, places: Iterable[StateId]) -> None:
        self._keys_of_place: dict[StateId, list[pa.LargeBinaryArray]] = {place: [] for place in places}
        self._times: dict[StateId, list[Int64s]] = {place: [] for place in places}

    def add(self, place: StateId, keys: Rows) -> None:
        """Add the next keys of a place; of keys that share their bytes, as in a list, only one is kept."""
        first_places = np.flatnonzero(np.append(True, keys.start[1:] != keys.start[:-1])[: len(keys)])
        self._times[place].append(np.diff(np.append(first_places, len(keys))))
        self._keys_of_place[place].append(
            (keys.take(first_places) if len(first_places) < len(keys) else keys).to_arrow()
        )

    def codes(self) -> tuple[dict[StateId, Int64s], int]:
        """Return a number for each key of each place, the same for equal keys, and how many numbers there are."""
        codes = encode_keys([chunk for chunks in self._keys_of_place.values() for chunk in chunks])
        sizes = [sum(map(len, chunks)) for chunks in self._keys_of_place.values()]
        codes_of_places = np.split(codes, np.cumsum(sizes)[:-1])
        times = [concat(counts) for counts in self._times.values()]
        repeated = [np.repeat(*pair) for pair in zip(codes_of_places, times, strict=True)]
        return dict(zip(self._keys_of_place, repeated, strict=True)), int(codes.max(initial=-1)) + 1

    def show(self, place: StateId, number: int, schema: StructType) -> Any:
        """Return the key at index ``number`` of a place for a message."""
        key_number = int(np.searchsorted(np.cumsum(concat(self._times[place])), number, "right"))
        return show_key(self._keys_of_place[place], key_number, schema)


def concat(parts: Sequence[Int64s]) -> Int64s:
    """Return the numbers of all parts."""
    return np.concatenate([np.zeros(0, np.int64), *parts])


def show_key(keys: Sequence[pa.LargeBinaryArray], number: int, schema: StructType) -> Any:
    """Return the key at index ``number`` for a message."""
    key = pa.chunked_array(keys, pa.large_binary()).slice(number, 1).combine_chunks()
    return to_json_values(decode(Rows.from_arrow(key), schema))[0]


class LinkWork(Protocol):
    """The work on a link in one partition, on one thread."""

    def look(self, place: StateId, keys: Rows, values: Rows) -> None:
        """Add the next entries of a place."""
        ...

    def resolve(self, decision_of_state: Mapping[StateId, Decisions], fetch: Fetch) -> LinkDecisions:
        """Return the decisions on every entry, given those on the primary ones.

        Raise CorruptionError, which names a key, if the entries do not match.
        """
        ...


class Link(Protocol):
    """The description of linked entries, as plain data that can be sent to other processes."""

    option: ClassVar[str | None]
    """The option by which entries of this link follow others; None if they always do."""

    @property
    def places(self) -> Mapping[StateId, StateDescriptor]:
        """The linked states, including the primary ones."""
        ...

    @property
    def followers(self) -> Mapping[StateId, StateDescriptor]:
        """The linked states that no transformer sees, because their entries follow those of the others."""
        ...
