"""The keys that each retained delta put, newest first."""

from __future__ import annotations

from collections.abc import Iterator

from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.hdfs.entries import read_file
from ttlsnap.stores.hdfs.files import HdfsFormat
from ttlsnap.stores.hdfs.records import DELETED
from ttlsnap.stores.lineage import Lineage, StateFile
from ttlsnap.unsaferow.rows import Rows


def writes(
    hdfs_format: HdfsFormat, files: Directory, lineage: Lineage
) -> Iterator[tuple[StateFile, Iterator[tuple[str, Rows]]]]:
    """See ``StateStore.writes``."""
    folder = lineage.new_snapshot.rpartition("/")[0]
    info_of_name = {info.name: info for info in files.list(folder, (".delta",))}
    version = lineage.version
    # Spark's maintenance removes the oldest deltas. A missing one may have put any key, so older ones prove nothing.
    while (info := info_of_name.get(f"{version}.delta")) is not None:
        file = StateFile(f"{folder}/{info.name}", version, info.size, info.mtime_ns)
        yield file, _puts(hdfs_format, files, file)
        version -= 1


def _puts(hdfs_format: HdfsFormat, files: Directory, file: StateFile) -> Iterator[tuple[str, Rows]]:
    for batch in read_file(files, file, hdfs_format):
        yield DEFAULT_FAMILY, batch.keys.take(batch.records.value_size != DELETED)
