"""Checkpoints on their way to an object store and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ttlsnap.filesystem import Directory, open_directory


def upload(folder: Path, uri: str) -> str:
    """Put all files there, many at a time, since in HDFS each takes half a second; the URI."""
    files = open_directory(uri)

    def put(path: Path) -> None:
        files.replace(path.relative_to(folder).as_posix(), path.read_bytes())

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(put, [path for path in sorted(folder.rglob("*")) if path.is_file()]))
    return uri


def download(uri: str, folder: Path) -> Path:
    """Write all objects there; the folder."""
    files = open_directory(uri)
    for name in _names(files, ""):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.open(name) as file:
            path.write_bytes(file.read())
    return folder


def objects_of(uri: str) -> dict[str, str]:
    """Every object with the hash of its bytes, but for what ttlsnap keeps for itself."""
    files = open_directory(uri)
    found = {}
    for name in _names(files, ""):
        if not name.startswith("_ttlsnap/"):
            with files.open(name) as file:
                found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


def files_of(folder: Path) -> dict[str, str]:
    """The same of a folder."""
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
