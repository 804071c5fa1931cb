"""A RocksDB snapshot's zip: RocksDB's own small files, and ``metadata`` that names the SST files.

    <version>.zip       MANIFEST-*  CURRENT  OPTIONS-*  *.log  metadata          flat, deflated
    metadata            "v1" | "v2" LF JSON {sstFiles: [{localFileName, dfsSstFileName, sizeBytes}], logFiles: [...],
                        numKeys, numInternalKeys, columnFamilyMapping, columnFamilyTypeMap, maxColumnFamilyId}
    SSTs/<name>         the SST files, shared by the snapshots of a partition
    logs/<name>         archived write-ahead logs, likewise

A process of Spark 4.0 whose first query is in checkpoint format 2 writes v2, and reads nothing else, as other versions
read v1 only; the JSON is the same. ``numKeys`` is -1 where Spark was told not to count. Before Spark 4.0 there is
nothing after it. Source: Spark's ``RocksDBFileManager`` and ``RocksDBCheckpointMetadata``.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.errors import CorruptionError, StorageError, UnsupportedError
from ttlsnap.filesystem import Directory
from ttlsnap.strict_json import parse_json, typed

METADATA = "metadata"
_MEMBER = re.compile(r"MANIFEST-[0-9]+|CURRENT|IDENTITY|OPTIONS-[0-9]+|[0-9]+\.log|metadata")
_NEEDED = {"MANIFEST", "CURRENT", "OPTIONS", METADATA}
_LOCAL_NAME = re.compile(r"[0-9]{1,20}\.(?:sst|log)")
_STORED_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]*\.(?:sst|log)")
_ZIPFILE_ERRORS = (EOFError, NotImplementedError, RuntimeError, ValueError, OSError)
"""What else zipfile raises when it reads nonsense."""

_VERSIONS = ("v1", "v2")
_PIECE = 1 << 20
_MAX_BYTES = {"MANIFEST": 1 << 30, "OPTIONS": 1 << 20, "CURRENT": 1 << 10, "IDENTITY": 1 << 10, METADATA: 4 << 20}
_MAX_LOG_BYTES = 1 << 20  # of all logs together; Spark writes none of its data to them
"""The most bytes that a member unpacks to. A MANIFEST grows with each batch, and RocksDB begins a new one at 1 GiB."""

_DENSE = 16 << 20
_MOST_DEFLATED = 64
"""A member of more than ``_DENSE`` bytes unpacks to this many times its size at most. No two edits are the same."""

_MAX_DIRECTORY = 1 << 20  # of the zip's own list of its members
_MAX_COUNT = 1 << 62
_MAX_FAMILY_ID = (1 << 15) - 1


@dataclass(frozen=True)
class SharedFile:
    """A file of RocksDB's: its name in the database, its path in the checkpoint, and its size in bytes."""

    local: str
    path: str
    size: int


@dataclass(frozen=True)
class SnapshotMetadata:
    """What a snapshot says of itself, in ``version`` of its format. ``document`` is all of it.

    ``files`` are its SST files and archived logs.
    ``entries`` is the number of entries of all families, None where Spark did not count. ``families`` has the
    column families' ids by name, and is empty where keys carry none.
    """

    version: str
    document: Mapping[str, Any]
    files: tuple[SharedFile, ...]
    entries: int | None
    families: Mapping[str, int]
    internal: frozenset[str]

    @property
    def tables(self) -> dict[str, SharedFile]:
        """The SST files by their names in the database. Archived logs hold nothing that these lack."""
        return {file.local: file for file in self.files if file.local.endswith(".sst")}


def read_metadata(files: Directory, path: str) -> SnapshotMetadata:
    """A snapshot's metadata; raises CorruptionError for damage, UnsupportedError for what is unknown."""
    with _members(files, path) as (archive, members):
        return _parse(files, path, archive.read(members[METADATA]))


def extract(files: Directory, path: str, folder: Path, home: str | None = None) -> SnapshotMetadata:
    """Unpack RocksDB's own files into ``folder``, and give the metadata.

    ``home`` is where the snapshot belongs, when it does not lie there yet.
    Raises CorruptionError for a damaged archive, or one with a name or a size that Spark never writes.
    """
    with _members(files, path) as (archive, members):
        metadata = _parse(files, home or path, archive.read(members[METADATA]))
        for name, member in members.items():
            if name != METADATA:
                _unpack(archive, member, folder / name)
    return metadata


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    """Write a member to a file, piece by piece. An error in writing is not taken for damage."""
    with archive.open(member) as source, contextlib.ExitStack() as opened:
        with _write_errors(path):
            target = opened.enter_context(path.open("wb"))
        while piece := source.read(_PIECE):
            with _write_errors(path):
                target.write(piece)
                target.flush()


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        words = f"cannot write {path}: {error.strerror or error}; give another folder by --scratch"
        raise StorageError(words) from error


def write(path: Path, folder: Path, names: Sequence[str], document: Mapping[str, Any], version: str) -> None:
    """Write a snapshot's zip to ``path``: the files ``names`` of ``folder``, and the metadata."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.write(folder / name, name)
        archive.writestr(METADATA, f"{version}\n{json.dumps(document, separators=(',', ':'))}")


@contextlib.contextmanager
def _members(files: Directory, path: str) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """The archive with its members by name, all of which were found to be harmless."""
    where = f"{files.root}/{path}"
    try:
        with open_checked(files, path) as stream, zipfile.ZipFile(cast("BinaryIO", _InPieces(stream))) as archive:
            members: dict[str, zipfile.ZipInfo] = {}
            for member in archive.infolist():
                _check_member(member, members, where)
                members[member.filename] = member
            missing = _NEEDED - {name.partition("-")[0] for name in members}
            if missing:
                raise CorruptionError(f"{where}: there is no {min(missing)} in it")
            logs = sum(member.file_size for name, member in members.items() if name.endswith(".log"))
            if logs > _MAX_LOG_BYTES:
                raise CorruptionError(f"{where}: its logs unpack to {logs:,} bytes, where Spark writes empty ones")
            yield archive, members
    except (zipfile.BadZipFile, zlib.error, struct.error, *_ZIPFILE_ERRORS) as error:
        raise CorruptionError(f"{where} is damaged or cut off: {error}") from error


def _check_member(member: zipfile.ZipInfo, before: Mapping[str, zipfile.ZipInfo], where: str) -> None:
    name = member.filename
    if "/" in member.orig_filename or "\\" in member.orig_filename or name in ("", ".", ".."):
        raise CorruptionError(f"{where}: {member.orig_filename!r} would lead outside; Spark's zips are flat")
    if name in before:
        raise CorruptionError(f"{where}: {name} is in it twice")
    if not _MEMBER.fullmatch(name):
        raise UnsupportedError(f"{where}: {name!r} is no file that a RocksDB snapshot is known to have")
    most = _MAX_BYTES.get(name.partition("-")[0], _MAX_LOG_BYTES)
    if not 0 <= member.file_size <= min(most, max(_DENSE, _MOST_DEFLATED * member.compress_size)):
        raise CorruptionError(
            f"{where}: {name} unpacks from {member.compress_size:,} to {member.file_size:,} bytes, which Spark never "
            "writes"
        )


class _InPieces:
    """A file that gives no more than ``_MAX_DIRECTORY`` bytes at once: a zip names the size of its directory itself."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory is said to be {size:,} bytes long")
        return self._file.read(_MAX_DIRECTORY if size < 0 else size)


def _parse(files: Directory, path: str, data: bytes) -> SnapshotMetadata:
    where = f"{files.root}/{path}: {METADATA}"
    head, _, body = data.partition(b"\n")
    version = head.strip().decode(errors="replace")
    if version not in _VERSIONS:
        kind = UnsupportedError if re.fullmatch(r"v[0-9]+", version) else CorruptionError
        raise kind(f"{where} begins {head[:20]!r}, where v1 and v2 are known")
    try:
        document = parse_json(body)
        folder = path.rpartition("/")[0]
        files_of = [
            _shared(file, f"{folder}/{kind}", suffix)
            for key, kind, suffix in (("sstFiles", layout.SSTS, "sst"), ("logFiles", layout.LOGS, "log"))
            for file in typed(document.get(key) or [], list)
        ]
        counts = [typed(document.get(name, 0), int) for name in ("numKeys", "numInternalKeys")]
        if max(counts) > _MAX_COUNT:
            raise ValueError("it counts more entries than there can be")
        families = typed(document.get("columnFamilyMapping") or {}, dict)
        types = typed(document.get("columnFamilyTypeMap") or {}, dict)
        for family, number in families.items():
            if not 0 <= typed(number, int) <= _MAX_FAMILY_ID:
                raise ValueError(f"column family {family!r} has the id {number}")
        if len(set(families.values())) != len(families):
            raise ValueError("two column families have one id")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"{where} is not what Spark writes ({error})") from error
    if len({file.local for file in files_of}) != len(files_of):
        raise CorruptionError(f"{where} names a file twice")
    return SnapshotMetadata(
        version=version,
        document=document,
        files=tuple(files_of),
        entries=sum(counts) if min(counts) >= 0 else None,
        families=families,
        internal=frozenset(family for family, internal in types.items() if internal is True),
    )


def _shared(document: dict[str, Any], folder: str, suffix: str) -> SharedFile:
    local, size = typed(document["localFileName"], str), typed(document["sizeBytes"], int)
    stored = typed(document["dfsSstFileName" if suffix == "sst" else "dfsLogFileName"], str)
    if not (_LOCAL_NAME.fullmatch(local) and _STORED_NAME.fullmatch(stored)) or not local.endswith(suffix):
        raise ValueError(f"the file name {local!r} or {stored!r} would lead elsewhere")
    return SharedFile(local, f"{folder}/{stored}", size)
