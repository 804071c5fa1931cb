"""The RocksDB state store: zips that share SST files, and changelogs. See ``docs/rocksdb-state-store.md``."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ttlsnap.errors import TtlsnapError
from ttlsnap.stores.families import NO_FAMILY_CHANGES, FamilyChanges
from ttlsnap.stores.rocksdb.format import RocksDbFormat

if TYPE_CHECKING:
    from ttlsnap.entries.descriptor import StateDescriptor
    from ttlsnap.storage.directory import Directory
    from ttlsnap.stores.lineage import Lineage, StateFile
    from ttlsnap.stores.protocols import Look, PartitionBuilder, Staging, StoredPartition
    from ttlsnap.unsaferow.gather import Int64s
    from ttlsnap.unsaferow.rows import Rows


@dataclass(frozen=True)
class RocksDbStore(RocksDbFormat):
    """See ``StateStore``."""

    provider: ClassVar[str] = "rocksdb"
    relative_cost: ClassVar[int] = 4

    def snapshot_name(self, version: int, unique_id: str | None) -> str:
        """See ``StateStore.snapshot_name``."""
        return f"{version}.zip" if unique_id is None else f"{version}_{unique_id}.zip"

    def encode(
        self,
        state: StateDescriptor,
        keys: Rows,
        values: Rows,
        *,
        family: int | None = None,
        owner: Int64s | None = None,
    ) -> tuple[Rows, Rows]:
        """See ``StateStore.encode``."""
        from ttlsnap.stores.rocksdb.encoding import write_keys, write_lists, write_values

        if owner is not None:
            keys = keys.take(np.unique(owner, return_index=True)[1])
        stored_keys = write_keys(keys, state, family)
        if owner is not None:
            return stored_keys, write_lists(
                stored_keys, values, owner, state, self.delimiter, checksums=self.row_checksums
            )
        return stored_keys, write_values(stored_keys, values, state, checksums=self.row_checksums)

    def decode(self, state: StateDescriptor, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        """See ``StateStore.decode``."""
        from ttlsnap.stores.rocksdb.encoding import CHECKSUM_SIZE, read_keys, read_values, verify_values

        if self.row_checksums:
            verify_values(keys, values, None, str(state))
        checksum_size = CHECKSUM_SIZE if self.row_checksums else 0
        return read_keys(keys, 0, state, str(state)), read_values(values, checksum_size, keys, state, str(state))

    def find(self, files: Directory, directory: str, version: int, unique_id: str | None = None) -> Lineage:
        """See ``StateStore.find``."""
        from ttlsnap.stores.rocksdb.files import find_lineage

        return find_lineage(files, directory, version, unique_id, self.codec, self.written_before_4_2)

    @contextlib.contextmanager
    def open(
        self, files: Directory, lineage: Lineage, scratch: str | None, *, keep_in_memory: bool = False
    ) -> Iterator[StoredPartition]:
        """See ``StateStore.open``; without ``scratch``, the work is done in the temporary folder."""

        from ttlsnap.stores.rocksdb.open import open_partition

        with open_partition(self, files, lineage, scratch, keep_in_memory) as partition:
            yield partition

    @contextlib.contextmanager
    def build(
        self,
        files: Directory,
        like: Lineage,
        target: str,
        staging: Staging | None,
        scratch: str | None,
        changes: FamilyChanges = NO_FAMILY_CHANGES,
    ) -> Iterator[PartitionBuilder]:
        """See ``StateStore.build``."""
        from ttlsnap.stores.rocksdb.build import build_partition

        with build_partition(self, files, like, target, staging, scratch, changes) as builder:
            yield builder

    def writes(
        self, files: Directory, lineage: Lineage, states: Mapping[str, StateDescriptor]
    ) -> Iterator[tuple[StateFile, Iterator[tuple[str, Rows]]]]:
        """See ``StateStore.writes``; without changelogs there are none."""
        from ttlsnap.stores.rocksdb.history import writes

        return writes(self, files, lineage, states)

    def find_damaged(
        self, files: Directory, lineage: Lineage, paths: Collection[str], look: Look, scratch: str | None
    ) -> Iterator[tuple[str, TtlsnapError]]:
        """See ``StateStore.find_damaged``.

        Changelogs are parsed, tables are read block by block, and ``look`` is not called.
        """
        from ttlsnap.stores.rocksdb.verify import find_damaged_files

        return find_damaged_files(self, files, lineage, paths, scratch)
