"""The differences between the entries of two sides, as whole arrays.

An entry is compared as the user's query has it. The number of a join's row, which has no other meaning, is left out.
So is what only one of two formats stores (see ``views``). So several entries can have one key. Those with equal values
are the same. Of the others, as many as possible have *changed*: an old one and a new one with the same key. The rest
was *removed* or *added*.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ttlsnap.entries.batch import RowEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.operators.links import encode_keys
from ttlsnap.reading.diff_views import View
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.project import without_last_field
from ttlsnap.unsaferow.rows import Rows


@dataclass(eq=False)
class Side:
    """The entries of one side: keys and values as they are stored, and those that are compared."""

    keys: list[Rows] = field(default_factory=list)
    values: list[Rows] = field(default_factory=list)
    compared: list[Rows] = field(default_factory=list)
    compared_values: list[Rows] = field(default_factory=list)

    def add(self, entries: RowEntries, view: View) -> None:
        """Add entries of a state, whose values are compared as ``view`` has them."""
        self.keys.append(Rows.concat([entries.keys]))
        self.values.append(Rows.concat([entries.values]))
        self.compared.append(Rows.concat([compared_keys(entries.state, entries.keys)]))
        self.compared_values.append(self.values[-1] if view.is_whole else view.values(entries))

    def __len__(self) -> int:
        return sum(map(len, self.keys))


@dataclass(frozen=True)
class Differences:
    """Numbers of entries. The examples are pairs of the numbers of an old and a new entry; None if there is none."""

    same: int
    added: int
    removed: int
    changed: int
    examples: tuple[tuple[int | None, int | None], ...]


def compared_keys(state: StateDescriptor, keys: Rows) -> Rows:
    """Return the keys without what Spark numbers itself."""
    if state.kind != "row":
        return keys
    return without_last_field(keys, [column.type for column in state.key_schema.fields])


def compare(old_side: Side, new_side: Side, examples: int) -> Differences:
    """Return the differences of two sides, with the first ``examples`` of them."""
    keys = encode_keys([rows.to_arrow() for rows in (*old_side.compared, *new_side.compared)])
    values = encode_keys([rows.to_arrow() for rows in (*old_side.compared_values, *new_side.compared_values)])
    count = len(old_side)
    # Equal entries get one number, and those of one key adjacent ones.
    unique_pairs, pair_numbers = np.unique(keys * (int(values.max(initial=0)) + 1) + values, return_inverse=True)
    key_of_pair = unique_pairs // (int(values.max(initial=0)) + 1)
    old_counts, new_counts = (
        np.bincount(side, minlength=len(unique_pairs)) for side in (pair_numbers[:count], pair_numbers[count:])
    )
    same_counts = np.minimum(old_counts, new_counts)
    old_surplus, new_surplus = old_counts - same_counts, new_counts - same_counts
    size = int(key_of_pair.max(initial=-1)) + 1
    old_per_key, new_per_key = (
        np.bincount(key_of_pair, weights=side, minlength=size).astype(np.int64) for side in (old_surplus, new_surplus)
    )
    changed_per_key = np.minimum(old_per_key, new_per_key)
    old_places, new_places = (
        _different(pair_numbers[:count], old_surplus),
        _different(pair_numbers[count:], new_surplus),
    )
    return Differences(
        same=int(same_counts.sum()),
        added=int((new_per_key - changed_per_key).sum()),
        removed=int((old_per_key - changed_per_key).sum()),
        changed=int(changed_per_key.sum()),
        examples=_pair(old_places, keys[old_places], new_places, keys[count:][new_places], examples),
    )


def _different(numbers: Int64s, surplus: Int64s) -> Int64s:
    """Return the places of the entries that the other side does not have: the last ones of those that are equal."""
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers, minlength=len(surplus))
    rank = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank >= (counts - surplus)[numbers[order]]])


def _pair(
    old_places: Int64s, old_keys: Int64s, new_places: Int64s, new_keys: Int64s, limit: int
) -> tuple[tuple[int | None, int | None], ...]:
    """Return the first old entries, each with a new one of its key, and then the first new ones of other keys."""
    old_places, old_keys, all_old_keys = old_places[:limit], old_keys[:limit], old_keys
    is_partner = np.isin(new_keys, old_keys)
    partners: dict[int, list[int]] = {}
    for place, key in zip(new_places[is_partner].tolist(), new_keys[is_partner].tolist(), strict=True):
        partners.setdefault(key, []).append(place)
    place_pairs: list[tuple[int | None, int | None]] = []
    for place, key in zip(old_places.tolist(), old_keys.tolist(), strict=True):
        partners_of_key = partners.get(key)
        place_pairs.append((place, partners_of_key.pop(0) if partners_of_key else None))
    unpaired = new_places[~np.isin(new_keys, all_old_keys)][: limit - len(place_pairs)]
    return (*place_pairs, *((None, place) for place in unpaired.tolist()))


def entry_at(side: Side, state: StateDescriptor, place: int) -> RowEntries:
    """Return one entry of a side, by its number."""
    for keys, values in zip(side.keys, side.values, strict=True):
        if place < len(keys):
            return RowEntries.of(state, keys.take(np.array([place])), values.take(np.array([place])))
        place -= len(keys)
    raise IndexError(place)
