"""Entries in the form of the user's query: a join's buffered rows, a map's elements, a timer's key and time.

Other stored facts are shown beside the key and the value, or omitted.
"""

from __future__ import annotations

from typing import Any

from ttlsnap.clock import iso
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.operators import join

Fields = dict[str, Any]


def show_entry(state: StateDescriptor, key: Fields, value: Fields) -> Fields:
    """Return ``key`` and ``value`` of an entry, decoded; a join's row also has its ``side`` and ``matched``.

    A map's element also has its ``map_key``; a timer and an entry of an index of times have their ``time``.
    """
    shown_key = show_key(state, key)
    if state.kind == "row":
        row = {name: value[name] for name in value if name != join.MATCHED}
        matched_fields = {"matched": value[join.MATCHED]} if join.MATCHED in value else {}
        return {"key": shown_key["key"], "value": row, "side": state.side, **matched_fields}
    if "time" in shown_key:
        return {"key": shown_key["key"], "value": {}, "time": shown_key["time"]}
    return {**shown_key, "value": value}


def show_key(state: StateDescriptor, key: Fields) -> Fields:
    """Return the ``key`` of an entry, decoded, in the form of ``show_entry``, without anything of its value."""
    if state.kind == "row":
        *names, _ = key  # the last one is an index, or a time that the row also has
        return {"key": {name: key[name] for name in names}, "side": state.side}
    if state.kind == "map" and len(key) == 2:
        grouping_key, element = key.values()
        return {"key": grouping_key, "map_key": element}
    if state.kind == "timer" or state.ordered_prefix:
        grouping_key, moment = key.values() if state.state.endswith("keyToTimestamp") else reversed(key.values())
        return {"key": grouping_key, "time": None if moment is None else iso(moment * 1000)}
    return {"key": key}
