"""The comparison of a copy with its manifest."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from ttlsnap.amounts import such_files
from ttlsnap.checkpoint import Logs, layout
from ttlsnap.copies.manifest import CopiedFile, Manifest, read_manifest
from ttlsnap.copies.selection import Selection
from ttlsnap.errors import AlteredCopyError, StorageError
from ttlsnap.publishing.journal import digest_of
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import OWN, Directory, each
from ttlsnap.storage.trees import stat_files

NOT_LISTED = "is not in the manifest"


def find_differences(
    files: Directory, manifest: Manifest, digests: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """Read everything in a copy. Yield the path of each file that is not as in the manifest, and what is wrong.

    Files with known ``digests`` were read before, and are not read again.
    """
    infos = stat_files(files, manifest.files)

    def describe(file: CopiedFile) -> str | None:
        info = infos.get(file.path)
        if info is None:
            return "is missing"
        if info.size != file.size:
            return f"has {info.size:,} bytes, and the manifest says {file.size:,}"
        try:
            digest = (digests or {}).get(file.path) or digest_of(files, file.path, from_disk=True)
            return None if digest == file.digest else "has another content than the manifest says"
        except StorageError as error:
            return f"cannot be read: {error.message}"

    copied_files = list(manifest.files.values())
    for file, words in zip(copied_files, each(files, describe, copied_files), strict=True):
        if words is not None:
            yield file.path, words
    for path in find_others(files, manifest.files):
        yield path, NOT_LISTED


def refuse_altered(
    files: Directory, selection: Selection, consequence: str, digests: Mapping[str, str] | None = None
) -> list[str]:
    """Raise AlteredCopyError if the source of a copy is itself a copy, and not as its manifest says. Return warnings.

    A query that has started on it, and has begun no batch, may have added snapshots, and removed what older versions
    need. ``consequence`` is a sentence for the message. ``digests`` are as for ``find_differences``.
    """
    manifest = read_manifest(files)
    if manifest is None or not is_unused(manifest, selection.runs, selection.checkpoint.logs):
        return []
    taken_paths = {file.path for file in selection.files}
    differences, added_paths = list[tuple[str, str]](), list[str]()
    for path, words in find_differences(files, manifest, digests):
        is_taken, is_listed, is_state = path in taken_paths, words != NOT_LISTED, layout.is_state_file(path)
        if is_taken and is_state and not is_listed:
            added_paths.append(path)
        elif is_taken or (is_listed and not is_state):
            differences.append((path, words))
    if differences:
        path, words = differences[0]
        advice = "Move it out of the copy" if words == NOT_LISTED else "Use another copy"
        others = such_files(len(differences))
        raise AlteredCopyError(f"{files.root}/{path} {words}{others}. {consequence} {advice}")
    if not added_paths:
        return []
    return [
        f"{files.root} has files of the state that are not in its manifest, and they are used (such files: "
        f"{len(added_paths)}, as {added_paths[0]}). The maintenance of a query that has started on it adds such files. "
        "If none has, use another copy"
    ]


def is_unused(manifest: Manifest, runs: Runs, logs: Logs) -> bool:
    """Return whether neither a query nor a run has worked on a copy, which has these runs and logs.

    A query never goes back: a copy that has lost logs is damaged.
    """
    return not runs.ids and (not logs.offsets or logs.offsets[-1] <= manifest.facts.batch)


def find_others(files: Directory, known_paths: Container[str]) -> list[str]:
    """Return the files of a copy that are not ``known_paths``, except ttlsnap's own."""
    others = []
    for info in files.list(""):
        if info.name != OWN:
            paths = files.list_tree(info.name) if info.is_dir else [info.name]
            others += [path for path in paths if path not in known_paths]
    return others
