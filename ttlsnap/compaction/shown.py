"""The first entries that a run drops or rewrites, for a person to look at."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ttlsnap.clock import iso
from ttlsnap.entries.batch import RowEntries, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.operators.showing import show_entry
from ttlsnap.transform.protocols import Transformer

DROPPED, REWRITTEN = "dropped", "rewritten"


class Shown:
    """The first ``limit`` entries of a state in one partition that a transformer drops or rewrites, as JSON.

    Each has the ``change``, the number of the ``rule``, the ``time`` by which the rule decided (null if it uses none),
    and the entry as ``inspect`` shows it. A rewritten one also has the ``new_value``.
    """

    def __init__(self, state: StateDescriptor, limit: int) -> None:
        self._state, self._limit = state, limit
        self.entries: list[dict[str, Any]] = []

    def watch(self, rule: int, transformer: Transformer, before: StateEntries, after: StateEntries) -> None:
        """Note what the transformer with the number ``rule`` changes."""
        room = self._limit - len(self.entries)
        if room <= 0 or after is before:
            return
        is_kept = np.isin(before.index, after.index)
        self._add(DROPPED, rule, transformer, _first(before, ~is_kept, room))
        kept_before = before.filter(is_kept)
        is_rewritten = after.rewritten & ~kept_before.rewritten
        room = self._limit - len(self.entries)
        if room > 0 and is_rewritten.any():
            new_values = to_json_values(_first(after, is_rewritten, room).value_structs)
            self._add(REWRITTEN, rule, transformer, _first(kept_before, is_rewritten, room), new_values)

    def _add(
        self,
        change: str,
        rule: int,
        transformer: Transformer,
        entries: StateEntries,
        new_values: list[Any] | None = None,
    ) -> None:
        if not len(entries):
            return
        moments = transformer.moments(entries)
        pairs = zip(to_json_values(entries.key_structs), to_json_values(entries.value_structs), strict=True)
        for number, (key, value) in enumerate(pairs):
            time = None if moments is None or moments[1][number] else iso(int(moments[0][number]))
            shown_entry = {"change": change, "rule": rule, **show_entry(self._state, key, value), "time": time}
            if new_values is not None:
                shown_entry["new_value"] = show_entry(self._state, key, new_values[number])["value"]
            self.entries.append(shown_entry)


def _first(entries: StateEntries, mask: Any, count: int) -> RowEntries:
    """Return the first ``count`` of the entries for which ``mask`` is true."""
    is_chosen = np.zeros(len(entries), np.bool_)
    is_chosen[np.flatnonzero(mask)[:count]] = True
    return cast(RowEntries, entries.filter(is_chosen))
