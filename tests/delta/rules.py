"""Transformers for the tests, which run in Spark's workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ttlsnap.clock import Clock
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.transform.protocols import Drop, Keep, Replace, StateSnapshotTransformer, Verdict


def cap(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    """Limit visits to 40, and drop users with 3 visits."""
    if value["visits"] == 3:
        return Drop()
    return Replace({**value, "visits": 40}) if value["visits"] > 40 else Keep()


def wrong(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    """Raise an error for one user."""
    if key["user"] == "u007":
        raise ValueError("who is this?")
    return Drop()


@dataclass(frozen=True)
class Double:
    """A factory whose transformer drops odd numbers of visits and doubles the others, batch by batch."""

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
