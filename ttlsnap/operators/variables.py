"""The elements of a variable of transformWithState in one partition, with Spark's counts and index of them.

A value is one element, and so is each entry of a map. The elements of a list share its key.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ttlsnap.amounts import quantity
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

    def resolve(self, decision_of_state: Mapping[StateId, Decisions], fetch: Fetch) -> LinkDecisions:
        """See ``LinkWork.resolve``."""
        variable, place = self._variable, self._variable.elements.place
        codes, count = self._keys.codes()
        numbers = {where: concat(found) for where, found in self._numbers.items()}
        code_of_element, moments = codes[place], numbers[place]
        decision = decision_of_state.get(place) or Decisions.keep(len(code_of_element))
        is_kept, new_moments = decision.kept, moments.copy()
        if variable.index and decision.rewritten.any():
            new_moments[decision.rewritten] = read_words(decision.values, 2, _MOMENT)[0]
            self._require_found(new_moments[(new_moments != moments) & decision.rewritten])
        rows, elements_left = (
            np.bincount(code_of_element, minlength=count),
            np.bincount(code_of_element[is_kept], minlength=count),
        )
        # Of a list, the index has only the first time (OneToManyTTLState).
        first_before, first_after = (
            _first(code_of_element, moments, count),
            _first(code_of_element[is_kept], new_moments[is_kept], count),
        )
        found = {}
        for state, values_before, values_after in [
            *((state, rows, elements_left) for state in (variable.counts,) if state),
            *((state, first_before, first_after) for state in (variable.first, variable.index) if state),
        ]:
            key_codes, stored_values = codes[state.place], numbers[state.place]
            is_stale = self._stale(state, key_codes, stored_values, values_before)
            self._check(state, key_codes[~is_stale], stored_values[~is_stale], code_of_element, values_before)
            is_touched = (elements_left[key_codes] != rows[key_codes]) | (
                first_after[key_codes] != first_before[key_codes]
            )
            is_staying, differs = (
                (elements_left[key_codes] > 0) | is_stale | ~is_touched,
                (values_after[key_codes] != stored_values) & ~is_stale & is_touched,
            )
            if state == variable.index:
                is_moved = is_staying & differs
                # A stale entry must not be in the place that another entry moves to.
                is_target = np.zeros(count, np.bool_)
                is_target[key_codes[is_moved]] = True
                is_staying &= ~(is_stale & is_target[key_codes] & (values_after[key_codes] == stored_values))
                moves = Renumbering(is_moved, values_after[key_codes][is_moved]) if is_moved.any() else None
                found[state.place] = Decisions(
                    is_staying & ~differs, np.zeros(len(key_codes), np.bool_), Rows.none(), moves
                )
            else:
                is_changed = is_staying & differs
                found[state.place] = Decisions(is_staying, is_changed, long_rows(values_after[key_codes][is_changed]))
        return LinkDecisions(found)

    def _stale(self, state: StateDescriptor, key_codes: Int64s, stored_values: Int64s, expected_values: Int64s) -> Mask:
        """Return the index entries that Spark leaves for removed entries.

        Its ``removeKey`` of a map ignores the index, and so does ``deleteIfExists``.
        """
        kind = self._variable.elements.kind
        # MapStateImplWithTTL.removeKey removes the entry, and not its time from the index.
        is_left = kind == "map" or (kind == "value" and self._variable.returned)
        if state != self._variable.index or not is_left:
            return np.zeros(len(key_codes), np.bool_)
        is_stale: Mask = expected_values[key_codes] != stored_values
        return is_stale

    def _require_found(self, moments: Int64s) -> None:
        """Raise TransformerError for a time before the last batch: from 4.2 on, Spark never looks for those."""
        last_batch_ms = self._variable.last_batch_ms
        # From 4.2 on, Spark scans the index only from the time of the batch before (TTLState.ttlEvictionIterator).
        early = moments[moments <= last_batch_ms]
        if len(early):
            raise TransformerError(
                f"{self._variable.elements}: a transformer set ttlExpirationMs of "
                f"{quantity(len(early), 'entry', 'entries')} to a time "
                f"before the end of the last batch ({last_batch_ms}); the first is {early[0]}. Spark would never "
                "remove them. Drop them instead"
            )

    def _check(
        self,
        state: StateDescriptor,
        key_codes: Int64s,
        stored_values: Int64s,
        code_of_element: Int64s,
        expected_values: Int64s,
    ) -> None:
        """Raise CorruptionError unless exactly the keys of the elements exist, each with the expected number.

        Spark continues with the numbers of a list that it has not removed with the list. They can be any, and of more
        keys, if the list returned.
        """
        times = np.bincount(key_codes, minlength=len(expected_values))
        has_elements = np.bincount(code_of_element, minlength=len(expected_values)) > 0
        is_wrong = times[key_codes] != 1
        if not self._variable.returned or self._variable.elements.kind != "list":
            is_wrong |= ~has_elements[key_codes] | (stored_values != expected_values[key_codes])
        if is_wrong.any():
            number = int(np.flatnonzero(is_wrong)[0])
            problem = (
                f"where it should be {expected_values[key_codes[number]]}"
                if has_elements[key_codes[number]]
                else "and the variable does not have it"
            )
            self._fail(state.place, number, f"{state.state} has {stored_values[number]} for it, {problem}")
        is_missing = times[code_of_element] == 0
        if is_missing.any():
            number = int(np.flatnonzero(is_missing)[0])
            self._fail(self._variable.elements.place, number, f"{state.state} does not have it")

    def _fail(self, place: StateId, number: int, problem: str) -> None:
        elements = self._variable.elements
        raise CorruptionError(
            f"{self._where}: variable {elements.state} does not match its index or counts: key "
            f"{self._keys.show(place, number, elements.key_schema)}: {problem}. Nothing was changed; go back to an "
            "older batch, or to a copy"
        )


def _first(codes: Int64s, moments: Int64s, count: int) -> Int64s:
    """Return the first time of each key."""
    first_moments = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first_moments, codes, moments)
    return first_moments


def keys_by_time(index: StateDescriptor, moments: Int64s, keys: Rows) -> Rows:
    """Return the keys of an index: the time, and the key as a struct."""
    moment, element = (field.type for field in index.key_schema.fields)
    return side_by_side(long_rows(moments), rows_of_structs(keys), [moment], [element])
