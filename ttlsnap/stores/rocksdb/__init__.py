"""The RocksDB state store: zips that share SST files, and changelogs. See ``docs/rocksdb-state-store.md``."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ttlsnap.checkpoint import layout
from ttlsnap.errors import TtlsnapError, UnsupportedError
from ttlsnap.stores.codec_names import codec_name

if TYPE_CHECKING:
    from ttlsnap.checkpoint import Checkpoint
    from ttlsnap.filesystem import Directory
    from ttlsnap.stores import Look, StoredPartition
    from ttlsnap.stores.lineage import Lineage

_CONF = "spark.sql.streaming.stateStore."
_DELIMITERS = {"1": b",", "2": b""}
_FORMAT_VERSIONS = ("3", "4", "5", "6")


@dataclass(frozen=True)
class RocksDbStore:
    """How the files are written, as far as the checkpoint pins it.

    ``codec`` is that of the changelogs. ``delimiter`` stands between values that were merged into one.
    ``format_version`` is that of the tables in new SST files, where no older snapshot sets an example.
    """

    effort: ClassVar[int] = 4

    codec: str
    row_checksums: bool
    delimiter: bytes
    format_version: int
    before_4_2: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> RocksDbStore:
        """With the settings that the checkpoint pins; raises UnsupportedError for one that is unknown."""
        conf, where = checkpoint.batch.conf, f"{checkpoint.target}/{layout.offset_file(checkpoint.batch.id)}"
        # Before Spark 4.2 the delimiter was always a comma.
        merge_operator = conf.get(f"{_CONF}rocksdb.mergeOperatorVersion", "1")
        before_4_2 = f"{_CONF}rocksdb.mergeOperatorVersion" not in conf
        format_version = conf.get(f"{_CONF}rocksdb.formatVersion", "5")
        if merge_operator not in _DELIMITERS:
            raise UnsupportedError(f"{where}: merge operator version {merge_operator!r} is unknown (known: 1, 2)")
        if format_version not in _FORMAT_VERSIONS:
            known = ", ".join(_FORMAT_VERSIONS)
            raise UnsupportedError(f"{where}: RocksDB format version {format_version!r} is unknown (known: {known})")
        return cls(
            codec=codec_name(checkpoint.codec, where),
            row_checksums=checkpoint.row_checksums,
            delimiter=_DELIMITERS[merge_operator],
            format_version=int(format_version),
            before_4_2=before_4_2,
        )

    def find(self, files: Directory, directory: str, version: int, unique_id: str | None = None) -> Lineage:
        """See ``StateStore.find``."""
        from ttlsnap.stores.rocksdb.files import find_lineage

        return find_lineage(files, directory, version, unique_id, self.codec, self.before_4_2)

    @contextlib.contextmanager
    def open(
        self, files: Directory, lineage: Lineage, scratch: str | None, *, again: bool = False
    ) -> Iterator[StoredPartition]:
        """See ``StateStore.open``; without ``scratch`` the work is done in the temporary folder."""
        from ttlsnap.stores.rocksdb.partition import opened

        with opened(self, files, lineage, scratch, again) as partition:
            yield partition

    def damaged(
        self, files: Directory, lineage: Lineage, wanted: Collection[str], look: Look, scratch: str | None
    ) -> Iterator[tuple[str, TtlsnapError]]:
        """See ``StateStore.damaged``; changelogs are parsed, tables read block by block, and no entry is shown."""
        from ttlsnap.stores.rocksdb.verify import damaged_files

        return damaged_files(self, files, lineage, wanted, scratch)
