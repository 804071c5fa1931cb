"""Zip of a RocksDB snapshot: RocksDB's own small files, and ``metadata`` that names the SST files.

    <version>.zip       MANIFEST-*  CURRENT  OPTIONS-*  *.log  metadata          flat, deflated
    metadata            "v1" | "v2" LF JSON {sstFiles: [{localFileName, dfsSstFileName, sizeBytes}], logFiles: [...],
                        numKeys, numInternalKeys, columnFamilyMapping, columnFamilyTypeMap, maxColumnFamilyId}
    SSTs/<name>         the SST files, shared by the snapshots of a partition
    logs/<name>         archived write-ahead logs, likewise

A process of Spark 4.0 whose first query is in checkpoint format 2 writes v2, and reads only v2. Other versions read
only v1. The JSON is the same. ``numKeys`` is -1 if Spark was configured not to count. Before Spark 4.0, nothing follows
``numKeys``.

Source: Spark's ``RocksDBFileManager`` and ``RocksDBCheckpointMetadata``.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.errors import CorruptionError, StorageError, UnsupportedError, require_damage
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.families import FamilyChanges

METADATA = "metadata"
_MEMBER = re.compile(r"MANIFEST-[0-9]+|CURRENT|IDENTITY|OPTIONS-[0-9]+|[0-9]+\.log|metadata")
_NEEDED = {"MANIFEST", "CURRENT", "OPTIONS", METADATA}
_LOCAL_NAME = re.compile(r"[0-9]{1,20}\.(?:sst|log)")
_STORED_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]*\.(?:sst|log)")
_ZIPFILE_ERRORS = (EOFError, NotImplementedError, RuntimeError, ValueError, OSError)
"""Other errors that zipfile raises for damaged archives."""

_VERSIONS = ("v1", "v2")
_PIECE = 1 << 20
_MAX_BYTES = {"MANIFEST": 1 << 30, "OPTIONS": 1 << 20, "CURRENT": 1 << 10, "IDENTITY": 1 << 10, METADATA: 4 << 20}
_MAX_LOG_BYTES = 1 << 20  # of all logs together; Spark writes none of its data to them
"""The most bytes of a decompressed member. A MANIFEST grows with each batch; RocksDB begins a new one at 1 GiB."""

_DENSE = 16 << 20
_MOST_DEFLATED = 64
"""The highest compression ratio of a member beyond ``_DENSE`` bytes, because no two edits are the same."""

_MAX_DIRECTORY = 1 << 20  # bytes of the zip's own list of its members
_MAX_COUNT = 1 << 62
_MAX_FAMILY_ID = (1 << 15) - 1


@dataclass(frozen=True)
class SharedFile:
    """A file of RocksDB: its name in the database, its path in the checkpoint, and its size in bytes."""

    local: str
    path: str
    size: int


@dataclass(frozen=True)
class SnapshotMetadata:
    """Metadata of a snapshot, in ``version`` of its format; ``document`` is the whole JSON.

    ``files`` has its SST files and archived logs. ``entries`` is the number of entries of all families, None if Spark
    did not count. ``families`` has the ids of column families by name, and is empty if keys carry no ids. ``internal``
    has the names of internal column families.
    """

    version: str
    document: Mapping[str, Any]
    files: tuple[SharedFile, ...]
    entries: int | None
    families: Mapping[str, int]
    internal: frozenset[str]

    @property
    def tables(self) -> dict[str, SharedFile]:
        """The SST files by their names in the database; archived logs have no entries beyond these."""
        return {file.local: file for file in self.files if file.local.endswith(".sst")}


_NO_FAMILIES = {"numInternalKeys": 0, "columnFamilyMapping": {}, "columnFamilyTypeMap": {}, "maxColumnFamilyId": 0}


def with_families(metadata: SnapshotMetadata | None, changes: FamilyChanges) -> SnapshotMetadata | None:
    """Return the metadata with other column families; None if there is neither metadata nor a new family."""
    if metadata is None:
        if not changes.all_new:
            return None
        metadata = SnapshotMetadata("v1", {"numKeys": 0, **_NO_FAMILIES}, (), 0, {}, frozenset())
    ids = changes.ids(metadata.families)
    if ids == metadata.families:
        return metadata
    names = changes.names(metadata.families)
    internal = {name for old_name, name in names.items() if old_name in metadata.internal}
    # The ``$`` marks Spark's own families of transformWithState. Those of joins have no mark, and ``changes`` names
    # them.
    internal |= {name for name in changes.added if name.startswith("$")} | changes.internal
    document = {**metadata.document, "columnFamilyMapping": ids}
    # Spark 3.5 and earlier write neither this field nor the next one.
    if document.get("columnFamilyTypeMap") or changes.all_new:
        document["columnFamilyTypeMap"] = {name: name in internal for name in ids}
    if "maxColumnFamilyId" in document or changes.all_new:
        # Spark gives the next new family the id after this one, so no family may have a higher id
        # (RocksDB.createColFamilyIfAbsent).
        document["maxColumnFamilyId"] = max(document.get("maxColumnFamilyId", 0), *ids.values())
    return replace(metadata, document=document, families=ids, internal=frozenset(internal))


def read_metadata(files: Directory, path: str) -> SnapshotMetadata:
    """Return a snapshot's metadata.

    Raises CorruptionError for damage, UnsupportedError for an unknown version or file.
    """
    with _members(files, path) as (archive, members):
        return _parse(files, path, archive.read(members[METADATA]))


def extract(files: Directory, path: str, folder: Path, home: str | None = None) -> SnapshotMetadata:
    """Unpack RocksDB's own files into ``folder``, and return the metadata.

    ``home`` is the final path of a snapshot that is not there yet.

    Raises CorruptionError for a damaged archive, or for a path or a size that Spark never writes. Raises
    UnsupportedError for an unknown version or file.
    """
    with _members(files, path) as (archive, members):
        metadata = _parse(files, home or path, archive.read(members[METADATA]))
        for name, member in members.items():
            if name != METADATA:
                _unpack(archive, member, folder / name)
    return metadata


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    """Write a member to a file, piece by piece; an error in writing is a StorageError, not damage."""
    with archive.open(member) as source, contextlib.ExitStack() as targets:
        with _write_errors(path):
            target = targets.enter_context(path.open("wb"))
        while piece := source.read(_PIECE):
            with _write_errors(path):
                target.write(piece)
                target.flush()


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror or error}; name another folder with --scratch"
        raise StorageError(problem) from error


def write(path: Path, folder: Path, names: Sequence[str], document: Mapping[str, Any], version: str) -> None:
    """Write a snapshot's zip to ``path``: the files ``names`` of ``folder``, and the metadata."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.write(folder / name, name)
        archive.writestr(METADATA, f"{version}\n{json.dumps(document, separators=(',', ':'))}")


@contextlib.contextmanager
def _members(files: Directory, path: str) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Open the archive, and yield it with its members by name after checking all of them."""
    where = f"{files.root}/{path}"
    try:
        with open_checked(files, path) as stream, zipfile.ZipFile(cast("BinaryIO", _InPieces(stream))) as archive:
            members: dict[str, zipfile.ZipInfo] = {}
            for member in archive.infolist():
                _check_member(member, members, where)
                members[member.filename] = member
            missing_kinds = _NEEDED - {name.partition("-")[0] for name in members}
            if missing_kinds:
                raise CorruptionError(f"{where}: it lacks {min(missing_kinds)}")
            logs = sum(member.file_size for name, member in members.items() if name.endswith(".log"))
            if logs > _MAX_LOG_BYTES:
                raise CorruptionError(f"{where}: its logs decompress to {logs:,} bytes; Spark writes empty ones")
            yield archive, members
    except (zipfile.BadZipFile, zlib.error, struct.error, *_ZIPFILE_ERRORS) as error:
        require_damage(error, where)
        raise CorruptionError(f"{where} is damaged or truncated: {error}") from error


def _check_member(member: zipfile.ZipInfo, members_before: Mapping[str, zipfile.ZipInfo], where: str) -> None:
    name = member.filename
    if "/" in member.orig_filename or "\\" in member.orig_filename or name in ("", ".", ".."):
        raise CorruptionError(f"{where}: {member.orig_filename!r} has a path; Spark writes zips without folders")
    if name in members_before:
        raise CorruptionError(f"{where}: it contains {name} twice")
    # Spark puts every file of the database but the tables into the zip. A new kind of file may hold entries.
    if not _MEMBER.fullmatch(name):
        raise UnsupportedError(f"{where}: {name!r} is not a known file of a RocksDB snapshot")
    size_limit = _MAX_BYTES.get(name.partition("-")[0], _MAX_LOG_BYTES)
    if not 0 <= member.file_size <= min(size_limit, max(_DENSE, _MOST_DEFLATED * member.compress_size)):
        raise CorruptionError(
            f"{where}: {name} decompresses from {member.compress_size:,} to {member.file_size:,} bytes, which Spark "
            "never writes"
        )


class _InPieces:
    """File that reads at most ``_MAX_DIRECTORY`` bytes at once: a zip itself names the size of its directory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory claims to be {size:,} bytes long")
        return self._file.read(_MAX_DIRECTORY if size < 0 else size)


def _parse(files: Directory, path: str, data: bytes) -> SnapshotMetadata:
    where = f"{files.root}/{path}: {METADATA}"
    version_line, _, body = data.partition(b"\n")
    version = version_line.strip().decode(errors="replace")
    if version not in _VERSIONS:
        kind = UnsupportedError if re.fullmatch(r"v[0-9]+", version) else CorruptionError
        raise kind(f"{where} begins with {version_line[:20]!r}; the known versions are v1 and v2")
    try:
        document = parse_json(body)
        folder = path.rpartition("/")[0]
        files_of = [
            _read_shared_file(file, f"{folder}/{kind}", suffix)
            for key, kind, suffix in (("sstFiles", layout.SSTS, "sst"), ("logFiles", layout.LOGS, "log"))
            # Spark omits the logs if there are none (RocksDBCheckpointMetadata.json).
            for file in require_type(document.get(key) or [], list)
        ]
        counts = [require_type(document.get(name, 0), int) for name in ("numKeys", "numInternalKeys")]
        if max(counts) > _MAX_COUNT:
            raise ValueError("its number of entries is impossible")
        families = require_type(document.get("columnFamilyMapping") or {}, dict)
        types = require_type(document.get("columnFamilyTypeMap") or {}, dict)
        for family, number in families.items():
            if not 0 <= require_type(number, int) <= _MAX_FAMILY_ID:
                raise ValueError(f"column family {family!r} has the id {number}")
        if len(set(families.values())) != len(families):
            raise ValueError("two column families have the same id")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"{where} is not what Spark writes ({error})") from error
    if len({file.local for file in files_of}) != len(files_of):
        raise CorruptionError(f"{where} names a file twice")
    return SnapshotMetadata(
        version=version,
        document=document,
        files=tuple(files_of),
        # -1 means that ``rocksdb.trackTotalNumberOfRows`` was off.
        entries=sum(counts) if min(counts) >= 0 else None,
        families=families,
        internal=frozenset(family for family, internal in types.items() if internal is True),
    )


def _read_shared_file(document: dict[str, Any], folder: str, suffix: str) -> SharedFile:
    local_name, size = require_type(document["localFileName"], str), require_type(document["sizeBytes"], int)
    stored_name = require_type(document["dfsSstFileName" if suffix == "sst" else "dfsLogFileName"], str)
    if not (_LOCAL_NAME.fullmatch(local_name) and _STORED_NAME.fullmatch(stored_name)) or not local_name.endswith(
        suffix
    ):
        raise ValueError(f"the file name {local_name!r} or {stored_name!r} contains a path")
    return SharedFile(local_name, f"{folder}/{stored_name}", size)
