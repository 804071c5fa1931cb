"""Output and state of Spark or of the model, in one form that can be compared: batches of rows, entries of state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .queries import stamp

Fields = dict[str, Any]


def canonical(rows: Iterable[Fields]) -> tuple[str, ...]:
    """Return rows as sorted JSON, which a failed assertion shows legibly."""
    return tuple(sorted(json.dumps(row, sort_keys=True) for row in rows))


@dataclass(frozen=True)
class Batch:
    """The rows that one batch wrote to the sink. Their order does not matter."""

    batch: int
    rows: tuple[str, ...]


def after_planned(batches: Sequence[Batch]) -> list[Batch]:
    """Return the batches after the planned batch of ttlsnap, with the numbers that they would have without it."""
    planned, *rest = batches
    assert planned.rows == (), planned
    return [replace(batch, batch=batch.batch - 1) for batch in rest]


@dataclass(frozen=True, order=True)
class Entry:
    """One entry of the state, with key and value as sorted JSON. Its partition is not compared."""

    operator: int
    store: str
    key: str
    value: str
    partition: int = field(default=-1, compare=False)

    def at(self, path: str) -> Any:
        """Return a field by its user-facing name: ``value.max``, ``key.window.end``."""
        side, *names = path.split(".")
        found: Any = json.loads(self.key if side == "key" else self.value)
        for name in names:
            found = found[name]
        return found


def entry(operator: int, store: str, key: Fields, value: Fields, partition: int = -1) -> Entry:
    """Return an entry with these fields."""
    (key_text,), (value_text,) = canonical([key]), canonical([value])
    return Entry(operator, store, key_text, value_text, partition)


def expired(path: str, limit: int, per_second: int = 1) -> Callable[[Entry], bool]:
    """Return a predicate for entries whose field is at or before ``limit`` (epoch seconds). A null never is.

    ``per_second`` is the unit of a numeric field, in units per second.
    """

    def is_expired(found: Entry) -> bool:
        moment = found.at(path)
        if moment is None:
            return False
        return bool(moment <= (stamp(limit) if isinstance(moment, str) else limit * per_second))

    return is_expired
