"""The files of a version in the RocksDB state store.

    <version>[_<id>].zip          the whole state after a batch, its SST files apart
    <version>[_<id>].changelog    the keys that one batch put, deleted and merged

Version V consists of the newest zip not after V, and of every changelog after it up to V, in order. A zip at V itself
is enough, and Spark prefers it. A rewritten state is published this way.

With ids (checkpoint format 2), the commit log names the id of V. A changelog names the ids before it, back to a zip. A
file with any other id was left by a failed task.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from ttlsnap.checkpoint import layout
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.storage.directory import Directory, FileInfo
from ttlsnap.stores.lineage import Lineage, StateFile, base_of
from ttlsnap.stores.rocksdb.archive import SnapshotMetadata, read_metadata

Name = tuple[int, str | None]
"""A version, and its id if it has one."""


SPARK_4_0 = "4.0"
"""The only Spark that writes zips with metadata v2: if the first query of its JVM had ids. It then reads no others."""


def find_lineage(
    files: Directory, directory: str, version: int, unique_id: str | None, codec: str, written_before_4_2: bool
) -> Lineage:
    """Return the files of ``version`` in a partition's folder; stray files are ignored.

    ``codec`` is the codec of the changelogs; ``written_before_4_2`` says that Spark 4.2 did not write them.

    Raises CorruptionError if a file that the version needs is missing or has an unexpected size. Raises
    UnsupportedError if it is unknown which version of Spark could read a new snapshot.
    """
    zips: dict[Name, FileInfo] = {}
    changelogs: dict[Name, FileInfo] = {}
    newer_files: list[StateFile] = []
    for info in files.list(directory, (".zip", ".changelog")):
        file_name = layout.parse_state_file(info.name)
        if file_name is None or info.is_dir:
            continue
        (zips if file_name.kind == "zip" else changelogs)[file_name.version, file_name.unique_id] = info
        if file_name.version > version:
            newer_files.append(_fact(directory, file_name.version, info))

    def path_of(name: Name, kind: str) -> str:
        number, identity = name
        return f"{directory}/{number}{f'_{identity}' if identity else ''}.{kind}"

    names: list[Name]
    if unique_id is None:
        first_version = base_of(
            f"{files.root}/{directory}",
            version,
            {number for number, identity in zips if identity is None},
            {number for number, identity in changelogs if identity is None},
            ("zip", "changelog"),
        )
        names = [(number, None) for number in range(first_version or 1, version + 1)]
    else:
        names = _with_ids(files, path_of, (version, unique_id), zips, changelogs, codec)
    base_name = names[0] if names and names[0] in zips else None
    metadata = read_metadata(files, path_of(base_name, "zip")) if base_name else None
    last_path = path_of(names[-1], "zip" if names[-1] == base_name else "changelog") if names else None
    return Lineage(
        version=version,
        snapshot=_fact(directory, base_name[0], zips[base_name]) if base_name else None,
        deltas=tuple(_fact(directory, name[0], changelogs[name]) for name in (names[1:] if base_name else names)),
        newer=tuple(sorted(newer_files, key=lambda file: (file.version, file.path))),
        new_snapshot=path_of((version, unique_id), "zip"),
        shared=_find_shared_files(files, path_of(base_name, "zip"), base_name[0], metadata)
        if base_name and metadata
        else (),
        entries=metadata.entries if metadata and len(names) == 1 else None,
        counted=metadata is None or metadata.entries is not None,
        only_for=_only_for(files, metadata, last_path, unique_id is not None)
        if last_path and written_before_4_2
        else None,
        families=frozenset(metadata.families) if metadata else frozenset(),
    )


def _only_for(files: Directory, metadata: SnapshotMetadata | None, last_path: str, has_ids: bool) -> str | None:
    """Return the version of Spark that alone can read a new zip, or None; ``last_path`` is the newest file."""
    _, sidecar = layout.checksum_files(last_path)
    if files.stat(sidecar) is not None:
        return None  # Spark 4.1 is the first version that writes its own checksum files
    if metadata is None and has_ids:
        raise UnsupportedError(
            f"{files.root}/{last_path}: this checkpoint (format 2) has no zip yet. Spark 4.0 and later versions read "
            "different zips, so ttlsnap cannot know which one to write. Run the query until its maintenance has "
            "written a zip, and try again"
        )
    return SPARK_4_0 if metadata and metadata.version == "v2" else None


def _fact(directory: str, version: int, info: FileInfo) -> StateFile:
    return StateFile(f"{directory}/{info.name}", version, info.size, info.mtime_ns)


def _with_ids(
    files: Directory,
    path_of: Callable[[Name, str], str],
    name: Name,
    zips: dict[Name, FileInfo],
    changelogs: dict[Name, FileInfo],
    codec: str,
) -> list[Name]:
    if name in zips:
        return [name]
    if name not in changelogs:
        raise CorruptionError(
            f"{files.root}/{path_of(name, 'zip')} and its changelog are missing; the commit log names them"
        )
    from ttlsnap.stores.rocksdb.changelog import read_lineage

    all_names: list[Name] = [*read_lineage(files, path_of(name, "changelog"), codec), name]
    base_place = max((place for place, chain_name in enumerate(all_names) if chain_name in zips), default=None)
    # A store without column families may have no zip for a long time. Its lineage then begins with version 1.
    if base_place is None and all_names[0][0] != 1:
        raise CorruptionError(
            f"{files.root}/{path_of(all_names[0], 'zip')} is missing: {path_of(name, 'changelog')} is based on it"
        )
    needed_names = all_names[base_place or 0 :]
    if any(next_name[0] != previous_name[0] + 1 for previous_name, next_name in pairwise(needed_names)):
        raise CorruptionError(f"{files.root}/{path_of(name, 'changelog')}: its lineage has gaps")
    for chain_name in needed_names if base_place is None else needed_names[1:]:
        if chain_name not in changelogs:
            raise CorruptionError(
                f"{files.root}/{path_of(chain_name, 'changelog')} is missing: "
                f"{path_of(name, 'changelog')} is based on it"
            )
    return needed_names


def _find_shared_files(files: Directory, path: str, version: int, metadata: SnapshotMetadata) -> tuple[StateFile, ...]:
    """Return the SST files and logs of a snapshot; raise CorruptionError if one is missing or has another size."""
    shared_files = []
    for file in metadata.files:
        info = files.stat(file.path)
        if info is None or info.is_dir:
            raise CorruptionError(f"{files.root}/{file.path} is missing: {path} needs it")
        if info.size != file.size:
            raise CorruptionError(f"{files.root}/{file.path} is {info.size} bytes long; {path} says {file.size}")
        shared_files.append(StateFile(file.path, version, info.size, info.mtime_ns))
    return tuple(shared_files)
