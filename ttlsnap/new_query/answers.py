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
# What decides more. With check --direction forward, the query that wrote the state is that of NEW.
OLD_NEEDS_QUERY = (
    "Describe the query that wrote the state, too. Check out its code, and run: ttlsnap contract CHECKPOINT --with "
    "MODULE:FUNCTION --schema FILE --output old.json. If the function does not set the output mode, add --output-mode. "
    "For a script, run: ttlsnap contract CHECKPOINT --script FILE --output old.json. "
    "Give that file to check in place of the checkpoint, and to migrate with --from"
)
NEW_NEEDS_QUERY = (
    "Describe the query that is to read the state: ttlsnap contract MODULE:FUNCTION --schema FILE (or --script FILE)"
)
SAME_VERSIONS = "Create both contracts with this ttlsnap and the same version of Spark"


@dataclass(frozen=True)
class UnrepairedFinding:
    """A difference for which there is no step, and what can be done.

    ``option`` is the one that removes it, if nothing else has to be decided. ``needs`` is a sentence that says what
    would decide it: a contract that records more, or the user's choice between options. ``renames_key``
    says what to tell ``check`` if a column of a key only has another name. Without all three, nothing removes it.
    ``old`` is the expression of the old query that it is about, if it is about one.
    """

    place: Place
    message: str
    option: str = ""
    needs: str = ""
    old: str = ""
    renames_key: str = ""

    @property
    def advice(self) -> str:
        """A sentence that says what would remove it, empty if nothing does."""
        return self.needs or (f"Give migrate {self.option}" if self.option else "")

    @property
    def stays(self) -> bool:
        """Whether nothing removes it."""
        return not self.option and not self.needs and not self.renames_key
