"""The new entries of a state in one partition, and what Spark keeps beside them: numbers, counts, indexes.

All of them are made from the imported rows alone, because old entries stay or go with everything of their key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.imports.tables import ImportTable
from ttlsnap.operators.join import IndexedSide, TimedSide
from ttlsnap.operators.join_rows import times_of_rows
from ttlsnap.operators.links import StateId, encode_keys
from ttlsnap.operators.transform_with_state import Timers, Variable
from ttlsnap.operators.variables import keys_by_time
from ttlsnap.schema.types import LongType
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.project import side_by_side, without_last_field
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import long_rows, null_rows, read_numbers, rows_of_structs, struct_rows

Entries = tuple[StateDescriptor, Rows, Rows, Int64s | None]
"""Entries of a state: their keys, their values, and of lists the number of the list of each."""

Parts = Sequence[tuple[Rows, Rows]]
"""Keys (of ``ImportTable.identity``) and values of imported rows, a part after the other."""

_EXPIRY = 1  # the field of the expiry time in a value, after the user's own


@dataclass(frozen=True)
class NewEntries:
    """New entries in parts. ``states`` are all that may get some, by their places."""

    states: Mapping[StateId, StateDescriptor]
    parts: Sequence[Entries]


def new_entries(table: ImportTable, parts: Parts) -> NewEntries:
    """Return the entries of a table's rows."""
    state, link = table.state, table.link
    if link is None and not state.lists:
        return NewEntries({state.place: state}, [(state, keys, values, None) for keys, values in parts])
    keys, values = (Rows.concat([part[side] for part in parts]) for side in (0, 1))
    if table.is_list:
        # Rows with the same key become adjacent, in the order of the table.
        codes = encode_keys([keys.to_arrow()])
        order = np.argsort(codes, kind="stable")
        keys, values, owner = keys.take(order), values.take(order), codes[order]
        firsts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: len(owner)])
    else:
        owner = firsts = np.arange(len(keys))
    entries: list[Entries] = []
    if isinstance(link, IndexedSide):
        counts = np.diff(firsts, append=len(keys))
        numbers = np.arange(len(keys)) - np.repeat(firsts, counts)
        entries.append((state, _with_number(table, keys, numbers), values, None))
        entries.append((link.counts, keys.take(firsts), long_rows(counts), None))
    elif isinstance(link, TimedSide):
        times = times_of_rows(state, values, state.value_schema)
        timed_keys = _with_number(table, keys, times)
        codes = encode_keys([timed_keys.to_arrow()])
        order = np.argsort(codes, kind="stable")
        entries.append((state, timed_keys.take(order), values.take(order), codes[order]))
        entries.append((link.times, timed_keys.take(order), null_rows(len(keys)), codes[order]))
    elif isinstance(link, Timers):
        moments = read_numbers(keys, 2, 1)
        elements = struct_rows(keys, 2, 0)
        entries.append((state, keys, values, None))
        entries.append((link.by_time, keys_by_time(link.by_time, moments, elements), null_rows(len(keys)), None))
    else:
        entries.append((state, keys, values, owner if state.lists else None))
        if isinstance(link, Variable):
            entries += _beside(link, keys, values, firsts)
    return NewEntries({part[0].place: part[0] for part in entries}, entries)


def identities(table: ImportTable, place: StateId, rows: Rows) -> Rows:
    """Return the keys of ``table.identity`` to which stored keys of a place belong."""
    link = table.link
    if isinstance(link, IndexedSide):
        types = [field.type for field in link.values.key_schema.fields]
        return without_last_field(rows, types) if place == link.values.place else rows
    if isinstance(link, TimedSide):
        return without_last_field(rows, [field.type for field in link.values.key_schema.fields])
    if isinstance(link, Timers) and place == link.by_time.place:
        return rows_of_structs(struct_rows(rows, 2, 1), read_numbers(rows, 2, 0))
    if isinstance(link, Variable) and link.index is not None and place == link.index.place:
        return struct_rows(rows, 2, 1)  # the struct has the same bytes as the element's own key
    return rows


def _beside(link: Variable, keys: Rows, values: Rows, firsts: Int64s) -> list[Entries]:
    """Return the entries that Spark keeps beside the elements of a variable."""
    owners, entries = keys.take(firsts), list[Entries]()
    if link.counts is not None:
        entries.append((link.counts, owners, long_rows(np.diff(firsts, append=len(keys))), None))
    if link.index is None:
        return entries
    times = read_numbers(values, 2, _EXPIRY)
    earliest = np.minimum.reduceat(times, firsts) if len(times) else times
    if link.first is not None:
        entries.append((link.first, owners, long_rows(earliest), None))
    entries.append((link.index, keys_by_time(link.index, earliest, owners), null_rows(len(firsts)), None))
    return entries


def _with_number(table: ImportTable, keys: Rows, numbers: Int64s) -> Rows:
    """Return the keys of a join's rows with their numbers or times."""
    types = [field.type for field in table.identity.key_schema.fields]
    return side_by_side(keys, long_rows(numbers), types, [LongType()])
