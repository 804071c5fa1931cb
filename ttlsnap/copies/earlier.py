"""An earlier copy of the same checkpoint, whose files a new copy can share where they are the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import xxhash

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.copies.manifest import DAMAGED, CopiedFile, Manifest, read_manifest
from ttlsnap.copies.selection import SelectedFile
from ttlsnap.copies.verify import find_differences, is_unused
from ttlsnap.errors import RefusedError, StorageError, UsageError
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory, FileInfo
from ttlsnap.storage.trees import stat_files


@dataclass(frozen=True)
class EarlierCopy:
    """A complete copy: its directory, its manifest, and the files that are still there."""

    files: Directory
    manifest: Manifest
    infos: Mapping[str, FileInfo]

    @classmethod
    def open(cls, files: Directory) -> EarlierCopy:
        """Return the copy in a directory.

        Raise UsageError if it has no manifest, and RefusedError if its files can be others than the manifest says.
        """
        manifest = read_manifest(files)
        if manifest is None:
            if files.stat("") is None:
                raise UsageError(f"{files.root} does not exist. --onto needs an earlier copy")
            raise UsageError(f"{files.root} is not a complete copy: it has no manifest. --onto needs one")
        if not is_unused(manifest, Runs.read(files), read_logs(files)):
            raise RefusedError(
                f"a query or a run of ttlsnap has worked on {files.root} since it was made, so its files can be others "
                "than its manifest says. Name another earlier copy for --onto"
            )
        return cls(files, manifest, stat_files(files, manifest.files))

    def require_original(self, source: Directory, query_id: str | None) -> None:
        """Raise RefusedError if this is a copy of another checkpoint than ``source``, whose query has this id."""
        facts = self.manifest.facts
        if (facts.source_query_id or facts.source) != (query_id or source.root):
            raise RefusedError(
                f"{self.files.root} is a copy of another query (id {facts.source_query_id}) than {source.root} (id "
                f"{query_id}). Name an earlier copy of the same checkpoint for --onto"
            )

    def find_damaged(self, files: Iterable[SelectedFile]) -> list[str]:
        """Return the paths of those files that this copy has, too, and that are not as its manifest says."""
        return self.damaged_among(file.path for file in files if self.find(file) is not None)

    def damaged_among(self, paths: Iterable[str]) -> list[str]:
        """Return those of the paths whose files are not as the manifest of this copy says."""
        known_files = {path: self.manifest.files[path] for path in paths if path in self.manifest.files}
        differences = find_differences(self.files, Manifest(self.manifest.facts, known_files))
        return [path for path, _ in differences if path in known_files]

    def mark_damaged(self, found_by: str) -> None:
        """Record in this copy that it is damaged, as the copy ``found_by`` has found, if this user may do that."""
        words = f"files of this copy are damaged, as was found when {found_by} was made\n"
        with suppress(StorageError):
            self.files.replace(DAMAGED, words.encode())

    def is_marked(self) -> bool:
        """Return whether it is recorded that this copy is damaged."""
        return self.files.stat(DAMAGED) is not None

    def find(self, file: SelectedFile) -> CopiedFile | None:
        """Return the file of this copy that is the same as ``file``; None if there is none, or if it is not known."""
        known_file = self.manifest.files.get(file.path)
        if known_file is None or file.parts:
            return None
        if file.content is not None:
            is_same = known_file.digest == xxhash.xxh3_128_hexdigest(file.content)
        else:
            # No two tables of RocksDB have the same name, and they never change.
            is_table = f"/{layout.SSTS}/" in file.path and file.path.endswith(".sst")
            has_its_time = self.manifest.facts.format > 1 or layout.is_state_file(file.path)
            is_unchanged = is_table or (has_its_time and known_file.changed_ns == file.info.mtime_ns)
            is_same = is_unchanged and known_file.size == file.info.size
        if not is_same:
            return None
        info = self.infos.get(file.path)
        return known_file if info is not None and info.size == known_file.size else None
