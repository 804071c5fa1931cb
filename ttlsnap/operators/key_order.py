"""Keys of a deduplication that were written with their columns in two orders.

Spark compares only the types of a key's columns when a query restarts, and their order depends on the version of Spark
(see ``scala_order``). So an unchanged query that moves from one to another can continue with other keys. It lets
duplicates of older rows through, without a message (tested from 3.5 to 4.1 and to 4.3). The schema in the checkpoint
keeps the first order.

Names do not show it, but the entries do: a row that came before and after is there twice, with the same values in two
orders. This module counts such pairs in a sample that takes the same rows from every partition, whatever their order:
those with the smallest sums of the hashes of their values.

Limits: a change is visible only after rows came again. Keys of up to four columns are not examined, because Spark does
not change their order. Rows that come in both directions, such as packets from A to B and from B to A, look like such
pairs, too: their values are swapped in pairs of columns. That proves a change only if Scala has both orders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ttlsnap.errors import UnsupportedError
from ttlsnap.operators.scala_order import scala_orders
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.murmur3 import Hashes, first_seeds, hash_column
from ttlsnap.unsaferow.rows import Rows

Sums = npt.NDArray[np.uint64]

_SAMPLE = 200_000
"""Keys of all partitions together that are compared."""

_LEAST = 1000
"""Keys of one partition that are compared, however many partitions there are."""

_PAIRS = 5
"""Pairs that prove two orders; a few can be coincidence."""

_SHARE = 0.8
"""The share of all pairs that have the same two orders."""


@dataclass(frozen=True, eq=False)
class KeySample:
    """The keys of a partition with the smallest sums: ``sums``, and the hashes of each column, uint32[n, columns].

    ``entries`` is the number of entries. ``most`` is the largest sum up to which every key of the partition is here.
    """

    entries: int
    sums: Sums
    hashes: Hashes
    most: int


@dataclass(frozen=True)
class TwoOrders:
    """Two orders of the columns of a key, by their names, and the pairs of entries that have them.

    ``compared`` is the number of keys that were compared, of ``entries``. If it is not ``certain``, the rows can also
    be different ones, which come in both directions.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    pairs: int
    compared: int
    entries: int
    certain: bool

    def __str__(self) -> str:
        """Return the two orders, with their origin if Scala gives them."""
        return " and ".join(_describe(order) for order in (self.first, self.second))


@dataclass
class KeySampling:
    """A sampling of the keys of one partition; ``look`` gets them. ``partitions`` is the number of all partitions."""

    schema: StructType
    partitions: int
    _entries: int = 0
    _sums: list[Sums] = field(default_factory=list)
    _hashes: list[Hashes] = field(default_factory=list)
    _largest_sum: int = 2**64 - 1

    def look(self, keys: Rows) -> None:
        """Add a batch of keys."""
        columns = decode(keys, self.schema).flatten()
        try:
            column_hashes = [
                hash_column(column, kind.type, first_seeds(len(keys)))
                for column, kind in zip(columns, self.schema.fields, strict=True)
            ]
        except UnsupportedError:
            return  # the hash of a type is not known, so nothing can be said of these keys
        hashes = np.stack(column_hashes, axis=1)
        sums = _spread(_spread(hashes.astype(np.uint64)).sum(axis=1, dtype=np.uint64))
        self._entries += len(keys)
        is_sampled = sums <= np.uint64(self._largest_sum)
        self._sums.append(sums[is_sampled])
        self._hashes.append(hashes[is_sampled])
        sample_size = max(_LEAST, _SAMPLE // self.partitions)
        if sum(map(len, self._sums)) > 2 * sample_size:
            self._shrink(sample_size)

    def _shrink(self, sample_size: int) -> None:
        sums, hashes = np.concatenate(self._sums), np.concatenate(self._hashes)
        if len(sums) > sample_size:
            self._largest_sum = int(np.partition(sums, sample_size)[sample_size])
            is_sampled = sums <= np.uint64(self._largest_sum)
            sums, hashes = sums[is_sampled], hashes[is_sampled]
        self._sums, self._hashes = [sums], [hashes]

    def result(self) -> KeySample:
        """Return the sample."""
        columns = len(self.schema)
        sums = np.concatenate([np.empty(0, np.uint64), *self._sums])
        hashes = np.concatenate([np.empty((0, columns), np.uint32), *self._hashes])
        return KeySample(self._entries, sums, hashes, self._largest_sum)


def find_two_orders(names: Sequence[str], samples: Iterable[KeySample]) -> TwoOrders | None:
    """Return the two orders in which keys of a state were written; None if the samples show only one."""
    samples = list(samples)
    largest_sum = np.uint64(min((sample.most for sample in samples), default=0))
    sums = np.concatenate([np.empty(0, np.uint64), *(sample.sums for sample in samples)])
    sampled = np.flatnonzero(sums <= largest_sum)
    if len(sampled) < 2:
        return None
    sampled = sampled[np.argsort(sums[sampled], kind="stable")]
    sums, hashes = sums[sampled], np.concatenate([sample.hashes for sample in samples])[sampled]
    counts_of_orders: Counter[tuple[int, ...]] = Counter()
    for number in np.flatnonzero(sums[1:] == sums[:-1]):
        order = _order_between(hashes[number], hashes[number + 1])
        if order is not None:
            counts_of_orders[order] += 1
    if not counts_of_orders:
        return None
    order, count = counts_of_orders.most_common(1)[0]
    if count < max(_PAIRS, _SHARE * counts_of_orders.total()):
        return None
    schema_order, other_order = tuple(names), tuple(names[place] for place in order)
    # A pair does not show which of its keys was first. The schema has the first order, and Scala may give the other.
    inverse = tuple(names[place] for place in np.argsort(order))
    if inverse in scala_orders(names) and other_order not in scala_orders(names):
        other_order = inverse
    are_of_scala = {schema_order, other_order} == scala_orders(names).keys()
    only_swaps = tuple(np.argsort(order).tolist()) == order
    entries = sum(sample.entries for sample in samples)
    return TwoOrders(schema_order, other_order, count, len(sums), entries, certain=are_of_scala or not only_swaps)


def _order_between(first_row: Hashes, second_row: Hashes) -> tuple[int, ...] | None:
    """Return the places of the second key's values in the first key, the smaller of both directions.

    Return None if the keys have different values, or the same order, or a value twice.
    """
    # A value that a key has twice could be in either of two columns.
    if len(set(first_row.tolist())) < len(first_row) or set(first_row.tolist()) != set(second_row.tolist()):
        return None
    place_of_hash = {value: place_in_row for place_in_row, value in enumerate(first_row.tolist())}
    order = tuple(place_of_hash[value] for value in second_row.tolist())
    return None if order == tuple(sorted(order)) else min(order, tuple(np.argsort(order).tolist()))


def _spread(sums: Sums) -> Sums:
    """Return numbers in which similar ones are far apart (the finalizer of SplitMix64)."""
    sums = (sums ^ (sums >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    sums = (sums ^ (sums >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return sums ^ (sums >> np.uint64(31))


def _describe(order: tuple[str, ...]) -> str:
    versions = scala_orders(order).get(order)
    return ", ".join(order) + (f" ({versions})" if versions else "")
