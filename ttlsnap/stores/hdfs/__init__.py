"""The HDFS-backed state store: deltas and snapshots of compressed records. See ``docs/hdfs-state-store.md``."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ttlsnap.checkpoint import layout
from ttlsnap.stores.codec_names import codec_name

if TYPE_CHECKING:
    from ttlsnap.checkpoint import Checkpoint
    from ttlsnap.errors import TtlsnapError
    from ttlsnap.filesystem import Directory
    from ttlsnap.stores import Look, StoredPartition
    from ttlsnap.stores.lineage import Lineage


@dataclass(frozen=True)
class HdfsStore:
    """How the files are written: the compression codec, and whether rows carry checksums."""

    effort: ClassVar[int] = 1

    codec: str
    row_checksums: bool

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> HdfsStore:
        """With the settings that the checkpoint pins; raises UnsupportedError for an unknown codec."""
        where = f"{checkpoint.target}/{layout.offset_file(checkpoint.batch.id)}"
        return cls(codec_name(checkpoint.codec, where), checkpoint.row_checksums)

    def find(self, files: Directory, directory: str, version: int, unique_id: str | None = None) -> Lineage:
        """See ``StateStore.find``."""
        from ttlsnap.stores.hdfs.files import find_lineage

        return find_lineage(files, directory, version)

    @contextlib.contextmanager
    def open(
        self, files: Directory, lineage: Lineage, scratch: str | None, *, again: bool = False
    ) -> Iterator[StoredPartition]:
        """See ``StateStore.open``; no scratch is needed."""
        from ttlsnap.stores.hdfs.partition import HdfsPartition

        yield HdfsPartition(self, files, lineage, again)

    def damaged(
        self, files: Directory, lineage: Lineage, wanted: Collection[str], look: Look, scratch: str | None
    ) -> Iterator[tuple[str, TtlsnapError]]:
        """See ``StateStore.damaged``; every record is looked at."""
        from ttlsnap.stores.hdfs.partition import damaged_files

        return damaged_files(self, files, lineage, wanted, look)
