"""The files of a version in the HDFS-backed state store.

    <version>.delta       the keys that one batch put and deleted
    <version>.snapshot    the whole state after that batch

Version V consists of the newest snapshot not after V, and of every delta after it up to V, in order. A snapshot at V
itself is enough, and Spark prefers it to a delta of that version. A rewritten state is published this way.

``HdfsFormat`` has the settings of a checkpoint that decide the bytes in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.storage.directory import Directory, FileInfo
from ttlsnap.stores.codec_names import codec_name
from ttlsnap.stores.lineage import Lineage, StateFile, base_of


def find_lineage(files: Directory, directory: str, version: int) -> Lineage:
    """Return the files of ``version`` in a partition's folder; stray files are ignored.

    Raises CorruptionError if a file that the version needs is missing.
    """
    snapshots: dict[int, FileInfo] = {}
    deltas: dict[int, FileInfo] = {}
    for info in files.list(directory, (".delta", ".snapshot")):
        file_name = layout.parse_state_file(info.name)
        # Only RocksDB has names with ids: this provider refuses checkpoint format 2.
        if file_name is None or file_name.unique_id is not None or info.is_dir:
            continue
        (snapshots if file_name.kind == "snapshot" else deltas)[file_name.version] = info

    def fact(version: int, info: FileInfo) -> StateFile:
        return StateFile(f"{directory}/{info.name}", version, info.size, info.mtime_ns)

    # A batch writes a delta even if it changes nothing, so a gap is damage. Spark fails on it, too
    # (HDFSBackedStateStoreProvider.updateFromDeltaFile).
    base_version = base_of(f"{files.root}/{directory}", version, snapshots, deltas, ("snapshot", "delta"))
    # When a later batch runs again, Spark replaces its delta, but not a snapshot of it. Spark would then load that
    # snapshot. So publishing must know these files.
    newer_files = [
        (number, file_info) for infos in (snapshots, deltas) for number, file_info in infos.items() if number > version
    ]
    return Lineage(
        version=version,
        snapshot=fact(base_version, snapshots[base_version]) if base_version else None,
        deltas=tuple(fact(number, deltas[number]) for number in range(base_version + 1, version + 1)),
        new_snapshot=f"{directory}/{version}.snapshot",
        newer=tuple(
            fact(number, file_info)
            for number, file_info in sorted(newer_files, key=lambda pair: (pair[0], pair[1].name))
        ),
    )


@dataclass(frozen=True)
class HdfsFormat:
    """The compression codec, and the setting for row checksums."""

    codec: str
    row_checksums: bool

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """Return the settings that the checkpoint pins; raises UnsupportedError for an unknown codec."""
        where = f"{checkpoint.target}/{layout.offset_file(checkpoint.batch.id)}"
        return cls(codec_name(checkpoint.codec, where), checkpoint.row_checksums)
