"""The elements of a variable with a TTL, and the index of their moments of expiry, in one partition."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ttlsnap.errors import CorruptionError, TransformerError
from ttlsnap.links import Decisions, Fetch, Outcome, Place, codes_of, joined, shown_key
from ttlsnap.operators.transform_with_state import TtlIndex
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_words

_ELEMENT = 1  # in a key of the index, behind the moment; in a value, behind the user's own, the moment


class IndexedElements:
    """See ``LinkWork``."""

    def __init__(self, link: TtlIndex, where: str) -> None:
        self._link, self._where = link, where
        self._keys: dict[Place, list[pa.LargeBinaryArray]] = {link.elements.place: [], link.index.place: []}
        self._moments: dict[Place, list[Int64s]] = {link.elements.place: [], link.index.place: []}

    def look(self, place: Place, keys: Rows, values: Rows) -> None:
        """See ``LinkWork.look``."""
        if place == self._link.elements.place:
            moments = read_words(values, 2, _ELEMENT)[0]
        else:
            moments = read_words(keys, 2, 0)[0]
            word = read_words(keys, 2, _ELEMENT)[0]
            # The element's key, a struct: its bytes are those of the key that it has itself.
            keys = Rows(keys.data, keys.start + (word >> 32), word & 0xFFFFFFFF)
        self._moments[place].append(moments)
        self._keys[place].append(keys.to_arrow())

    def resolve(self, decided: Mapping[Place, Decisions], fetch: Fetch) -> Outcome:
        """See ``LinkWork.resolve``."""
        link = self._link
        moments, indexed = joined(self._moments[link.elements.place]), joined(self._moments[link.index.place])
        codes = codes_of([*self._keys[link.elements.place], *self._keys[link.index.place]])
        of_element, of_index = codes[: len(moments)], codes[len(moments) :]
        element = np.full(int(codes.max(initial=-1)) + 1, -1)
        element[of_element] = np.arange(len(moments))
        twin = element[of_index]
        wrong = (twin < 0) | (np.bincount(of_index, minlength=len(element))[of_index] != 1)
        wrong |= moments[twin] != indexed if len(moments) else wrong
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            self._fail(link.index.place, i, f"the index has it for {indexed[i]}, where it is not")
        missing = np.ones(len(moments), np.bool_)
        missing[twin] = False
        if missing.any():
            i = int(np.flatnonzero(missing)[0])
            self._fail(link.elements.place, i, f"it expires at {moments[i]}, and the index does not have it")
        decision = decided.get(link.elements.place)
        if decision is None:
            return Outcome({link.index.place: Decisions.keep(len(indexed))})
        if decision.rewritten.any():
            new = read_words(decision.values, 2, _ELEMENT)[0]
            if (new != moments[decision.rewritten]).any():
                raise TransformerError(
                    f"{link.elements}: a transformer changed ttlExpirationMs, by which Spark finds what has "
                    "expired; entries can be dropped, and their values rewritten, but not that"
                )
        return Outcome(
            {link.index.place: Decisions(decision.kept[twin], np.zeros(len(indexed), np.bool_), Rows.none())}
        )

    def _fail(self, place: Place, i: int, what: str) -> None:
        link = self._link
        shown = shown_key(self._keys[place], i, link.elements.key_schema)
        raise CorruptionError(
            f"{self._where}: variable {link.elements.state} and its TTL index do not fit together: key {shown}: "
            f"{what}. Nothing was changed; go back to an older batch, or to a copy"
        )
