"""The variables of transformWithState that follow others of the same key in one partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.operators.links import Decisions, Fetch, Keys, LinkDecisions, StateId
from ttlsnap.operators.transform_with_state import Followers
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import struct_rows


class VariablesOfKeys:
    """See ``LinkWork``."""

    def __init__(self, link: Followers, where: str) -> None:
        self._link = link
        self._keys = Keys(link.places)

    def look(self, place: StateId, keys: Rows, values: Rows) -> None:
        """See ``LinkWork.look``."""
        self._keys.add(place, query_keys(self._link.places[place], keys))

    def resolve(self, decision_of_state: Mapping[StateId, Decisions], fetch: Fetch) -> LinkDecisions:
        """See ``LinkWork.resolve``."""
        codes, count = self._keys.codes()
        # A key without an entry in the deciding variables stays: no rule has said anything about it.
        is_gone = find_gone(codes, count, self._link.deciding, decision_of_state)
        following = tuple(self._link.following)
        return LinkDecisions({place: Decisions.drop(is_gone[codes[place]]) for place in following}, archived=following)


def query_keys(variable: StateDescriptor, keys: Rows) -> Rows:
    """Return the keys of the query in the ``keys`` of a variable. Those of a map also have the map's own key."""
    return struct_rows(keys, 2, 0) if variable.kind == "map" else keys


def find_gone(
    codes: Mapping[StateId, Int64s],
    count: int,
    places: Iterable[StateId],
    decision_of_state: Mapping[StateId, Decisions],
) -> Mask:
    """Return which of ``count`` keys, by their codes, have entries in ``places`` and keep none (bool[count])."""
    had, has = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for place in places:
        key_codes = codes[place]
        had[key_codes] = True
        has[key_codes[decision_of_state[place].kept] if place in decision_of_state else key_codes] = True
    return had & ~has
