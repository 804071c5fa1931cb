"""What lies in the state folder and should not, and where operator metadata says that the schemas are.

A repartition that was cut off and then given up by removing its offset file leaves snapshots of a version that no
batch has begun. Spark prefers a snapshot to the changelog that the query's next batch writes for the same version: the
process that runs goes on rightly, and the next one that starts reads the stale snapshot and loses state without a
word (tried on Spark 4.2.0).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ttlsnap.checkpoint import Checkpoint, Operator, layout
from ttlsnap.checkpoint.checkpoint import partition_folders, state_files
from ttlsnap.checkpoint.logs import shuffle_partitions
from ttlsnap.checkpoint.metadata import schema_paths
from ttlsnap.diagnosis.logs import LogFindings
from ttlsnap.diagnosis.problems import Problem, problem
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.filesystem import OWN, REMOTE, Directory, LocalDirectory, is_local

StateFiles = Sequence[tuple[str, layout.StateFileName]]
Lying = Mapping[int, StateFiles]
"""The state files of every partition folder."""


@dataclass
class Leftovers:
    """What lies in an operator's folder and no batch has written: the finding's code and words, and the files."""

    code: str
    words: str
    where: str
    files: list[str]


def examine_links(files: Directory) -> Iterator[Problem]:
    """Symbolic links that lead to nothing, or to themselves. Listings omit them, and no file can take their place."""
    if not isinstance(files, LocalDirectory):
        return
    for name in (layout.OFFSETS, layout.COMMITS, layout.STATE, OWN):
        for folder, _, names in os.walk(f"{files.root}/{name}"):
            for link in [path for path in (Path(folder, file) for file in names) if path.is_symlink()]:
                if not _leads_somewhere(link):
                    words = f"{link} is a symbolic link that leads to nothing, or to itself"
                    yield problem(files.root, "broken-link", str(link.relative_to(files.root)), words)


def _leads_somewhere(link: Path) -> bool:
    try:
        link.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        return error.errno != errno.ELOOP
    return True


def examine_folders(checkpoint: Checkpoint, found: LogFindings) -> Iterator[Problem]:
    """Snapshots that would outlive the batches to come, and partitions that are nobody's."""
    for left in leftovers(checkpoint, found):
        yield problem(checkpoint.target, left.code, left.where, left.words)


def leftovers(checkpoint: Checkpoint, found: LogFindings) -> Iterator[Leftovers]:
    """See ``examine_folders``."""
    if found.unfinished:
        return  # all that lies about is the repartition's
    for operator in checkpoint.operators:
        partitions = operator.stores[0].partitions if operator.stores else ()
        lying = {
            p: state_files(checkpoint.files, operator.id, p) for p in partition_folders(checkpoint.files, operator.id)
        }
        extra = [partition for partition in lying if partition not in partitions]
        yield from _snapshots_to_come(checkpoint, operator, lying, found)
        yield from _given_up(checkpoint, operator, lying, extra)
        yield from _strays(checkpoint, operator, lying, extra, _unchanged_since(checkpoint, found))


def _snapshots_to_come(
    checkpoint: Checkpoint, operator: Operator, lying: Lying, found: LogFindings
) -> Iterator[Leftovers]:
    """Snapshots of a version whose batch was never begun."""
    begun = max(found.logs.offsets[-1] if found.logs.offsets else 0, found.logs.commits[-1]) + 1
    hidden = {path for shadow in found.shadows for path in shadow.files}
    stale = [
        path
        for files in lying.values()
        for path, name in files
        if name.version > begun and name.kind in layout.SNAPSHOTS and path not in hidden
    ]
    if stale:
        code = "abandoned-repartition" if checkpoint.provider == "rocksdb" else "stale-snapshot"
        words = (
            f"{len(stale)} snapshots of operator {operator.id} are of a version that no batch has begun "
            f"({begun} is the newest). Spark would prefer them to what that batch writes, and lose state"
        )
        yield Leftovers(code, words, stale[0], stale)


def _given_up(checkpoint: Checkpoint, operator: Operator, lying: Lying, extra: list[int]) -> Iterator[Leftovers]:
    """A repartition to more that was given up, over which the query has written its own next version."""
    for partition in extra:
        first = _began_whole(lying[partition])
        if first is None or first > checkpoint.version:
            continue
        stale = [
            path
            for number, files in lying.items()
            for path, name in files
            if name.version == first and name.kind == "zip" and (number in extra or _has_changelog(files, first))
        ]
        if all(path.startswith(f"{layout.STATE}/{operator.id}/{number}/") for path in stale for number in extra):
            continue  # the query's own snapshots have replaced the others
        words = (
            f"a repartition wrote version {first} and was given up, and the query went on from there: snapshots of "
            "that version lie beside its changelogs, and Spark reads them first"
        )
        # As long as no batch was computed on top of that version, its changelogs are right.
        code = "abandoned-repartition" if first == checkpoint.version else "resumed-repartition"
        yield Leftovers(code, words, layout.store_directory(operator.id, partition, layout.DEFAULT_STORE), stale)
        return


def _strays(
    checkpoint: Checkpoint, operator: Operator, lying: Lying, extra: list[int], since: int
) -> Iterator[Leftovers]:
    """Partitions beyond the number that the batches pinned; those of before a repartition to fewer are no matter."""
    for partition in extra:
        files = lying[partition]
        if _began_whole(files) is None and any(name.version > since for _, name in files):
            folder = layout.store_directory(operator.id, partition, layout.DEFAULT_STORE)
            words = f"{checkpoint.target}/{folder} is beyond the partitions of the query, and Spark reads nothing in it"
            yield Leftovers("extra-partition", words, folder, [])


def _began_whole(files: StateFiles) -> int | None:
    """The first version in a partition, if it is one that a repartition would begin with."""
    first = min((name.version for _, name in files), default=0)
    kinds = {name.kind for _, name in files if name.version == first}
    return first if first > 1 and kinds == {"zip"} else None


def _has_changelog(files: StateFiles, version: int) -> bool:
    return any(name.version == version and name.kind == "changelog" for _, name in files)


def _unchanged_since(checkpoint: Checkpoint, found: LogFindings) -> int:
    """The first retained batch from which on the number of partitions is what it is."""
    count = shuffle_partitions(checkpoint.batch.conf)
    others = [number for number, batch in found.batches.items() if shuffle_partitions(batch.conf) != count]
    return max(others, default=min(found.batches) - 1) + 1


def examine_schema_paths(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Operator metadata that names schema files by the path of where the checkpoint once lay."""
    files, root = checkpoint.files, checkpoint.target
    for path in operator_metadata(files):
        try:
            paths = schema_paths(files, path)
        except CorruptionError as error:
            yield problem(root, "damaged-metadata", path, error)
            continue
        except UnsupportedError as error:
            yield problem(root, "unsupported", path, error)
            continue
        moved = next((old for old in paths if is_elsewhere(old, root)), None)
        if moved is not None:
            words = (
                f"{root}/{path} says that a state schema lies at {moved}, which is not in this checkpoint. It was "
                "moved or copied; without that file Spark does not start, and with it reads what belongs to another"
            )
            yield problem(root, "moved-schema-paths", path, words)


def operator_metadata(files: Directory) -> list[str]:
    """All operator metadata of v2, the only one with paths in it."""
    return [
        f"{layout.STATE}/{operator.name}/_metadata/v2/{info.name}"
        for operator in files.list(layout.STATE)
        if operator.is_dir and layout.parse_number(operator.name) is not None
        for info in files.list(f"{layout.STATE}/{operator.name}/_metadata/v2")
        if not info.is_dir and layout.parse_number(info.name) is not None
    ]


def is_elsewhere(path: str, root: str) -> bool:
    """Whether a recorded path is that of another folder; what is said of other file systems cannot be judged."""
    scheme, colon, rest = path.partition(":")
    has_scheme = colon == ":" and "/" not in scheme
    if not is_local(root):
        kind, _, place = root.partition("://")
        if REMOTE.get(scheme) != REMOTE[kind]:
            return scheme == "file"
        if kind == "hdfs":  # a name node has several names
            place, rest = (f"/{text.removeprefix('//').partition('/')[2]}".rstrip("/") for text in (place, rest))
        return rest.removeprefix("//") != f"{place}/{layout.STATE}/" + rest.rpartition(f"/{layout.STATE}/")[2]
    if has_scheme:
        if scheme != "file":
            return False
        path = rest
    lies = os.path.realpath("/" + path.lstrip("/"))
    return lies != f"{root}/{layout.STATE}/" + path.rpartition(f"/{layout.STATE}/")[2]
