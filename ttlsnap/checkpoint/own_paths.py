"""Files of a checkpoint that contain its own path: they are written again when it is copied, and checked by ``doctor``.

    state/<operator>/_metadata/v2/<batch>       operator metadata: the paths of the state schemas, which Spark opens
    [<folder>/]_schema_log_<table>[_<id>]/<n>   a Delta source with ``schemaTrackingLocation``: the path of the source
                                                (``<checkpoint>/sources/<n>``), which Delta compares with the real one

All other files of Spark have no path, or only paths of input files. See ``docs/moving.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import read_checked
from ttlsnap.checkpoint.metadata import is_elsewhere, metadata_file, schema_paths, with_schema_paths_under
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError
from ttlsnap.printable import shell_word
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.storage.directory import OWN, Directory
from ttlsnap.storage.uris import REMOTE, hadoop_uri, is_local

SCHEMA_PATHS, SOURCE_PATHS = "moved-schema-paths", "moved-source-paths"
_MAX_SCHEMA_LOG_BYTES = 64 << 20
_SCHEMA_LOG = re.compile(r"(?:.+/)?_schema_log_[^/]+/[0-9]+")
_OTHERS = (layout.STATE, layout.OFFSETS, layout.COMMITS, OWN)
_PATH = "sourceMetadataPath"


_MOVED = {
    SCHEMA_PATHS: (
        "names a state schema at {}, which is outside this checkpoint: the checkpoint was moved or copied. Without "
        "that file Spark does not start; with it, Spark reads the file of another checkpoint"
    ),
    SOURCE_PATHS: (
        "is the schema log of a Delta source at {}, which is outside this checkpoint: the checkpoint was moved or "
        "copied. Delta does not start the query"
    ),
}


@dataclass(frozen=True)
class OwnPaths:
    """A file with paths of the checkpoint. ``code`` is the problem of ``doctor`` if they are those of another place."""

    path: str
    code: str

    def elsewhere(self, files: Directory) -> str | None:
        """Return the first recorded path that is in another folder, or None.

        Raise CorruptionError for a damaged file, and UnsupportedError for an unknown version.
        """
        if self.code == SCHEMA_PATHS:
            recorded_paths = schema_paths(files, self.path)
        else:
            recorded_paths = [_read_schema_log(files, self.path)[_PATH]]
        folder = layout.STATE if self.code == SCHEMA_PATHS else layout.SOURCES
        return next(
            (recorded_path for recorded_path in recorded_paths if is_elsewhere(recorded_path, files.root, folder)), None
        )

    def describe_moved(self, files: Directory) -> str | None:
        """Return which recorded path is in another folder, and what Spark would do; None if none is.

        Raise the same errors as ``elsewhere``.
        """
        recorded_path = self.elsewhere(files)
        return None if recorded_path is None else self._describe(files, recorded_path)

    def _describe(self, files: Directory, recorded_path: str) -> str:
        return f"{files.root}/{self.path} {_MOVED[self.code].format(recorded_path)}"

    def moved_to(self, files: Directory, home: str) -> bytes:
        """Return the content of the file for a copy of the checkpoint at ``home``; raise the same errors."""
        if self.code == SCHEMA_PATHS:
            return with_schema_paths_under(files, self.path, home)
        document = _read_schema_log(files, self.path)
        document[_PATH] = _relocate(document[_PATH], home)
        return b"v1\n" + json.dumps(document, separators=(",", ":")).encode()


def own_paths(path: str) -> OwnPaths | None:
    """Return a file with paths of the checkpoint; None for any other file."""
    if layout.is_operator_metadata(path):
        return OwnPaths(path, SCHEMA_PATHS)
    if path.split("/")[0] not in _OTHERS and _SCHEMA_LOG.fullmatch(path):
        return OwnPaths(path, SOURCE_PATHS)
    return None


def find_own_paths(files: Directory) -> Iterator[OwnPaths]:
    """Yield all files with paths of the checkpoint."""
    for path in operator_metadata(files):
        yield OwnPaths(path, SCHEMA_PATHS)
    for folder in find_schema_logs(files):
        yield from _in_folder(files, folder)


def operator_metadata(files: Directory) -> list[str]:
    """Return the paths of all operator metadata of version 2, the only version that contains paths."""
    folders = [
        f"{layout.STATE}/{operator.name}/_metadata/v2"
        for operator in files.list(layout.STATE)
        if operator.is_dir and layout.parse_number(operator.name) is not None
    ]
    return [metadata_file.path for folder in folders for metadata_file in _in_folder(files, folder)]


@dataclass(frozen=True)
class MovedSchemas:
    """Metadata that names the state schemas of another folder, in ``words`` that end with the command that mends it.

    ``is_here``: that folder is on this machine, too, so this one is a copy. Otherwise this folder may also have that
    path elsewhere, as in a container.
    """

    words: str
    is_here: bool


def find_moved_schemas(files: Directory, operators: Iterable[int], batch: int) -> MovedSchemas | None:
    """Return whether a query would restart after ``batch`` with the state schemas of another folder; None if not.

    Only the metadata that Spark reads then is examined.
    """
    paths = (metadata_file(files, operator, batch) for operator in operators)
    for path in filter(None, paths):
        own = own_paths(path)
        if own is not None and (recorded_path := own.elsewhere(files)) is not None:
            recorded = recorded_path.removeprefix("file:")
            words = (
                f"{own._describe(files, recorded_path)}. Run first: ttlsnap doctor {shell_word(files.root)} --fix "
                f"{SCHEMA_PATHS} --stopped. "
                "If Spark sees this folder at that other path, as in a container, do not do that: run ttlsnap there, "
                "or make that path a symbolic link to this folder"
            )
            return MovedSchemas(words, not is_local(files.root) or Path(f"/{recorded.lstrip('/')}").exists())
    return None


def find_schema_logs(files: Directory, folder: str = "", folders_above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the folders of the schema logs of Delta sources. Links out of the checkpoint are not followed."""
    try:
        real_path = files.real_path(folder)
    except RefusedError:
        return
    if real_path in folders_above:
        return
    for info in files.list(folder):
        path = f"{folder}/{info.name}" if folder else info.name
        if not info.is_dir or path in _OTHERS:
            continue
        if info.name.startswith("_schema_log_"):
            yield path
        yield from find_schema_logs(files, path, (*folders_above, real_path))


def _in_folder(files: Directory, folder: str) -> Iterator[OwnPaths]:
    files_with_paths = (own_paths(f"{folder}/{info.name}") for info in files.list(folder) if not info.is_dir)
    yield from (file for file in files_with_paths if file is not None)


def _read_schema_log(files: Directory, path: str) -> dict[str, Any]:
    where = f"{files.root}/{path}"
    head, _, body = read_checked(files, path, _MAX_SCHEMA_LOG_BYTES).partition(b"\n")
    if head != b"v1":
        kind = UnsupportedError if re.fullmatch(rb"v[0-9]+", head) else CorruptionError
        raise kind(f"{where}: version {head[:20]!r} of the schema log of a Delta source, expected v1")
    try:
        document: dict[str, Any] = require_type(parse_json(body), dict)
        if f"/{layout.SOURCES}/" not in require_type(document[_PATH], str):
            raise ValueError(f"{_PATH} is {document[_PATH][:200]!r}")
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"{where}: not the schema log that Delta writes ({error!r})") from error
    return document


def _relocate(recorded_path: str, home: str) -> str:
    """Return the path of a source in the checkpoint ``home``, as Spark writes it.

    Delta compares whole texts. So the scheme and the name node stay, if the file system does.
    """
    source = f"{layout.SOURCES}/{recorded_path.rpartition(f'/{layout.SOURCES}/')[2]}"
    if is_local(home):
        return f"{hadoop_uri(home)}/{source}"
    home_scheme, _, home_location = home.partition("://")
    scheme, separator, recorded_location = recorded_path.partition("://")
    if not separator or REMOTE.get(scheme) != REMOTE[home_scheme]:
        return f"{hadoop_uri(home)}/{source}"
    if home_scheme == "hdfs":
        home_location = f"{recorded_location.partition('/')[0]}/{home_location.partition('/')[2]}"
    return f"{scheme}://{home_location}/{source}"
