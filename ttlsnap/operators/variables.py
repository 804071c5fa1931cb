"""The elements of a variable of transformWithState in one partition, with Spark's counts and index of them.

A value is one element, and so is each entry of a map. The elements of a list share its key.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, TransformerError
from ttlsnap.operators.links import Decisions, Fetch, Keys, LinkDecisions, StateId, concat
from ttlsnap.operators.transform_with_state import Variable
from ttlsnap.stores.protocols import Renumbering
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.project import side_by_side
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import long_rows, read_numbers, read_words, rows_of_structs, struct_rows

_KEY = 1  # the field of the element's key in a key of the index, after the time
_MOMENT = 1  # the field of the expiry time in a value, after the user's own


class VariableElements:
    """See ``LinkWork``."""

    def __init__(self, variable: Variable, where: str) -> None:
        self._variable, self._where = variable, where
        self._keys = Keys(variable.places)
        self._numbers: dict[StateId, list[Int64s]] = {place: [] for place in variable.places}

    def look(self, place: StateId, keys: Rows, values: Rows) -> None:
        """See ``LinkWork.look``."""
        variable = self._variable
        if place == variable.elements.place:
            numbers = read_numbers(values, 2, _MOMENT) if variable.index else np.zeros(len(keys), np.int64)
        elif variable.index and place == variable.index.place:
            numbers = read_numbers(keys, 2, 0)
            # The struct has the same bytes as the element's own key.
            keys = struct_rows(keys, 2, _KEY)
        else:
            numbers = read_numbers(values, 1, 0)
        self._numbers[place].append(numbers)
        self._keys.add(place, keys)

    def resolve(self, decided: Mapping[StateId, Decisions], fetch: Fetch) -> LinkDecisions:
        """See ``LinkWork.resolve``."""
        variable, place = self._variable, self._variable.elements.place
        codes, count = self._keys.codes()
        numbers = {where: concat(found) for where, found in self._numbers.items()}
        of, moments = codes[place], numbers[place]
        decision = decided.get(place) or Decisions.keep(len(of))
        kept, new = decision.kept, moments.copy()
        if variable.index and decision.rewritten.any():
            new[decision.rewritten] = read_words(decision.values, 2, _MOMENT)[0]
            self._require_found(new[(new != moments) & decision.rewritten])
        rows, left = np.bincount(of, minlength=count), np.bincount(of[kept], minlength=count)
        # Of a list, the index has only the first time (OneToManyTTLState).
        first, later = _first(of, moments, count), _first(of[kept], new[kept], count)
        found = {}
        for state, before, after in [
            *((state, rows, left) for state in (variable.counts,) if state),
            *((state, first, later) for state in (variable.first, variable.index) if state),
        ]:
            at, there = codes[state.place], numbers[state.place]
            stale = self._stale(state, at, there, before)
            self._check(state, at[~stale], there[~stale], of, before)
            touched = (left[at] != rows[at]) | (later[at] != first[at])
            stays, differs = (left[at] > 0) | stale | ~touched, (after[at] != there) & ~stale & touched
            if state == variable.index:
                moved = stays & differs
                # A stale entry must not be in the place that another entry moves to.
                going = np.zeros(count, np.bool_)
                going[at[moved]] = True
                stays &= ~(stale & going[at] & (after[at] == there))
                moves = Renumbering(moved, after[at][moved]) if moved.any() else None
                found[state.place] = Decisions(stays & ~differs, np.zeros(len(at), np.bool_), Rows.none(), moves)
            else:
                changed = stays & differs
                found[state.place] = Decisions(stays, changed, long_rows(after[at][changed]))
        return LinkDecisions(found)

    def _stale(self, state: StateDescriptor, at: Int64s, there: Int64s, wanted: Int64s) -> Mask:
        """Return the index entries that Spark leaves for removed entries.

        Its ``removeKey`` of a map ignores the index, and so does ``deleteIfExists``.
        """
        kind = self._variable.elements.kind
        # MapStateImplWithTTL.removeKey removes the entry, and not its time from the index.
        is_left = kind == "map" or (kind == "value" and self._variable.returned)
        if state != self._variable.index or not is_left:
            return np.zeros(len(at), np.bool_)
        stale: Mask = wanted[at] != there
        return stale

    def _require_found(self, moments: Int64s) -> None:
        """Raise TransformerError for a time before the last batch: from 4.2 on, Spark never looks for those."""
        last = self._variable.last_batch_ms
        # From 4.2 on, Spark scans the index only from the time of the batch before (TTLState.ttlEvictionIterator).
        early = moments[moments <= last]
        if len(early):
            raise TransformerError(
                f"{self._variable.elements}: a transformer set ttlExpirationMs of {len(early)} entries to a time "
                f"before the end of the last batch ({last}); the first is {early[0]}. Spark would never remove them. "
                "Drop them instead"
            )

    def _check(self, state: StateDescriptor, at: Int64s, there: Int64s, of: Int64s, wanted: Int64s) -> None:
        """Raise CorruptionError unless exactly the keys of the elements exist, each with the expected number.

        Spark continues with the numbers of a list that it has not removed with the list. They can be any, and of more
        keys, if the list returned.
        """
        times = np.bincount(at, minlength=len(wanted))
        known = np.bincount(of, minlength=len(wanted)) > 0
        wrong = times[at] != 1
        if not self._variable.returned or self._variable.elements.kind != "list":
            wrong |= ~known[at] | (there != wanted[at])
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            what = f"where it should be {wanted[at[i]]}" if known[at[i]] else "and the variable does not have it"
            self._fail(state.place, i, f"{state.state} has {there[i]} for it, {what}")
        missing = times[of] == 0
        if missing.any():
            i = int(np.flatnonzero(missing)[0])
            self._fail(self._variable.elements.place, i, f"{state.state} does not have it")

    def _fail(self, place: StateId, i: int, what: str) -> None:
        elements = self._variable.elements
        raise CorruptionError(
            f"{self._where}: variable {elements.state} does not match its index or counts: key "
            f"{self._keys.show(place, i, elements.key_schema)}: {what}. Nothing was changed; go back to an older "
            "batch, or to a copy"
        )


def _first(of: Int64s, moments: Int64s, count: int) -> Int64s:
    """Return the first time of each key."""
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, of, moments)
    return first


def keys_by_time(index: StateDescriptor, moments: Int64s, keys: Rows) -> Rows:
    """Return the keys of an index: the time, and the key as a struct."""
    moment, element = (field.type for field in index.key_schema.fields)
    return side_by_side(long_rows(moments), rows_of_structs(keys), [moment], [element])
