"""Keeps everything: scans and verifies every entry, and changes none."""

from __future__ import annotations

from dataclasses import dataclass

from ttlsnap.clock import Clock
from ttlsnap.entries import StateEntries
from ttlsnap.errors import UsageError
from ttlsnap.state import StateDescriptor
from ttlsnap.transform import StateSnapshotTransformer


@dataclass(frozen=True)
class KeepTransformerFactory:
    """For a dry run that reads all there is, or a copy with ``--output``."""

    @classmethod
    def from_options(cls, options: dict[str, str]) -> KeepTransformerFactory:
        """There are no options."""
        if options:
            raise UsageError(f"the keep transformer has no option {sorted(options)[0]!r}")
        return cls()

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        """A transformer for any state."""
        return _Keep()


class _Keep:
    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        return entries
