"""A partition of a store, as every command that reads or rewrites it gets it.

``inspect`` imports this module, and no array code, which takes half a second to load.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttlsnap.checkpoint import layout

if TYPE_CHECKING:
    from ttlsnap.entries.descriptor import StateDescriptor
    from ttlsnap.storage.directory import Directory
    from ttlsnap.stores.lineage import Lineage
    from ttlsnap.stores.protocols import EntryBatch, StateStore, StoredPartition


@dataclass(frozen=True)
class StorePartition:
    """A partition of the store ``name`` at one version, as plain data that can be sent to another process or machine.

    ``lineage`` has its files. ``states`` are those that the work is about, and ``others`` those that it only keeps.
    """

    root: str
    operator: int
    name: str
    partition: int
    state_store: StateStore
    lineage: Lineage
    states: tuple[StateDescriptor, ...] = ()
    others: tuple[StateDescriptor, ...] = ()

    @property
    def size(self) -> int:
        """The size of the files, in bytes."""
        return self.lineage.size

    @property
    def directory(self) -> str:
        """The folder, with the checkpoint."""
        return f"{self.root}/{layout.store_directory(self.operator, self.partition, self.name)}"

    @property
    def where(self) -> str:
        """The folder and the version, for messages."""
        return f"{self.directory}, version {self.lineage.version}"

    def open(
        self, files: Directory, scratch: str | None, *, keep_in_memory: bool = False
    ) -> AbstractContextManager[StoredPartition]:
        """Open it in the checkpoint's ``files``; see ``StateStore.open``."""
        return self.state_store.open(files, self.lineage, scratch, keep_in_memory=keep_in_memory)

    def locate(self) -> AbstractContextManager[None]:
        """Add the partition to errors about its rows in this block; see ``locate_errors``."""
        from ttlsnap.stores.scan import locate_errors

        return locate_errors(self.where)

    def scan(
        self,
        files: Directory,
        states: Mapping[str, StateDescriptor],
        *,
        only: str | None = None,
        scratch: str | None = None,
    ) -> Generator[tuple[EntryBatch, StateDescriptor | None], None, None]:
        """Yield the entries; see ``scan_partition``. Errors name the partition."""
        from ttlsnap.stores.scan import scan_partition

        with (
            self.locate(),
            self.open(files, scratch) as stored_partition,
            contextlib.closing(scan_partition(stored_partition, states, only=only)) as batches,
        ):
            yield from batches
