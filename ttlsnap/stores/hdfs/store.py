"""The HDFS-backed state store: deltas and snapshots of compressed records. See ``docs/hdfs-state-store.md``."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ttlsnap.stores.families import NO_FAMILY_CHANGES, FamilyChanges
from ttlsnap.stores.hdfs.files import HdfsFormat

if TYPE_CHECKING:
    from ttlsnap.entries.descriptor import StateDescriptor
    from ttlsnap.errors import TtlsnapError
    from ttlsnap.storage.directory import Directory
    from ttlsnap.stores.lineage import Lineage, StateFile
    from ttlsnap.stores.protocols import Look, PartitionBuilder, Staging, StoredPartition
    from ttlsnap.unsaferow.gather import Int64s
    from ttlsnap.unsaferow.rows import Rows


@dataclass(frozen=True)
class HdfsStore(HdfsFormat):
    """See ``StateStore``."""

    provider: ClassVar[str] = "hdfs"
    relative_cost: ClassVar[int] = 1

    def snapshot_name(self, version: int, unique_id: str | None) -> str:
        """See ``StateStore.snapshot_name``; there are no ids."""
        assert unique_id is None
        return f"{version}.snapshot"

    def encode(
        self,
        state: StateDescriptor,
        keys: Rows,
        values: Rows,
        *,
        family: int | None = None,
        owner: Int64s | None = None,
    ) -> tuple[Rows, Rows]:
        """See ``StateStore.encode``; there are neither column families nor lists."""
        assert family is None and owner is None
        from ttlsnap.stores.row_checksums import with_row_checksums

        return keys, with_row_checksums(keys, values) if self.row_checksums else values

    def decode(self, state: StateDescriptor, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        """See ``StateStore.decode``."""
        from ttlsnap.stores.row_checksums import without_row_checksums

        return keys, without_row_checksums(keys, values, str(state)) if self.row_checksums else values

    def find(self, files: Directory, directory: str, version: int, unique_id: str | None = None) -> Lineage:
        """See ``StateStore.find``."""
        from ttlsnap.stores.hdfs.files import find_lineage

        return find_lineage(files, directory, version)

    @contextlib.contextmanager
    def open(
        self, files: Directory, lineage: Lineage, scratch: str | None, *, keep_in_memory: bool = False
    ) -> Iterator[StoredPartition]:
        """See ``StateStore.open``; ``scratch`` is not used."""
        from ttlsnap.stores.hdfs.partition import HdfsPartition

        yield HdfsPartition(self, files, lineage, keep_in_memory)

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
        """See ``StateStore.build``; all partitions have the same settings, and nothing but the target is used."""
        from ttlsnap.stores.hdfs.partition import HdfsWriter

        with HdfsWriter(self, target, staging) as writer:
            yield writer

    def writes(
        self, files: Directory, lineage: Lineage, states: Mapping[str, StateDescriptor]
    ) -> Iterator[tuple[StateFile, Iterator[tuple[str, Rows]]]]:
        """See ``StateStore.writes``."""
        from ttlsnap.stores.hdfs.history import writes

        return writes(self, files, lineage)

    def find_damaged(
        self, files: Directory, lineage: Lineage, paths: Collection[str], look: Look, scratch: str | None
    ) -> Iterator[tuple[str, TtlsnapError]]:
        """See ``StateStore.find_damaged``; every record is read, and ``look`` gets every put."""
        from ttlsnap.stores.hdfs.partition import find_damaged_files

        return find_damaged_files(self, files, lineage, paths, look)
