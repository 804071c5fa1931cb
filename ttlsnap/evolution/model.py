"""The plan of a schema evolution: the steps for people, and the change of each state for the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ttlsnap.entries.place import Place
from ttlsnap.evolution.changes import StructChange
from ttlsnap.schema.types import StructType


@dataclass(frozen=True)
class Step:
    """One change of the plan, such as ``add``, at ``place``. ``old`` and ``new`` are the two sides as text."""

    change: str
    place: Place
    old: str | None
    new: str | None

    def to_json(self) -> dict[str, Any]:
        return {"change": self.change, **self.place.to_json(), "old": self.old, "new": self.new}

    def __str__(self) -> str:
        sides = [side for side in (self.old, self.new) if side is not None]
        return f"{self.change} {self.place}: {' -> '.join(sides)}"


@dataclass(frozen=True)
class StateEvolution:
    """The change of a state. ``key`` and ``value`` are None if those bytes stay as they are.

    ``new_key`` and ``new_value`` are the new schemas. ``new_name`` is the name of the state afterwards.
    """

    operator: int
    store: str
    state: str
    new_name: str
    key: StructChange | None
    value: StructChange | None
    new_key: StructType
    new_value: StructType

    def __str__(self) -> str:
        return f"{self.operator}.{self.store}.{self.state}"

    @property
    def changes_bytes(self) -> bool:
        """Whether the state's files change, and not only its schema."""
        return (self.key, self.value) != (None, None) or self.new_name != self.state


@dataclass(frozen=True)
class Evolution:
    """The evolution of all states, and its steps. ``notes`` say what could not be compared.

    ``prefixes`` has the number of prefix columns of keys, by operator and store, where it changes.
    """

    states: tuple[StateEvolution, ...] = ()
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    prefixes: Mapping[tuple[int, str], int] = field(default_factory=dict)

    def renamed(self, operator: int) -> dict[str, str]:
        """Return the new names of an operator's states by their old ones, for those that have another name."""
        return {s.state: s.new_name for s in self.states if s.operator == operator and s.new_name != s.state}


NO_EVOLUTION = Evolution()
