"""Transformers for the tests, which run in Spark's workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ttlsnap.clock import Clock
from ttlsnap.entries import StateEntries
from ttlsnap.state import StateDescriptor
from ttlsnap.transform import Drop, Keep, Replace, StateSnapshotTransformer, Verdict


def cap(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    """Nobody has more than 40 visits; who has 3 goes."""
    if value["visits"] == 3:
        return Drop()
    return Replace({**value, "visits": 40}) if value["visits"] > 40 else Keep()


def wrong(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    """Raises at one user."""
    if key["user"] == "u007":
        raise ValueError("who is this?")
    return Drop()


@dataclass(frozen=True)
class Double:
    """All visits twice over, batch by batch; who has an odd number goes, before."""

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer:
        return _Double()


class _Double:
    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        words, _ = entries.words("value.visits")
        kept = entries.filter(words % 2 == 0)
        values = kept.value_structs
        names = [field.name for field in values.type]
        columns = [values.field(place) for place in range(len(names))]
        visits = np.asarray(columns[names.index("visits")]) * 2
        columns[names.index("visits")] = pa.array(visits)
        doubled = kept.replace_values(pa.StructArray.from_arrays(columns, names))
        assert doubled.column("value.visits").equals(pa.array(visits))
        return doubled
