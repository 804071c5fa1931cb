"""Files in the state folder that do not belong there, and the paths of schemas in operator metadata.

If a repartition is interrupted and then abandoned by deleting its offset file, snapshots remain of a version that no
batch has started. Spark prefers a snapshot to the changelog that the query's next batch writes for the same version.
The running query is correct, but the next start reads the stale snapshot and silently loses state (tested on Spark
4.2.0).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ttlsnap.checkpoint import Checkpoint, Operator, layout
from ttlsnap.checkpoint.checkpoint import partition_folders, state_files
from ttlsnap.checkpoint.logs import shuffle_partitions
from ttlsnap.checkpoint.own_paths import find_own_paths
from ttlsnap.diagnosis.logs import LogFindings
from ttlsnap.diagnosis.problems import Problem, problem
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.storage.directory import OWN, Directory
from ttlsnap.storage.local import LocalDirectory

StateFiles = Sequence[tuple[str, layout.StateFileName]]
FilesOfPartitions = Mapping[int, StateFiles]
"""The state files of every partition folder, by the number of the partition."""


@dataclass
class Leftovers:
    """Files of an operator's folder that no batch has written, with the problem's code and message."""

    code: str
    words: str
    where: str
    files: list[str]


def examine_links(files: Directory) -> Iterator[Problem]:
    """Yield a problem for each broken symbolic link. Listings omit such links, and no file can replace them."""
    if not isinstance(files, LocalDirectory):
        return
    for name in (layout.OFFSETS, layout.COMMITS, layout.STATE, OWN):
        for folder, _, names in os.walk(f"{files.root}/{name}"):
            for link in [path for path in (Path(folder, file) for file in names) if path.is_symlink()]:
                if not _leads_somewhere(link):
                    message = f"{link} is a symbolic link whose target does not exist, or is the link itself"
                    yield problem(files.root, "broken-link", str(link.relative_to(files.root)), message)


def _leads_somewhere(link: Path) -> bool:
    try:
        link.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        return error.errno != errno.ELOOP
    return True


def examine_folders(checkpoint: Checkpoint, found_leftovers: Iterable[Leftovers]) -> Iterator[Problem]:
    """Yield problems: snapshots that would hide later batches, surplus partitions, and folders in place of files."""
    for leftover in found_leftovers:
        yield problem(checkpoint.target, leftover.code, leftover.where, leftover.words, more="")
    for operator in checkpoint.operators:
        for store in operator.stores:
            for partition in store.partitions:
                yield from _find_blocked(checkpoint, store.directory(partition))


def _find_blocked(checkpoint: Checkpoint, folder: str) -> Iterator[Problem]:
    """Yield folders in a place where Spark will write a version of the state, and names that Spark cannot parse."""
    kinds = ("zip", "changelog") if checkpoint.provider == "rocksdb" else ("delta", "snapshot")
    for info in checkpoint.files.list(folder):
        stem, _, kind = info.name.rpartition(".")
        if kind in kinds and kind in layout.SNAPSHOTS and stem.isalpha():
            path = f"{folder}/{info.name}"
            message = f"{checkpoint.target}/{path} has the name of a snapshot without a version, which stops Spark 4.2"
            yield problem(checkpoint.target, "stray-state", path, message)
        name = layout.parse_state_file(info.name) if info.is_dir else None
        if name is not None and name.kind in kinds and name.version > checkpoint.version:
            path = f"{folder}/{info.name}"
            message = f"{checkpoint.target}/{path} is a folder, in the place of a state file of version {name.version}"
            yield problem(checkpoint.target, "blocked-batch", path, message)


def leftovers(checkpoint: Checkpoint, findings: LogFindings) -> Iterator[Leftovers]:
    """Yield the files that ``examine_folders`` reports."""
    if findings.unfinished:
        return  # all files that do not belong here are the repartition's
    for operator in checkpoint.operators:
        partitions = operator.stores[0].partitions if operator.stores else ()
        files_of_partitions = {
            number: state_files(checkpoint.files, operator.id, number)
            for number in partition_folders(checkpoint.files, operator.id)
        }
        extra_partitions = [partition for partition in files_of_partitions if partition not in partitions]
        yield from _snapshots_to_come(checkpoint, operator, files_of_partitions, findings)
        yield from _find_abandoned(checkpoint, operator, files_of_partitions, extra_partitions)
        yield from _strays(checkpoint, operator, files_of_partitions, extra_partitions, findings)


def _snapshots_to_come(
    checkpoint: Checkpoint, operator: Operator, files_of_partitions: FilesOfPartitions, findings: LogFindings
) -> Iterator[Leftovers]:
    """Yield snapshots of a version whose batch never started."""
    begun_version = max(findings.logs.offsets[-1] if findings.logs.offsets else 0, findings.logs.commits[-1]) + 1
    hidden = {path for hidden in findings.hidden_batches for path in hidden.files}
    later_files = {
        partition: [(path, name) for path, name in files if name.version > begun_version and path not in hidden]
        for partition, files in files_of_partitions.items()
    }
    is_repartition = checkpoint.provider == "rocksdb" and _is_repartition(operator, later_files)
    stale_paths = [
        path
        for files in later_files.values()
        for path, name in files
        # The commit log names snapshots with ids, so Spark does not read those of a withdrawn batch.
        if name.kind in layout.SNAPSHOTS and (is_repartition or name.unique_id is None)
    ]
    if stale_paths:
        message = (
            f"operator {operator.id} has snapshots ({len(stale_paths)}) of a version that no batch has started yet "
            f"(newest: {begun_version}). Spark would read them instead of what that batch writes, and lose state"
        )
        yield Leftovers(
            "abandoned-repartition" if is_repartition else "stale-snapshot", message, stale_paths[0], stale_paths
        )


def _is_repartition(operator: Operator, later_files: FilesOfPartitions) -> bool:
    """Return whether a repartition may have written the files of later versions, and not a batch that was withdrawn.

    It writes one version, only zips, and another number of partitions.
    """
    names = [name for files in later_files.values() for _, name in files]
    written_partitions = {partition for partition, files in later_files.items() if files}
    partitions = set(operator.stores[0].partitions) if operator.stores else set()
    only_zips = all(name.kind == "zip" for name in names) and len({name.version for name in names}) == 1
    return only_zips and written_partitions != partitions


def _find_abandoned(
    checkpoint: Checkpoint, operator: Operator, files_of_partitions: FilesOfPartitions, extra_partitions: list[int]
) -> Iterator[Leftovers]:
    """Yield the files of an abandoned repartition to more partitions after which the query has continued."""
    for partition in extra_partitions:
        first_version = _began_whole(files_of_partitions[partition])
        if first_version is None or first_version > checkpoint.version:
            continue
        stale_paths = [
            path
            for number, files in files_of_partitions.items()
            for path, name in files
            if name.version == first_version
            and name.kind == "zip"
            and (number in extra_partitions or _has_changelog(files, first_version))
        ]
        if all(
            path.startswith(f"{layout.STATE}/{operator.id}/{number}/")
            for path in stale_paths
            for number in extra_partitions
        ):
            continue  # the query's own snapshots have replaced the others
        message = (
            f"a repartition wrote version {first_version} and was abandoned, and the query continued from there. Its "
            "snapshots lie beside the changelogs of that version, and Spark reads the snapshots first"
        )
        # The changelogs of that version are correct as long as no batch was computed from it.
        code = "abandoned-repartition" if first_version == checkpoint.version else "resumed-repartition"
        yield Leftovers(
            code, message, layout.store_directory(operator.id, partition, layout.DEFAULT_STORE), stale_paths
        )
        return


def _strays(
    checkpoint: Checkpoint,
    operator: Operator,
    files_of_partitions: FilesOfPartitions,
    extra_partitions: list[int],
    findings: LogFindings,
) -> Iterator[Leftovers]:
    """Yield surplus partitions; those from before a repartition to fewer partitions are harmless.

    If the batch before had more partitions, a batch with fewer has written none of the others, unless its log is wrong.
    """
    first_batch = _unchanged_since(checkpoint, findings)
    partitions_before = (
        shuffle_partitions(findings.batches[first_batch - 1].conf) if first_batch - 1 in findings.batches else None
    )
    for partition in extra_partitions:
        files = files_of_partitions[partition]
        if _began_whole(files) is not None or not any(name.version > first_batch for _, name in files):
            continue
        folder = layout.store_directory(operator.id, partition, layout.DEFAULT_STORE)
        if partitions_before is not None and partitions_before > partition:
            path = layout.offset_file(first_batch)
            message = (
                f"{checkpoint.target}/{path} has the number of partitions {shuffle_partitions(checkpoint.batch.conf)}, "
                f"but batch {first_batch} wrote {folder}, too, and batch {first_batch - 1} had {partitions_before} "
                "partitions. Spark would continue without the entries of the others"
            )
            yield Leftovers("damaged-log", message, path, [])
            return
        message = f"{checkpoint.target}/{folder} is not a partition of the query; Spark ignores it"
        yield Leftovers("extra-partition", message, folder, [])


def _began_whole(files: StateFiles) -> int | None:
    """Return the first version in a partition, if a repartition could have written it."""
    first_version = min((name.version for _, name in files), default=0)
    kinds = {name.kind for _, name in files if name.version == first_version}
    return first_version if first_version > 1 and kinds == {"zip"} else None


def _has_changelog(files: StateFiles, version: int) -> bool:
    return any(name.version == version and name.kind == "changelog" for _, name in files)


def _unchanged_since(checkpoint: Checkpoint, findings: LogFindings) -> int:
    """Return the first retained batch with the current number of partitions."""
    partition_count = shuffle_partitions(checkpoint.batch.conf)
    other_batches = [
        number for number, batch in findings.batches.items() if shuffle_partitions(batch.conf) != partition_count
    ]
    return max(other_batches, default=min(findings.batches) - 1) + 1


def examine_own_paths(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Yield problems of files with paths of the checkpoint: damaged, unknown, or with the paths of another place."""
    files, root = checkpoint.files, checkpoint.target
    for own_paths in find_own_paths(files):
        try:
            description = own_paths.describe_moved(files)
        except CorruptionError as error:
            yield problem(root, "damaged-metadata", own_paths.path, error)
        except UnsupportedError as error:
            yield problem(root, "unsupported", own_paths.path, error)
        else:
            if description is not None:
                yield problem(root, own_paths.code, own_paths.path, description)
