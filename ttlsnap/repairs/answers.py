"""What a user says about differences that two contracts leave open, and what stays open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ttlsnap.entries.place import Place


@dataclass(frozen=True)
class Answers:
    """What the user says about differences that the two contracts leave open.

    ``renamed`` has new names of columns by their old ones. The other answers name a field as a plan does, with its
    state (``0.default.visits.value.count``) or without (``value.count``). ``swaps`` are fields that changed places.
    ``births`` are fields with the time from which a new TTL counts for existing values, or ``now`` for this moment.
    ``fills`` has the literal for a new field. ``drops`` are old fields that go, although a new one resembles them. With
    ``narrow``, a type may change to one that does not have every old value.
    """

    renamed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    swaps: tuple[tuple[str, str], ...] = ()
    fills: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    drops: frozenset[str] = frozenset()
    births: tuple[str, ...] = ()
    narrow: bool = False


NO_ANSWERS = Answers()
NOW = "now"


@dataclass(frozen=True)
class Obstacle:
    """A difference for which there is no step, and what can be done.

    ``option`` is the one that removes it, if nothing else has to be decided.
    """

    place: Place
    message: str
    option: str = ""
