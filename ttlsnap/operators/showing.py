"""Entries as a person thinks of them: a join's buffered rows, a map's elements, a timer's key and time.

What an entry is stored with besides is told apart from its key and its value, or left out.
"""

from __future__ import annotations

from typing import Any

from ttlsnap.clock import iso
from ttlsnap.operators import join
from ttlsnap.state import StateDescriptor

Fields = dict[str, Any]


def shown(state: StateDescriptor, key: Fields, value: Fields) -> Fields:
    """``key`` and ``value`` of an entry, decoded; of a join's row also its ``side`` and whether it has ``matched``.

    Of a map's element also its ``map_key``, of a timer and of an index of moments its ``time``.
    """
    if state.kind == "row":
        *names, _ = key  # the last one is a number, or a time that the row has, too
        row = {name: value[name] for name in value if name != join.MATCHED}
        matched = {"matched": value[join.MATCHED]} if join.MATCHED in value else {}
        return {"key": {name: key[name] for name in names}, "value": row, "side": state.side, **matched}
    if state.kind == "map" and len(key) == 2:
        of, element = key.values()
        return {"key": of, "map_key": element, "value": value}
    if state.kind == "timer" or state.ordered_prefix:
        of, moment = key.values() if state.state.endswith("keyToTimestamp") else reversed(key.values())
        return {"key": of, "value": {}, "time": None if moment is None else iso(moment * 1000)}
    return {"key": key, "value": value}
