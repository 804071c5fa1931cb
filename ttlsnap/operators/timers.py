"""The timers of transformWithState in one partition: by key, and by time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ttlsnap.errors import CorruptionError
from ttlsnap.operators.followers import find_gone, query_keys
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
            time_ordinal, key = (1, 0) if place == timers.by_key.place else (0, 1)
            self._moments[place].append(read_numbers(keys, 2, time_ordinal))
            keys = struct_rows(keys, 2, key)
        else:
            keys = query_keys(timers.places[place], keys)
        self._keys.add(place, keys)

    def resolve(self, decision_of_state: Mapping[StateId, Decisions], fetch: Fetch) -> LinkDecisions:
        """See ``LinkWork.resolve``."""
        timers = self._timers
        codes, count = self._keys.codes()
        self._check(codes)
        # A key that had no state before may have timers all the same: a timer needs no state.
        is_gone = find_gone(codes, count, timers.variables, decision_of_state)
        decisions = {place: Decisions.drop(is_gone[codes[place]]) for place in self._moments}
        return LinkDecisions(decisions, archived=(timers.by_key.place,) if timers.variables else ())

    def _check(self, codes: Mapping[StateId, Int64s]) -> None:
        """Raise CorruptionError unless every timer exists once by its key, and once by its time."""
        sorted_timers = []
        for place, moments in self._moments.items():
            timer_rows = np.stack([concat(moments), codes[place]], axis=1)
            order = np.lexsort((timer_rows[:, 1], timer_rows[:, 0]))
            sorted_timers.append((place, timer_rows[order], order))
        (_, by_key, _), (_, by_time, _) = sorted_timers
        if len(by_key) == len(by_time) and (by_key == by_time).all():
            return
        shared_count = min(len(by_key), len(by_time))
        differs = (by_key[:shared_count] != by_time[:shared_count]).any(axis=1)
        number = int(np.argmax(differs)) if differs.any() else shared_count
        # Both are sorted, so the smaller of the two at the first difference is missing in the other.
        place, timer_rows, order = min(
            (timers_of_place for timers_of_place in sorted_timers if number < len(timers_of_place[1])),
            key=lambda timers_of_place: tuple(timers_of_place[1][number].tolist()),
        )
        timer_number, moment = int(order[number]), timer_rows[number, 0]
        raise CorruptionError(
            f"{self._where}: the timers by key and by time do not match: key "
            f"{self._keys.show(place, timer_number, self._timers.key_schema)}, at {moment}: only one of the two has "
            "it. Nothing was changed. Go back to an older batch, or to a copy"
        )
