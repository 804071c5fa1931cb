"""The column families of a store whose state gets other ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY


@dataclass(frozen=True)
class FamilyChanges:
    """Column families that get another name (by the old ones), that go, and that come.

    If there are ``all_new`` ones, no old one stays. Those that are ``internal`` are not counted as the user's entries.
    """

    renamed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    removed: frozenset[str] = frozenset()
    added: tuple[str, ...] = ()
    all_new: tuple[str, ...] = ()
    internal: frozenset[str] = frozenset()

    def names(self, families: Mapping[str, int]) -> dict[str, str]:
        """Return the new names of families by the old ones, for those that stay."""
        if self.all_new:
            return {}
        return {name: self.renamed.get(name, name) for name in families if name not in self.removed}

    def ids(self, families: Mapping[str, int]) -> dict[str, int]:
        """Return the ids of the families afterwards by their names, from those before; {} if keys carry no ids.

        A family that comes gets the next id after all others.
        """
        if self.all_new:
            # As in the zips of Spark 4.2: the default family has the id 1, and the others follow.
            return {name: number for number, name in enumerate((DEFAULT_FAMILY, *self.all_new), 1)}
        id_of_name = {name: families[old_name] for old_name, name in self.names(families).items()}
        # Spark, too, gives a new family the id after the highest one.
        new_names = (name for name in self.added if name not in id_of_name) if families else ()
        return id_of_name | {
            name: number for number, name in enumerate(new_names, max(families.values(), default=0) + 1)
        }


NO_FAMILY_CHANGES = FamilyChanges()
