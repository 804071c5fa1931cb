"""The plan of a schema evolution: the steps for people, and the change of each state for the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ttlsnap.checkpoint import Store
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.documents import Document, in_json
from ttlsnap.entries.place import Place
from ttlsnap.migration.expiry import ExpiryChange
from ttlsnap.migration.struct_changes import StructChange
from ttlsnap.schema.types import StructType
from ttlsnap.stores.families import FamilyChanges
from ttlsnap.transform.converters import ConvertsValues

HASHES = ("the hash of Spark 4.2", "the hash of Spark 4.3")
"""The two sides of a step ``rehash``, of calendar intervals; in the other order back from 4.3."""

FLOATS = ("-0.0 and NaNs as they came", "0.0 and one NaN")
"""What a step ``normalize`` changes."""


@dataclass(frozen=True)
class Step(Document):
    """One change of the plan, such as ``add``, at ``place``. ``old`` and ``new`` are the two sides as text."""

    change: str
    place: Place = field(metadata=in_json(inline=True))
    old: str | None
    new: str | None

    @property
    def can_drop(self) -> bool:
        """Whether this step can drop values."""
        return self.change in ("drop", "drop-state", "drop-unused", "switch-ttl", "change-ttl")

    def __str__(self) -> str:
        sides = [side for side in (self.old, self.new) if side is not None]
        return f"{self.change} {self.place}: {' -> '.join(sides)}"


@dataclass(frozen=True)
class StateEvolution:
    """The change of a state. ``key`` and ``value`` are None if those bytes stay as they are.

    ``new_key`` and ``new_value`` are the new schemas. ``new_name`` is the name of the state afterwards. ``expiry`` is
    the change of the expiry times of a variable of transformWithState; ``value`` is then that of the user's own part.
    The states ``derived`` from it, by their old names, are then not read, and those ``made``, by their new names, are
    written from the new entries. With ``merges``, entries may have the same key afterwards, and become one.
    If there is a ``converter``, it gives the new values. ``new_store`` is the store that it moves to, if it is another
    one. With ``timed``, the rows of a join get the keys of format 4, which have the row's time in place of its number.
    If ``hashes_days`` is not None, the keys move to the partitions that this hash of calendar intervals gives.
    """

    operator: int
    store: str
    state: str
    new_name: str
    key: StructChange | None
    value: StructChange | None
    new_key: StructType
    new_value: StructType
    expiry: ExpiryChange | None = None
    derived: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    merges: bool = False
    converter: ConvertsValues | None = None
    new_store: str | None = None
    timed: bool = False
    hashes_days: bool | None = None

    def __str__(self) -> str:
        return f"{self.operator}.{self.store}.{self.state}"

    @property
    def changes_bytes(self) -> bool:
        """Whether the state's files change, and not only its schema."""
        changes = (self.key, self.value, self.expiry, self.converter, self.new_store)
        return any(change is not None for change in changes) or self.new_name != self.state

    @property
    def moves(self) -> bool:
        """Whether entries may move to other partitions, or others may come."""
        return self.key is not None or self.expiry is not None or self.new_store is not None


@dataclass(frozen=True)
class NewStore:
    """The one store that all states of an operator move to. Those that are ``internal`` are derived from others."""

    store: Store
    internal: frozenset[str]

    @property
    def families(self) -> FamilyChanges:
        """How the column families change."""
        return FamilyChanges(all_new=tuple(family.name for family in self.store.families), internal=self.internal)


@dataclass(frozen=True)
class Evolution:
    """The evolution of all states, and its steps. ``notes`` say what could not be compared.

    ``prefixes`` has the number of prefix columns of keys, by operator and store, where it changes. ``added`` and
    ``removed`` are states of transformWithState that come and go, by operator and store; those that go may have no
    entries, unless they are derived from others or unused. ``modes`` has its new time mode
    and output mode, by operator. ``new_stores`` are those of operators whose states all move, by operator.
    """

    states: tuple[StateEvolution, ...] = ()
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    prefixes: Mapping[tuple[int, str], int] = field(default_factory=dict)
    added: Mapping[tuple[int, str], tuple[ColumnFamilySchema, ...]] = field(default_factory=dict)
    removed: Mapping[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    modes: Mapping[int, tuple[str | None, str | None]] = field(default_factory=dict)
    new_stores: Mapping[int, NewStore] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """Whether something changes."""
        return bool(self.states or self.added or self.removed or self.modes)

    def renamed(self, operator: int) -> dict[str, str]:
        """Return the new names of an operator's states by their old ones, for those that have another name."""
        return {
            state.state: state.new_name
            for state in self.states
            if state.operator == operator and state.new_name != state.state
        }

    def switched(self, operator: int) -> dict[str, bool]:
        """Return whether an operator's variables have a TTL, by their old names, for those where it changes."""
        evolutions = (state for state in self.states if state.operator == operator and state.expiry is not None)
        return {
            state.state: state.expiry.has
            for state in evolutions
            if state.expiry is not None and state.expiry.had != state.expiry.has
        }

    def families(self, operator: int, store: str) -> FamilyChanges:
        """Return how the column families of a store change."""
        if operator in self.new_stores:
            return self.new_stores[operator].families
        place = (operator, store)
        # Only families with entries need an id. Spark gives one to the others if it uses them.
        made_names = (name for state in self.states if (state.operator, state.store) == place for name in state.made)
        return FamilyChanges(self.renamed(operator), frozenset(self.removed.get(place, ())), tuple(sorted(made_names)))


NO_EVOLUTION = Evolution()
