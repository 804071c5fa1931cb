"""``--output``: a complete new checkpoint, in any storage; the source stays unchanged.

On a local disk, the new checkpoint is written in a folder beside its destination, and renamed into place as the last
step: the destination is complete or absent. Elsewhere, it is written in its place, behind a fence, which is removed as
the last step: it is complete, or Spark refuses to start. It has the logs, the sources' logs, the metadata, and only the
planned version of the state: new snapshots of changed partitions, and the files of unchanged ones.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttlsnap.checkpoint import Logs, layout
from ttlsnap.checkpoint.logs import COPY_MARK, fenced, is_copy_fence, read_logs
from ttlsnap.copies.access import begin_copy, describe_copy, share_copy
from ttlsnap.copies.run import require_apart
from ttlsnap.copies.selection import choose_files
from ttlsnap.copies.transfer import Sender
from ttlsnap.errors import BusyError, StorageError, UsageError
from ttlsnap.interrupts import defer_signals, note_run
from ttlsnap.publishing.journal import digest_of, report_path
from ttlsnap.publishing.liveness import LONGEST_GAP, PLANNED, longest_gap_ms, planned_batch
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import LOCK, OWN, Directory, FileInfo
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import open_directory
from ttlsnap.storage.trees import stat_files, sync_names

# A task that Spark ran twice, as with speculation, leaves the file of the other attempt.
_ATTEMPT = re.compile(r"\.(snapshot|zip|sst)\.[0-9a-f]{8}\.tmp$")


@dataclass(frozen=True)
class Destination:
    """The place of a new checkpoint of ``source``. It is written to ``staging``, and will be at ``files``.

    ``fence`` is the path of the file that keeps Spark from starting until it is complete; None on a local disk.
    """

    source: Directory
    files: Directory
    staging: Directory
    fence: str | None

    @classmethod
    def check(cls, source: Directory, output: str, run: str, logs: Logs) -> Destination:
        """Return the destination, which is absent or an empty folder, and neither within the source nor around it.

        Raise UsageError otherwise. ``logs`` are those that the new checkpoint will have.
        """
        files = open_directory(output)
        if isinstance(files, LocalDirectory):
            destination = cls(source, files, LocalDirectory(f"{files.root}.{run}.ttlsnap"), None)
        else:
            destination = cls(source, files, files, layout.offset_file(logs.offsets[-1] + 1))
        destination._refuse_used()
        require_apart(source, files)
        return destination

    def _refuse_used(self) -> None:
        """Raise UsageError unless the place is absent, or an empty folder, or has nothing but our lock."""
        files = self.files
        info = files.stat("")
        if info is None:
            return
        infos = files.list("") if info.is_dir else [info]
        if self.fence is not None and [info.name for info in infos] == [OWN]:
            infos = [info for info in files.list(OWN) if f"{OWN}/{info.name}" != LOCK]
        if infos:
            if is_copy_fence(fence := read_logs(files).fence if info.is_dir else None):
                raise UsageError(f"--output {fenced(files, fence or '').message}")
            raise UsageError(f"--output {files.root} exists and is not an empty folder. Name another folder")

    @property
    def scratch(self) -> str | None:
        """The local folder for the work of the run; None for one of the system."""
        return f"{self.staging.root}/{OWN}/scratch" if self.fence is None else None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes of ttlsnap away from the place. On a local disk, each has a folder of its own."""
        if self.fence is None:
            yield
            return
        self.files.mkdirs("")
        with self.files.lock():
            self._refuse_used()
            yield

    def begin(self) -> None:
        """Create the folder of the new checkpoint for this user alone, and raise its fence."""
        begin_copy(self.source, self.staging)
        if self.fence is not None:
            self.files.mkdirs(layout.OFFSETS)
            words = f"{COPY_MARK}; if the command that writes it has ended, remove this folder, and repeat the command"
            self.files.replace(self.fence, f"{words}\n".encode())

    @defer_signals()
    def finish(self) -> tuple[str, ...]:
        """Make the new checkpoint usable after all of it is on the disk. Return what its query needs."""
        paths = list(self.staging.list_tree(""))
        for path in filter(_ATTEMPT.search, paths):
            self.staging.remove(path)
        is_shared = share_copy(self.source, self.staging)
        if self.fence is None:
            _sync_folders(self.staging, "")
            _rename(self.staging.root, self.files.root)
        else:
            sync_names(self.files, paths)
            self.files.remove(self.fence)
            self.files.sync(layout.OFFSETS)
            note_run(self.files.root, self.files.root, "done")
        return describe_copy(self.source, self.files, given=is_shared)

    @defer_signals()
    def discard(self) -> None:
        """Remove what a failed run has written, unless it is complete. What this run cannot have written stays."""
        if self.fence is None:
            shutil.rmtree(self.staging.root, ignore_errors=True)
            return
        if self.files.stat(self.fence) is None:
            return
        written = {info.name for info in self.source.list("")} | {OWN, layout.STATE}
        for info in self.files.list(""):
            if info.name in written - {OWN, layout.OFFSETS}:
                (self.files.remove_tree if info.is_dir else self.files.remove)(info.name)
        for path in self.files.list_tree(OWN):
            if path != LOCK:
                self.files.remove(path)
        for path in self.files.list_tree(layout.OFFSETS):
            if path != self.fence:
                self.files.remove(path)
        self.files.remove_tree(layout.OFFSETS)  # Spark could start until now, if the fence had gone before the rest


def copy_state_files(source: Directory, staging: Directory, home: str, paths: Iterable[str]) -> None:
    """Copy state files with their checksum files. ``home`` is the final place of the copy."""
    infos = stat_files(source, [name for path in paths for name in (path, *layout.all_checksums(path))])
    _send(source, staging, home, infos)


def copy_all_but_state(source: Directory, staging: Directory, home: str, logs: Logs) -> None:
    """Copy everything except state files and ttlsnap's own folder. ``home`` is the final place of the copy.

    It gets the ``logs`` that the run began with. A later one would take the place of the fence.
    """
    infos: dict[str, FileInfo] = {}
    for info in source.list(""):
        if info.name != OWN:
            infos |= source.list_tree(info.name) if info.is_dir else {info.name: info}
    known = {*map(layout.offset_file, logs.offsets), *map(layout.commit_file, logs.commits)}

    def is_copied(path: str) -> bool:
        path = layout.strip_checksum(path)
        folder, _, name = path.rpartition("/")
        is_log = folder in (layout.OFFSETS, layout.COMMITS) and layout.parse_number(name) is not None
        return path in known if is_log else not layout.is_state_file(path)

    _send(source, staging, home, {path: info for path, info in infos.items() if is_copied(path)})


def _send(source: Directory, staging: Directory, home: str, infos: Mapping[str, FileInfo]) -> None:
    # Without the id, Spark would write one of its own as soon as somebody starts it, even if the fence stops it.
    files = sorted(choose_files(source, infos, home), key=lambda file: (file.path != layout.METADATA, file.path))
    _, changed_paths = Sender(source, staging, max(source.at_once, staging.at_once)).send(files)
    if changed_paths:
        raise BusyError(
            f"{source.root}/{changed_paths[0]} was removed or replaced while ttlsnap copied it: the query is running. "
            "Nothing was changed. Stop the query first"
        )


def write_report(runs: Runs, staging: Directory, run: str, report: dict[str, Any]) -> None:
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


def _sync_folders(staging: Directory, path: str) -> None:
    """Sync the names of all files and folders. Their content is synced when it is written."""
    for info in staging.list(path):
        if info.is_dir:
            _sync_folders(staging, f"{path}/{info.name}".lstrip("/"))
    staging.sync(path)


def _rename(staging: str, destination: str) -> None:
    try:
        os.rename(staging, destination)  # noqa: PTH104 - one system call
        note_run(destination, destination, "done")
        parent = os.open(Path(destination).parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise StorageError(f"cannot rename {staging} to {destination}: {error.strerror}") from error
