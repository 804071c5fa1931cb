"""Entries that hang together: what follows, in a partition, for some entries when others go.

An operator may keep one thing in several places: a join's rows are numbered, and counted in another store. A ``Link``
says how. Its places are scanned first, and the transformers decide on the primary entries; then the link works out
what becomes of every entry in its places, and only then is anything written. Every scan checks, too, that what hangs
together fits together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ttlsnap.rendering import to_json_values
from ttlsnap.schema.types import StructType
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import Moves
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.rows import Rows

Place = tuple[str, str]
"""A state by the names of its store and its column family."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """What becomes of n entries of a state, in the order they are stored in.

    ``kept`` and ``rewritten`` are bool[n]; what is rewritten is also kept, and ``values`` has its new rows, in order.
    ``moves`` are entries that are not kept where they are.
    """

    kept: Mask
    rewritten: Mask
    values: Rows
    moves: Moves | None = None

    @classmethod
    def keep(cls, count: int) -> Decisions:
        """Everything stays as it is."""
        return cls(np.ones(count, np.bool_), np.zeros(count, np.bool_), Rows.none())

    @classmethod
    def drop(cls, dropped: Mask) -> Decisions:
        """Some go, and the others stay as they are."""
        return cls(~dropped, np.zeros(len(dropped), np.bool_), Rows.none())

    @property
    def changes(self) -> int:
        """How many entries are not as they were."""
        return int(np.count_nonzero(~self.kept)) + int(np.count_nonzero(self.rewritten))

    @classmethod
    def join(cls, parts: Sequence[Decisions]) -> Decisions:
        """The decisions on consecutive entries as one."""
        if not parts:
            return cls(np.zeros(0, np.bool_), np.zeros(0, np.bool_), Rows.none())
        return cls(
            np.concatenate([part.kept for part in parts]),
            np.concatenate([part.rewritten for part in parts]),
            Rows.concat([part.values for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """What becomes of all entries of a link. ``unmatched`` counts the rows that go and had matched nothing yet.

    ``telling`` is the place of entries that follow others, and say something that no other entry says.
    """

    decisions: Mapping[Place, Decisions]
    unmatched: int = 0
    telling: Place | None = None


Fetch = Callable[[Place, Mask], Rows]
"""The value rows of the entries of a place for which the mask is true, in their order."""


def codes_of(keys: Sequence[pa.LargeBinaryArray]) -> Int64s:
    """A number for each key (int64[n]), the same for equal ones."""
    keys = [chunk for chunk in keys if len(chunk)]  # Arrow gives no codes at all where no chunk has any
    if not keys:
        return np.zeros(0, np.int64)
    encoded = pa.chunked_array(keys, pa.large_binary()).dictionary_encode()
    return np.concatenate([np.asarray(chunk.indices) for chunk in encoded.chunks]).astype(np.int64)


class Keys:
    """The keys of what was seen in several places."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._found: dict[Place, list[pa.LargeBinaryArray]] = {place: [] for place in places}
        self._times: dict[Place, list[Int64s]] = {place: [] for place in places}

    def add(self, place: Place, keys: Rows) -> None:
        """The next keys of a place; of those that lie in the same bytes, as a list's do, one is kept."""
        begins = np.flatnonzero(np.append(True, keys.start[1:] != keys.start[:-1])[: len(keys)])
        self._times[place].append(np.diff(np.append(begins, len(keys))))
        self._found[place].append((keys.take(begins) if len(begins) < len(keys) else keys).to_arrow())

    def codes(self) -> tuple[dict[Place, Int64s], int]:
        """A number for each key of each place, the same for equal ones, and how many numbers there are."""
        codes = codes_of([chunk for chunks in self._found.values() for chunk in chunks])
        sizes = [sum(map(len, chunks)) for chunks in self._found.values()]
        parts = np.split(codes, np.cumsum(sizes)[:-1])
        times = [joined(found) for found in self._times.values()]
        repeated = [np.repeat(*pair) for pair in zip(parts, times, strict=True)]
        return dict(zip(self._found, repeated, strict=True)), int(codes.max(initial=-1)) + 1

    def shown(self, place: Place, i: int, schema: StructType) -> Any:
        """Key number ``i`` of a place, for a message."""
        which = int(np.searchsorted(np.cumsum(joined(self._times[place])), i, "right"))
        return shown_key(self._found[place], which, schema)


def joined(parts: Sequence[Int64s]) -> Int64s:
    """The numbers of all parts."""
    return np.concatenate([np.zeros(0, np.int64), *parts])


def shown_key(keys: Sequence[pa.LargeBinaryArray], i: int, schema: StructType) -> Any:
    """Key number ``i``, for a message."""
    key = pa.chunked_array(keys, pa.large_binary()).slice(i, 1).combine_chunks()
    return to_json_values(decode(Rows.from_arrow(key), schema))[0]


class LinkWork(Protocol):
    """A link at work in one partition, on one thread."""

    def look(self, place: Place, keys: Rows, values: Rows) -> None:
        """The next entries of a place."""
        ...

    def resolve(self, decided: Mapping[Place, Decisions], fetch: Fetch) -> Outcome:
        """What becomes of every entry, given what was decided on the primary ones.

        Raises CorruptionError, naming a key, where the entries do not fit together.
        """
        ...


class Link(Protocol):
    """What hangs together, in plain data: it crosses to other processes."""

    @property
    def places(self) -> Mapping[Place, StateDescriptor]:
        """The states that hang together, the primary ones among them."""
        ...

    def begin(self, where: str) -> LinkWork:
        """Start on a partition; ``where`` names it in errors."""
        ...
