"""``--output``: a complete new checkpoint; the source stays unchanged.

The copy is written in a folder beside its destination and renamed into place as the last step. So the destination is
complete or absent. The copy has the logs, the sources' logs, the metadata, and only the planned version of the state:
new snapshots of changed partitions, and the files of unchanged ones.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.checkpoint.own_paths import own_paths
from ttlsnap.errors import RefusedError, StorageError, UsageError
from ttlsnap.interrupts import defer_signals, note_run
from ttlsnap.publishing.journal import digest_of, report_path
from ttlsnap.publishing.liveness import LONGEST_GAP, PLANNED, longest_gap_ms, planned_batch
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import OWN, Directory
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import open_local
from ttlsnap.storage.uris import is_local

_PIECE = 8 << 20
# A task that Spark ran twice, as with speculation, leaves the file of the other attempt.
_ATTEMPT = re.compile(r"\.(snapshot|zip|sst)\.[0-9a-f]{8}\.tmp$")


def check_destination(source: str, output: str) -> LocalDirectory:
    """Return the destination, which is absent or an empty folder, and neither within the source nor around it.

    Raise UsageError otherwise.
    """
    destination = open_local(output)
    info = destination.stat("")
    if info is not None and (not info.is_dir or destination.list("")):
        raise UsageError(f"--output {destination.root} exists and is not an empty folder. Name another folder")
    inner, outer = sorted((Path(source), Path(destination.root)), key=lambda path: -len(path.parts))
    if is_local(source) and inner.is_relative_to(outer):
        raise UsageError(f"--output {destination.root} and the checkpoint {source} must not contain each other")
    return destination


def staging_directory(destination: LocalDirectory, run: str) -> LocalDirectory:
    """Return the folder in which the copy is written."""
    return LocalDirectory(f"{destination.root}.{run}.ttlsnap")


def copy_state_files(source: Directory, staging: LocalDirectory, paths: Iterable[str]) -> None:
    """Copy state files with their checksum files."""
    for state_path in paths:
        _, spark_checksum = layout.checksum_files(state_path)
        checksums = (*layout.checksum_files(state_path), *layout.checksum_files(spark_checksum))
        staging.mkdirs(state_path.rpartition("/")[0])
        for path in (state_path, *(path for path in checksums if source.stat(path) is not None)):
            _copy_file(source, staging, path)


def copy_all_but_state(source: Directory, staging: LocalDirectory, home: str) -> None:
    """Copy everything except state files and ttlsnap's own folder. ``home`` is the final path of the copy."""
    _copy_tree(source, staging, "", home)


def write_report(runs: Runs, staging: LocalDirectory, run: str, report: dict[str, Any]) -> None:
    """Write the report of the run that makes the copy, with what the journals of the source say about its batches.

    The logs of the copy are complete.
    """
    logs = read_logs(runs.files)
    batch = planned_batch(runs, logs)
    digest = digest_of(staging, layout.offset_file(batch)) if batch is not None else None
    report = {**report, LONGEST_GAP: longest_gap_ms(runs, logs), PLANNED: digest}
    path = report_path(run)
    staging.mkdirs(path.rpartition("/")[0])
    with staging.writer(path) as report_file:
        report_file.write(json.dumps(report, indent=1).encode())


@defer_signals()
def finish_copy(staging: LocalDirectory, destination: LocalDirectory) -> None:
    """Rename the copy into place after all of it is on the disk."""
    _sync_names(staging, "")
    try:
        os.rename(staging.root, destination.root)  # noqa: PTH104 - one system call
        note_run(destination.root, destination.root, "done")
        parent = os.open(Path(destination.root).parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise StorageError(f"cannot rename {staging.root} to {destination.root}: {error.strerror}") from error


def _sync_names(staging: LocalDirectory, path: str) -> None:
    """Sync the names of the files, whose content is synced when it is written. Remove files of repeated tasks."""
    for info in staging.list(path):
        inner_path = f"{path}/{info.name}" if path else info.name
        if info.is_dir:
            _sync_names(staging, inner_path)
        elif _ATTEMPT.search(info.name):
            staging.remove(inner_path)
    staging.sync(path)


@defer_signals()
def discard_copy(staging: LocalDirectory) -> None:
    """Remove a failed copy."""
    shutil.rmtree(staging.root, ignore_errors=True)


def _copy_tree(
    source: Directory, staging: LocalDirectory, path: str, home: str, folders_above: tuple[str, ...] = ()
) -> None:
    """Copy everything below ``path`` except state files, which are chosen one by one, and ttlsnap's own folder.

    ``home`` is the final path of the copy.
    """
    real_path = source.real_path(path)
    if real_path in folders_above:
        raise RefusedError(
            f"{source.root}/{path} is a symbolic link to a folder above it, so a copy would never end. Remove the "
            "link, or compact in place"
        )
    for info in source.list(path):
        inner_path = f"{path}/{info.name}" if path else info.name
        if inner_path == OWN:
            continue
        if info.is_dir:
            staging.mkdirs(inner_path)
            _copy_tree(source, staging, inner_path, home, (*folders_above, real_path))
        elif (file_with_paths := own_paths(inner_path)) is not None:
            # Spark opens schema files by these absolute paths, which would lead to the source.
            with staging.writer(inner_path) as new_file:
                new_file.write(file_with_paths.moved_to(source, home))
        elif not _is_state_file(inner_path) and own_paths(layout.strip_checksum(inner_path)) is None:
            _copy_file(source, staging, inner_path)


def _is_state_file(path: str) -> bool:
    """Return whether a path is a delta, a snapshot, a file that snapshots share, or a checksum of one of them."""
    parts = path.split("/")
    name = layout.strip_checksum(parts[-1])
    is_state = layout.parse_state_file(name) is not None or (len(parts) > 1 and parts[-2] in layout.SHARED)
    return parts[0] == layout.STATE and "_metadata" not in parts and is_state


def _copy_file(source: Directory, staging: LocalDirectory, path: str) -> None:
    with source.open(path) as source_file, staging.writer(path) as new_file:
        shutil.copyfileobj(source_file, new_file, _PIECE)
