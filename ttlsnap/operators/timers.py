"""The timers of transformWithState in one partition: by key, and by time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ttlsnap.errors import CorruptionError
from ttlsnap.operators.links import Decisions, Fetch, Keys, LinkDecisions, StateId, concat
from ttlsnap.operators.transform_with_state import Timers
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_numbers, struct_rows


class TimersOfKeys:
    """See ``LinkWork``."""

    def __init__(self, timers: Timers, where: str) -> None:
        self._timers, self._where = timers, where
        self._keys = Keys(timers.places)
        self._moments: dict[StateId, list[Int64s]] = {timers.by_key.place: [], timers.by_time.place: []}

    def look(self, place: StateId, keys: Rows, values: Rows) -> None:
        """See ``LinkWork.look``."""
        timers = self._timers
        if place in self._moments:
            # By key, the time is the second field; in the index by time, the first (TimerStateImpl).
            at, key = (1, 0) if place == timers.by_key.place else (0, 1)
            self._moments[place].append(read_numbers(keys, 2, at))
            keys = struct_rows(keys, 2, key)
        elif timers.places[place].kind == "map":
            keys = struct_rows(keys, 2, 0)  # the fields are the key, and the map key of the entry
        self._keys.add(place, keys)

    def resolve(self, decided: Mapping[StateId, Decisions], fetch: Fetch) -> LinkDecisions:
        """See ``LinkWork.resolve``."""
        timers = self._timers
        codes, count = self._keys.codes()
        self._check(codes)
        had, has = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        for place in timers.variables:
            at = codes[place]
            had[at] = True
            has[at[decided[place].kept] if place in decided else at] = True
        # A key that had no state before may have timers all the same: a timer needs no state.
        gone = had & ~has
        archived = timers.by_key.place if timers.variables else None
        decisions = {place: Decisions.drop(gone[codes[place]]) for place in self._moments}
        return LinkDecisions(decisions, archived_place=archived)

    def _check(self, codes: Mapping[StateId, Int64s]) -> None:
        """Raise CorruptionError unless every timer exists once by its key, and once by its time."""
        seen = []
        for place, moments in self._moments.items():
            pairs = np.stack([concat(moments), codes[place]], axis=1)
            order = np.lexsort((pairs[:, 1], pairs[:, 0]))
            seen.append((place, pairs[order], order))
        (_, by_key, _), (_, by_time, _) = seen
        if len(by_key) == len(by_time) and (by_key == by_time).all():
            return
        common = min(len(by_key), len(by_time))
        differs = (by_key[:common] != by_time[:common]).any(axis=1)
        i = int(np.argmax(differs)) if differs.any() else common
        # Both are sorted, so the smaller of the two at the first difference is missing in the other.
        place, pairs, order = min((s for s in seen if i < len(s[1])), key=lambda s: tuple(s[1][i].tolist()))
        which, moment = int(order[i]), pairs[i, 0]
        raise CorruptionError(
            f"{self._where}: the timers by key and by time do not match: key "
            f"{self._keys.show(place, which, self._timers.key_schema)}, at {moment}: only one of the two has it. "
            "Nothing was changed. Go back to an older batch, or to a copy"
        )
