"""Upload, download and comparison of checkpoints in object stores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import open_directory
from ttlsnap.storage.uris import hadoop_uri

from ..judge.inputs import take_home


def upload(folder: Path, uri: str) -> str:
    """Upload all files of a folder, many at a time, because HDFS needs half a second for each. Return the URI.

    Operator metadata, also that of the folder, then names the schema files at the URI. Snapshots come last: one that is
    older than the delta of its version looks like that of a withdrawn batch.
    """
    files = open_directory(uri)
    take_home(folder, hadoop_uri(files.root))

    def put(path: Path) -> None:
        files.replace(path.relative_to(folder).as_posix(), path.read_bytes())

    with ThreadPoolExecutor(32) as pool:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for last in (False, True):
            list(pool.map(put, [path for path in paths if (path.suffix in (".snapshot", ".zip")) is last]))
    return uri


def download(uri: str, folder: Path) -> Path:
    """Download all objects into a folder. Return the folder."""
    files = open_directory(uri)
    for name in _names(files, ""):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.open(name) as file:
            path.write_bytes(file.read())
    return folder


def objects_of(uri: str) -> dict[str, str]:
    """Return the hash of every object, except ttlsnap's own files."""
    files = open_directory(uri)
    found = {}
    for name in _names(files, ""):
        if not name.startswith("_ttlsnap/"):
            with files.open(name) as file:
                found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


def files_of(folder: Path) -> dict[str, str]:
    """Return the hash of every file in a folder, except ttlsnap's own files."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in paths.items()
        if not name.startswith("_ttlsnap/")
    }


def _names(files: Directory, folder: str) -> Iterator[str]:
    for info in files.list(folder):
        inner = f"{folder}/{info.name}" if folder else info.name
        if info.is_dir:
            yield from _names(files, inner)
        else:
            yield inner
