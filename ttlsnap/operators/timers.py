"""The timers of transformWithState in one partition: by key, and the other way round by their moments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ttlsnap.errors import CorruptionError
from ttlsnap.links import Decisions, Fetch, Keys, Outcome, Place, joined
from ttlsnap.operators.transform_with_state import Timers
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_numbers, struct_rows


class TimersOfKeys:
    """See ``LinkWork``."""

    def __init__(self, timers: Timers, where: str) -> None:
        self._timers, self._where = timers, where
        self._keys = Keys(timers.places)
        self._moments: dict[Place, list[Int64s]] = {timers.by_key.place: [], timers.by_time.place: []}

    def look(self, place: Place, keys: Rows, values: Rows) -> None:
        """See ``LinkWork.look``."""
        timers = self._timers
        if place in self._moments:
            at, key = (1, 0) if place == timers.by_key.place else (0, 1)
            self._moments[place].append(read_numbers(keys, 2, at))
            keys = struct_rows(keys, 2, key)
        elif timers.places[place].kind == "map":
            keys = struct_rows(keys, 2, 0)  # the key, and that of the entry
        self._keys.add(place, keys)

    def resolve(self, decided: Mapping[Place, Decisions], fetch: Fetch) -> Outcome:
        """See ``LinkWork.resolve``."""
        timers = self._timers
        codes, count = self._keys.codes()
        self._check(codes)
        had, has = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        for place in timers.variables:
            at = codes[place]
            had[at] = True
            has[at[decided[place].kept] if place in decided else at] = True
        gone = had & ~has
        telling = timers.by_key.place if timers.variables else None
        return Outcome({place: Decisions.drop(gone[codes[place]]) for place in self._moments}, telling=telling)

    def _check(self, codes: Mapping[Place, Int64s]) -> None:
        """Every timer is there once by its key, and once by its moment."""
        seen = []
        for place, moments in self._moments.items():
            pairs = np.stack([joined(moments), codes[place]], axis=1)
            order = np.lexsort((pairs[:, 1], pairs[:, 0]))
            seen.append((place, pairs[order], order))
        (_, by_key, _), (_, by_time, _) = seen
        if len(by_key) == len(by_time) and (by_key == by_time).all():
            return
        common = min(len(by_key), len(by_time))
        differs = (by_key[:common] != by_time[:common]).any(axis=1)
        i = int(np.argmax(differs)) if differs.any() else common
        # Both are in order: what comes first in one of them is not in the other.
        place, pairs, order = min((s for s in seen if i < len(s[1])), key=lambda s: tuple(s[1][i].tolist()))
        which, moment = int(order[i]), pairs[i, 0]
        raise CorruptionError(
            f"{self._where}: the timers by key and by time do not fit together: key "
            f"{self._keys.shown(place, which, self._timers.key_schema)}, at {moment}: only one of the two has it. "
            "Nothing was changed; go back to an older batch, or to a copy"
        )
