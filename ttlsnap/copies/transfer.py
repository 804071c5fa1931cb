"""Sending the files of a checkpoint to another directory, with a digest of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import xxhash

from ttlsnap.checkpoint.file_checksums import verified
from ttlsnap.copies.earlier import EarlierCopy
from ttlsnap.copies.manifest import DERIVED, CopiedFile
from ttlsnap.copies.selection import SelectedFile
from ttlsnap.errors import BusyError, CorruptionError, StorageError, explain_errors
from ttlsnap.printable import shell_word
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.trees import make_folders
from ttlsnap.storage.unsynced import Unsynced

_PIECE = 8 << 20
_MOST_BYTES = 256 << 20
"""The most bytes of files that are on their way at the same time, if they are not larger themselves."""
_RENAMED_S = 0.5
_THREADS = 4
"""The threads between local disks: some wait for the disk, while others compute digests."""


class ChangedError(BusyError):
    """A file of the source that was removed or replaced before it was copied."""


class Sender:
    """Sends files of ``source`` to ``target``, at most ``at_once`` of them at the same time.

    What an ``earlier`` copy has already is not sent, if the target can share it. ``shared`` are these files.
    """

    def __init__(
        self, source: Directory, target: Directory, at_once: int | None = None, earlier: EarlierCopy | None = None
    ) -> None:
        self._source, self._target, self._earlier = source, target, earlier
        self.shared: list[CopiedFile] = []
        self._at_once = at_once or max(source.at_once, target.at_once, _THREADS)
        self._room, self._unsynced = _Room(_MOST_BYTES), Unsynced()

    def send(self, files: Sequence[SelectedFile]) -> tuple[list[CopiedFile], list[str]]:
        """Send files, and return those that have arrived, and the paths of those that have changed in the source.

        What was sent is on the disk. Raise StorageError if the storage refuses an operation.
        """
        make_folders(self._target, [file.path for file in files])
        threads = min(self._at_once, len(files))
        with Unsynced() as self._unsynced:
            results = list(map(self._try_to_send, files)) if threads <= 1 else self._send_on(threads, files)
        copied_files = [result for result in results if isinstance(result, CopiedFile)]
        return copied_files, [result for result in results if isinstance(result, str)]

    def _send_on(self, threads: int, files: Sequence[SelectedFile]) -> list[CopiedFile | str]:
        with ThreadPoolExecutor(threads) as pool:
            try:
                return list(pool.map(self._try_to_send, files))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _try_to_send(self, file: SelectedFile) -> CopiedFile | str:
        try:
            with self._room.take(file.info.size):
                return self._send(file)
        except ChangedError:
            return file.path

    def _send(self, file: SelectedFile) -> CopiedFile:
        known_file = self._earlier.find(file) if self._earlier is not None else None
        if known_file is not None or isinstance(self._target, LocalDirectory):
            # An attempt before may have left a hard link to a file of another copy, which must not change.
            self._target.remove(file.path)
        if known_file is not None and self._earlier is not None and self._target.take(self._earlier.files, file.path):
            self.shared.append(known_file)
            return replace(known_file, changed_ns=_changed_ns(file))
        digest, size = xxhash.xxh3_128(), 0
        with self._target.writer(file.path, self._unsynced) as copy:
            for piece in self._pieces(file):
                digest.update(piece)
                copy.write(piece)
                size += len(piece)
            if file.content is None and not file.parts and size != file.info.size:
                raise ChangedError(f"{self._source.root}/{file.path} has changed while it was copied")
            if known_file is not None and self._earlier is not None and digest.hexdigest() != known_file.digest:
                raise CorruptionError(
                    f"{self._source.root}/{file.path} looks as it did when {self._earlier.files.root} was made, and "
                    "has another content: the disk may have changed it. The copy is not complete. See: ttlsnap doctor "
                    f"{shell_word(self._source.root)}. If the file is as it should be, copy without --onto. For the "
                    "backups of a policy, move that earlier one to another folder"
                )
        return CopiedFile(file.path, size, digest.hexdigest(), _changed_ns(file))

    def _pieces(self, file: SelectedFile) -> Iterator[bytes]:
        if file.content is not None:
            yield file.content
            return
        if not file.parts:
            yield from self._read_verified(file)
        for number, path in enumerate(file.parts):
            pieces = self._read(path)
            # The first line is the version, which all parts have.
            version, newline, entries = next(pieces, b"").partition(b"\n")
            yield newline + entries if number else version + newline + entries
            yield from pieces

    def _read_verified(self, file: SelectedFile) -> Iterator[bytes]:
        """Yield the content of a file. Raise CorruptionError if it does not match its checksum file."""
        source, pieces = self._source, self._read(file.path)
        try:
            yield from verified(source, file.path, file.info.size, file.checksums, pieces)
        except (CorruptionError, StorageError) as error:
            if isinstance(error, StorageError) and all(source.stat(name) is not None for name in file.checksums):
                raise
            # Spark renames a file and its checksum file into place one after the other.
            time.sleep(_RENAMED_S)
            info = source.stat(file.path)
            if info is None or (info.size, info.mtime_ns) != (file.info.size, file.info.mtime_ns):
                raise ChangedError(f"{source.root}/{file.path} was replaced before it was copied") from None
            with explain_errors(f"See: ttlsnap doctor {shell_word(source.root)}", CorruptionError):
                for _ in verified(source, file.path, info.size, file.checksums, self._read(file.path)):
                    pass
            raise ChangedError(f"a checksum file of {source.root}/{file.path} was replaced") from None

    def _read(self, path: str) -> Iterator[bytes]:
        try:
            with self._source.open(path) as source_file:
                while piece := source_file.read(_PIECE):
                    yield piece
        except StorageError:
            if self._source.stat(path) is not None:
                raise
            raise ChangedError(f"{self._source.root}/{path} was removed before it was copied") from None


def _changed_ns(file: SelectedFile) -> int:
    """Return when the original of a copied file was changed; ``DERIVED`` if its content is not that of the original."""
    return file.info.mtime_ns if file.content is None and not file.parts else DERIVED


class _Room:
    """The bytes of files that may be on their way. A file that is larger than all of it takes all of it."""

    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit
        self._changed = threading.Condition()

    @contextmanager
    def take(self, size: int) -> Iterator[None]:
        size = min(size, self._limit)
        with self._changed:
            self._changed.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            with self._changed:
                self._left += size
                self._changed.notify_all()
