"""The transformer that keeps everything: the run scans and verifies every entry, and changes none."""

from __future__ import annotations

from dataclasses import dataclass

from ttlsnap.clock import Clock
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UsageError
from ttlsnap.transform.protocols import StateSnapshotTransformer


@dataclass(frozen=True)
class KeepTransformerFactory:
    """Keep every entry: for a dry run that reads everything, or a copy with ``--output``."""

    @classmethod
    def from_options(cls, options: dict[str, str]) -> KeepTransformerFactory:
        """No options."""
        if options:
            raise UsageError(f"the keep transformer has no options; remove {sorted(options)[0]!r}")
        return cls()

    def describe(self) -> str:
        """Return the rule: it keeps every entry."""
        return "keep"

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        """Return a transformer for any state."""
        return _Keep()


class _Keep:
    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        return entries
