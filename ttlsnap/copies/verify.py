"""The comparison of a copy with its manifest."""

from __future__ import annotations

from collections.abc import Iterator

from ttlsnap.checkpoint import Logs
from ttlsnap.copies.manifest import CopiedFile, Manifest, read_manifest
from ttlsnap.errors import StorageError
from ttlsnap.publishing.journal import digest_of
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import OWN, Directory, each
from ttlsnap.storage.trees import stat_files

NOT_LISTED = "is not in the manifest"


def find_differences(files: Directory, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Read everything in a copy. Yield the path of each file that is not as in the manifest, and what is wrong."""
    infos = stat_files(files, manifest.files)

    def describe(file: CopiedFile) -> str | None:
        info = infos.get(file.path)
        if info is None:
            return "is missing"
        if info.size != file.size:
            return f"has {info.size:,} bytes, and the manifest says {file.size:,}"
        try:
            return None if digest_of(files, file.path) == file.digest else "has another content than the manifest says"
        except StorageError as error:
            return f"cannot be read: {error.message}"

    copied_files = list(manifest.files.values())
    for file, words in zip(copied_files, each(files, describe, copied_files), strict=True):
        if words is not None:
            yield file.path, words
    for path in find_others(files, manifest.files):
        yield path, NOT_LISTED


def find_alterations(files: Directory, runs: Runs, logs: Logs) -> Iterator[tuple[str, str]]:
    """Yield the differences of a copy from its manifest, if neither a query nor a run has worked on it since.

    Raise CorruptionError if the manifest is damaged.
    """
    manifest = read_manifest(files)
    if manifest is not None and is_unused(manifest, runs, logs):
        yield from find_differences(files, manifest)


def is_unused(manifest: Manifest, runs: Runs, logs: Logs) -> bool:
    """Return whether neither a query nor a run has worked on a copy, which has these runs and logs."""
    return not runs.ids and logs.offsets[-1:] == (manifest.facts.batch,)


def find_others(files: Directory, known_paths: dict[str, CopiedFile]) -> list[str]:
    """Return the files of a copy that are not ``known_paths``, except ttlsnap's own."""
    others = []
    for info in files.list(""):
        if info.name != OWN:
            paths = files.list_tree(info.name) if info.is_dir else [info.name]
            others += [path for path in paths if path not in known_paths]
    return others
