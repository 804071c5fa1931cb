"""Object stores as directories: S3 and stores with its protocol, Google Cloud Storage, Azure.

They follow the rules of ``Directory`` in another way than a disk:

* An object appears complete or not at all, and it is durable once the store has answered. So there is nothing to sync.
  Folders exist only in names.
* ``create`` is a conditional write (``If-None-Match``). If an answer is lost, the client asks again, and learns that
  the object already exists. Then the content shows who wrote it. ``instead_of`` is a conditional write, too
  (``If-Match``).
* A rename is a copy and then a deletion. ``complete_rename`` finishes one that was interrupted between the two.
* A request may arrive after another process has taken over. So a copy into ttlsnap's own folder never overwrites. A
  copy out of it then fails, because whoever takes over gives its source another name. A deletion names the ETag that it
  expects. On S3, the ETag depends only on the content, and undoing a run restores the content. So a mark is copied over
  the object first. Nobody else writes its content. Then the mark is deleted.
* No kernel releases the lock of a process that has died, so a lock is a lease. Its owner renews the object. Another
  process may take it over after it has expired by the store's own clock (see ``ttlsnap.storage.lease``).

Credentials, region and endpoint come from the environment, by the names that each provider's own tools use.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, NotFoundError, PreconditionError
from obstore.store import from_url

from ttlsnap.errors import BusyError, RefusedError, StorageError, UnsupportedError, UsageError, tidy_after_error
from ttlsnap.storage import patience
from ttlsnap.storage.access import Access
from ttlsnap.storage.conditional import COPY, delete, delete_version, version_of
from ttlsnap.storage.directory import LOCK, OWN, SCRATCH, Directory, FileInfo, each, has_changed, scratch_name
from ttlsnap.storage.lease import MAX_LOCK_BYTES, Lease, Owner, refuse_if_alive
from ttlsnap.storage.spool import open_spool
from ttlsnap.storage.unsynced import Unsynced
from ttlsnap.storage.uris import OBJECT_STORES, split_uri

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta, UpdateVersion
    from obstore.store import ObjectStore, RetryConfig

# The last try begins before ``retry_timeout`` ends, and takes at most ``ANSWER_S``. Together they must be shorter than
# the part of a lease that is left for a change in progress (see ``storage.lease``).
RETRIES: RetryConfig = {"max_retries": 10, "retry_timeout": timedelta(seconds=patience.REPEAT_S)}
_NO_RETRIES: RetryConfig = {"max_retries": 0}
# The beginning of the mark that takes the place of an object before it is deleted, and the size of the whole mark.
_MARK = b"This object is being moved by ttlsnap: "
_MARK_BYTES = len(_MARK) + 32
_PIECE = 8 << 20
# The addresses at which a client asks for the role of its machine, in AWS and elsewhere.
_METADATA = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
_TRUNCATED = "request or response body error"
PAUSES: tuple[float, ...] = (0, 0.1, 0.5, 2)
"""Seconds before each further try after a truncated answer, or of a change after an error of the network."""

Answer = TypeVar("Answer")


class ObjectDirectory:
    """The objects of a bucket whose names begin with a prefix. ``root`` is a URI without a slash at its end."""

    at_once = 32
    has_folders = False
    renames_in_one_step = False
    failures_are_final = False

    def __init__(self, target: str) -> None:
        # Taken literally, as by the providers' own tools: a % does not begin an escape sequence.
        scheme, bucket, path = split_uri(target)
        if not bucket:
            raise UsageError(f"{target} does not name a bucket; write {scheme}://bucket/path")
        self._prefix = path.strip("/")
        self._bucket = f"{OBJECT_STORES[scheme]}://{bucket}"
        self.root = f"{scheme}://{bucket}/{self._prefix}".rstrip("/")
        self._lease: Lease[UpdateVersion] | None = None
        self._patience = patience.patience_with(self._bucket)

    def __repr__(self) -> str:
        return f"ObjectDirectory({self.root!r})"

    @property
    def _store(self) -> ObjectStore:
        # Created in the process that uses it, because a client cannot be sent to another process.
        return client(self._bucket, os.getpid(), self._patience.answer_s, self._patience.is_hurried)

    def _key(self, path: str) -> str:
        names = [name for name in path.split("/") if name]
        if path.startswith("/") or ".." in names or "." in names or "\0" in path:
            raise RefusedError(f"{path!r} leads outside {self.root}")
        return "/".join([self._prefix, *names] if self._prefix else names)

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        key = self._key(path)
        with _errors("list", self, path):
            listing = _ask(lambda: obstore.list_with_delimiter(self._store, f"{key}/" if key else None))
        # Hadoop's S3A and web consoles make an empty object with the name of a folder.
        infos = [_info(meta) for meta in listing["objects"] if meta["path"] != key]
        infos += [FileInfo(_name(prefix), 0, 0, is_dir=True) for prefix in listing["common_prefixes"]]
        return sorted((info for info in infos if info.name.endswith(suffixes)), key=lambda info: info.name)

    def list_tree(self, path: str, most: int | None = None) -> dict[str, FileInfo]:
        key_prefix, root = f"{self._key(path)}/", self._key("")
        with _errors("list", self, path):
            objects = _ask(lambda: _first(obstore.list(self._store, key_prefix), most))
        return {meta["path"].removeprefix(root).lstrip("/"): _info(meta) for meta in objects}

    def stat(self, path: str) -> FileInfo | None:
        key = self._key(path)
        if key and (meta := self._head(path)) is not None:
            return _info(meta)
        with _errors("look at", self, path):
            objects_below = _ask(
                lambda: next(iter(obstore.list(self._store, f"{key}/" if key else None, chunk_size=1)), [])
            )
        return FileInfo(_name(key), 0, 0, is_dir=True) if objects_below else None

    def real_path(self, path: str) -> str:
        """Return the URI of the path itself: there are no links."""
        return f"{self.root}/{path}"

    # Objects have no links and no mounts, and no owners or modes that matter to a query.

    def access(self, path: str) -> Access | None:
        return None

    def effective_access(self, path: str) -> Access | None:
        return None

    def set_access(self, path: str, access: Access) -> bool:
        return True

    def is_link(self, path: str) -> bool:
        return False

    def mount(self, path: str) -> Hashable:
        return None

    def open(self, path: str) -> BinaryIO:
        key = self._key(path)
        with _errors("open", self, path):
            try:
                meta, first_bytes = _ask(lambda: _piece(obstore.get(self._store, key, options={"range": (0, _PIECE)})))
            except GenericError:
                # An empty object has no range.
                meta, first_bytes = obstore.head(self._store, key), b""
                if meta["size"]:
                    raise
        return cast("BinaryIO", io.BufferedReader(_RawObject(self, path, meta, first_bytes), _PIECE))

    def read(self, path: str, limit: int) -> bytes:
        """Return the whole object. Raise StorageError if it is longer than ``limit`` bytes."""
        with _errors("read", self, path):
            content = _ask(lambda: _whole(obstore.get(self._store, self._key(path)), limit))
        if content is not None:
            return content
        raise StorageError(f"{self.root}/{path} is longer than {limit} bytes, but such a file is never that long")

    def make_local(self, path: str, place: Path) -> None:
        """Copy the object to a local path, to read it there."""
        with self.open(path) as source, place.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)

    def create(self, path: str, data: bytes) -> bool:
        """Create ``path`` with ``data``, complete. Return False if it already exists.

        No two callers may use the same ``data``.
        """
        with _errors("create", self, path):
            try:
                self._change(lambda: obstore.put(self._store, self._key(path), data, mode="create"))
            except AlreadyExistsError:
                return _ask(lambda: _whole(obstore.get(self._store, self._key(path)), len(data))) == data
        return True

    def replace(self, path: str, data: bytes, *, instead_of: bytes | None = None) -> None:
        """Replace the content of ``path`` at once: readers see the old content or the new.

        With ``instead_of``, raise BusyError unless the object has this content, or does not exist if that is empty.
        """
        with _errors("write", self, path):
            if instead_of is None:
                self._change(lambda: obstore.put(self._store, self._key(path), data))
            elif not instead_of:
                if not self.create(path, data):
                    raise has_changed(self.root, path)
            else:
                self._change(lambda: self._replace_version(path, data, instead_of))

    def _replace_version(self, path: str, data: bytes, instead_of: bytes) -> None:
        version, existing_content = self._read_version(path, max(len(data), len(instead_of)))
        if existing_content == data:
            return  # written by an earlier try, whose answer was lost
        if existing_content != instead_of:
            raise has_changed(self.root, path)
        try:
            obstore.put(self._store, self._key(path), data, mode=version)
        except (PreconditionError, AlreadyExistsError, NotFoundError, FileNotFoundError):
            if self._read_version(path, len(data))[1] != data:
                raise has_changed(self.root, path) from None

    def _read_version(self, path: str, limit: int) -> tuple[UpdateVersion, bytes | None]:
        """Return the version and the content of an object. The content is None if it does not exist, or is longer."""
        try:
            stored_object = obstore.get(self._store, self._key(path))
            return version_of(stored_object.meta), _whole(stored_object, limit)
        except (NotFoundError, FileNotFoundError):
            return {}, None

    @contextlib.contextmanager
    def writer(self, path: str, later: Unsynced | None = None) -> Iterator[BinaryIO]:
        """Provide a new object, which exists once the block ends without an error.

        Until then its content is in memory, or on the local disk.
        """
        with open_spool(f"{self.root}/{path}") as file:
            yield file
            file.flush()
            self._upload(file, path)

    def _upload(self, file: BinaryIO, path: str) -> None:
        def put() -> None:
            file.seek(0)
            obstore.put(self._store, self._key(path), file, chunk_size=_PIECE)

        with _errors("write", self, path):
            self._change(put)

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Copy an object to its new name, and delete it. Raise RefusedError if there is another object with that name.

        S3 cannot check that name and, at the same time, that the source still exists. Outside ttlsnap's own folder only
        the source is checked: if another process takes over, it gives the source another name.
        """
        with _errors("rename", self, source):
            if overwrite or (self._is_s3 and not _is_own(target)):
                if not overwrite and self._head(target) is not None:
                    raise self._exists(target)
                self._change(lambda: obstore.copy(self._store, self._key(source), self._key(target)))
            else:
                self._copy_to_free(source, target)
            source_meta, target_meta = (obstore.head(self._store, self._key(path)) for path in (source, target))
        if source_meta["size"] != target_meta["size"]:
            raise StorageError(f"{self.root}/{target} is a copy of {source}, but has another size")
        self._remove_source(source, target)

    def _copy_to_free(self, source: str, target: str) -> None:
        """Copy an object to a name that no other object has. Raise RefusedError if another one has it."""
        try:
            self._change(lambda: obstore.copy(self._store, self._key(source), self._key(target), overwrite=False))
        except AlreadyExistsError as error:
            if not self._same(source, target):  # otherwise an earlier try made it, and its answer was lost
                raise self._exists(target) from error

    def _exists(self, path: str) -> RefusedError:
        return RefusedError(f"{self.root}/{path} already exists. Nothing was overwritten")

    def _remove_source(self, source: str, target: str) -> None:
        """Delete an object that was copied to ``target``. A late request deletes no other object of this name."""
        if not self._is_s3 or _is_own(source):
            self.remove(source)
            return
        mark_path, content = scratch_name(target), _MARK + token_hex(16).encode()
        with _errors("rename", self, source):
            self._change(lambda: obstore.put(self._store, self._key(mark_path), content))
            self._change(lambda: obstore.copy(self._store, self._key(mark_path), self._key(source)))
        self.remove_exactly(source, content)
        self.remove(mark_path)

    def complete_rename(self, source: str, target: str) -> None:
        """Finish a rename that was interrupted between the copy and the deletion."""
        if self._same(source, target):
            self._remove_source(source, target)
        elif _is_own(target) and self._head(target) is not None:
            with _errors("look at", self, source):
                content_of_source = _ask(lambda: self._read_version(source, _MARK_BYTES))[1]
            if content_of_source is not None and content_of_source.startswith(_MARK):
                self.remove_exactly(source, content_of_source)

    def _same(self, first_path: str, second_path: str) -> bool:
        infos = [self.stat(first_path), self.stat(second_path)]
        if None in infos or len({(info.size, info.is_dir) for info in infos if info}) != 1:
            return False
        with self.open(first_path) as first_file, self.open(second_path) as second_file:
            while piece := first_file.read(_PIECE):
                if piece != second_file.read(_PIECE):
                    return False
        return True

    def keep_copy(self, source: str, target: str) -> None:
        """Copy an object that never changes, within the store."""
        with _errors("copy", self, source):
            self._copy_to_free(source, target)

    def take(self, other: Directory, path: str) -> bool:
        """See ``Directory.take``; the object is copied within its bucket."""
        if not isinstance(other, ObjectDirectory) or other._bucket != self._bucket:
            return False
        key = other._key(path)
        with _errors("copy", self, path):
            try:
                self._change(lambda: obstore.copy(self._store, key, self._key(path)))
            except BaseError:
                return False  # S3 does not copy objects above 5 GiB in one request
        return True

    def move_folder(self, source: str, target: str) -> None:
        """Move all objects of a folder to a new folder, except scratch files, which are removed."""
        key_prefix = f"{self._key(source)}/"
        with _errors("rename", self, source):
            objects_below = _ask(lambda: obstore.list(self._store, key_prefix).collect())
            keys_to_move = [meta["path"] for meta in objects_below if not meta["path"].endswith(SCRATCH)]

            def copy(key: str) -> None:
                new_key = f"{self._key(target)}/{key.removeprefix(key_prefix)}"
                self._change(lambda: obstore.copy(self._store, key, new_key))

            each(self, copy, keys_to_move)
        self.remove_tree(source)

    def move_in(self, source: str, path: str) -> None:
        """Move a local file here."""
        place = Path(source)
        with _errors("write", self, path):
            with place.open("rb") as file:
                self._upload(file, path)
            place.unlink()

    def remove(self, path: str) -> None:
        """Delete an object if it exists."""
        with _errors("remove", self, path):
            self._change(lambda: delete(self._store, self._key(path)))

    def remove_exactly(self, path: str, content: bytes) -> None:
        """Delete an object if it exists. Raise BusyError if it has other content."""

        def delete_it() -> None:
            version, existing_content = self._read_version(path, len(content))
            if not version:
                return
            if existing_content != content:
                raise has_changed(self.root, path)
            delete_version(self._store, self._key(path), version, self._patience.answer_s)

        with _errors("remove", self, path):
            self._change(delete_it)

    def remove_tree(self, path: str) -> None:
        """Delete everything in a folder, if it exists."""
        with _errors("remove", self, path):
            objects_below = _ask(lambda: obstore.list(self._store, f"{self._key(path)}/").collect())
            if objects_below:
                self._change(lambda: obstore.delete(self._store, [meta["path"] for meta in objects_below]))

    def remove_folder(self, path: str) -> None:
        """Do nothing: a folder without objects does not exist."""

    def mkdirs(self, path: str) -> None:
        """Do nothing: a folder exists if it contains an object."""

    def sync(self, path: str) -> None:
        """Do nothing: an object is durable once the store has answered."""

    def now_ns(self) -> int:
        """Return the time of the store's clock, in nanoseconds since the epoch."""
        path = f"{OWN}/.clock.{token_hex(4)}"
        with tidy_after_error(partial(self.remove, path)):
            self.replace(path, b"")
            info = self.stat(path)
        self.remove(path)
        if info is None:
            raise StorageError(f"{self.root}/{path} disappeared just after ttlsnap had written it")
        return info.mtime_ns

    @contextlib.contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock. ``shared`` only checks that nobody holds it, because a reader may not be allowed to write.

        Raise BusyError if another process holds it, and UnsupportedError if the store has no conditional writes.
        """
        if shared:
            if (meta := self._head(LOCK)) is not None:
                self._refuse_if_alive(meta, time.time_ns())
            yield
            return
        with Lease(self) as lease:
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    @property
    def _is_s3(self) -> bool:
        return self._bucket.startswith("s3:")

    def _require_lease(self) -> None:
        if self._lease is not None:
            self._lease.require()

    def _change(self, change: Callable[[], Answer]) -> Answer:
        """Make a change, and repeat it a few times after errors of the network. Before each try the lease is checked.

        Each change can be repeated safely.
        """
        deadline = time.monotonic() + self._patience.answer_s
        for seconds in PAUSES:
            self._require_lease()
            try:
                return change()
            except (GenericError, ConnectionError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(seconds)
        self._require_lease()
        return change()

    def _head(self, path: str) -> ObjectMeta | None:
        with _errors("look at", self, path):
            try:
                return obstore.head(self._store, self._key(path))
            except (NotFoundError, FileNotFoundError):
                return None

    def _refuse_if_alive(self, meta: ObjectMeta, now_ns: int) -> None:
        try:
            owner = Owner.read(self.read(LOCK, MAX_LOCK_BYTES))
        except StorageError:
            owner = None
        refuse_if_alive(self.root, owner, (now_ns - _nanoseconds(meta)) / 1e9)

    # The interface for ``Lease``: conditional writes of the lock, which succeed only for the first writer.

    def take_lock(self, data: bytes) -> UpdateVersion:
        """Write the lock if there is none, or if it has expired. Raise BusyError if another process holds it.

        Raise UnsupportedError if the store ignores conditions.
        """
        data = _renewed(data)
        with _errors("lock", self, LOCK):
            try:
                put_result = self._change(lambda: obstore.put(self._store, self._key(LOCK), data, mode="create"))
            except AlreadyExistsError:
                pass
            else:
                self._require_condition("If-None-Match", data, "create")
                return self._replace_lock(data, version_of(put_result))
        meta = self._head(LOCK)
        if meta is None:
            raise BusyError(f"another ttlsnap has just finished with {self.root}; try again")
        if (own_version := self._find_written_lock(data)) is not None:
            return self._replace_lock(data, own_version)
        self._refuse_if_alive(meta, self.now_ns())
        return self._replace_lock(data, version_of(meta))

    def _replace_lock(self, data: bytes, version: UpdateVersion) -> UpdateVersion:
        """Write the lock if it still has ``version``. Try that twice: the second time, the store must refuse."""
        new_version = self.renew_lock(data, version)
        with _errors("lock", self, LOCK):
            self._require_condition("If-Match", _renewed(data), version)
        return new_version

    def renew_lock(self, data: bytes, version: UpdateVersion) -> UpdateVersion:
        """Write the lock again if it still has ``version``. Raise BusyError if another process has taken it over."""
        # Each renewal changes the content: the ETag depends on it, and so shows that the owner is alive.
        renewed_data = _renewed(data)
        with _errors("lock", self, LOCK):
            try:
                return version_of(_ask(obstore.put, self._store, self._key(LOCK), renewed_data, mode=version))
            except (PreconditionError, AlreadyExistsError, NotFoundError, FileNotFoundError, GenericError) as error:
                if (own_version := self._find_written_lock(renewed_data)) is not None:
                    return own_version
                if isinstance(error, GenericError):
                    raise
                raise BusyError(f"another ttlsnap has taken over the lock of {self.root}") from error

    def release_lock(self, version: UpdateVersion) -> None:
        """Remove the lock if it still has ``version``."""
        with _errors("remove", self, LOCK):
            seconds = self._patience.answer_s
            self._change(lambda: delete_version(self._store, self._key(LOCK), version, seconds))

    def _find_written_lock(self, data: bytes) -> UpdateVersion | None:
        """Return the lock's version if it contains ``data``: then it was written, and only the answer was lost."""
        version, lock_content = _ask(lambda: self._read_version(LOCK, MAX_LOCK_BYTES))
        return version if lock_content == data else None

    def _require_condition(self, name: str, data: bytes, mode: Literal["create"] | UpdateVersion) -> None:
        """Raise UnsupportedError if the store makes a write whose condition does not hold.

        A fence could overwrite a file of a query, and two processes could hold the lock.
        """
        with contextlib.suppress(AlreadyExistsError, PreconditionError):
            self._change(lambda: obstore.put(self._store, self._key(LOCK), data, mode=mode))
            self._change(lambda: delete(self._store, self._key(LOCK)))
            raise UnsupportedError(
                f"{self.root}: this store ignores conditional writes ({name}), so ttlsnap cannot exclude other "
                "writers. Copy the checkpoint to a local disk, or to a store that supports them"
            )


class _RawObject(io.RawIOBase):
    """An object that is read piece by piece. ``first`` is its first piece. All pieces are of one version."""

    def __init__(self, directory: ObjectDirectory, path: str, meta: ObjectMeta, first_bytes: bytes) -> None:
        super().__init__()
        self._directory, self._path, self._meta, self._first_bytes, self._place = directory, path, meta, first_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._meta["size"]}[whence]
        self._place = max(start + offset, 0)
        return self._place

    def readall(self) -> bytes:
        """Return the rest, in at most two requests. The base class would ask for 8 KiB at a time."""
        remaining_bytes = memoryview(bytearray(max(self._meta["size"] - self._place, 0)))
        bytes_read = self.readinto(remaining_bytes)
        self.readinto(remaining_bytes[bytes_read:])
        return bytes(remaining_bytes)

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._meta["size"] - self._place)
        if size <= 0:
            return 0
        if self._place < len(self._first_bytes):
            piece = self._first_bytes[self._place : self._place + size]
            buffer[: len(piece)] = piece
            self._place += len(piece)
            return len(piece)
        with _errors("read", self._directory, self._path):
            range_options = {"range": (self._place, self._place + size), "if_match": self._meta["e_tag"]}
            get_range = partial(
                obstore.get, self._directory._store, self._meta["path"], options=cast("Any", range_options)
            )
            _, chunk = _ask(lambda: _piece(get_range()))
        if len(chunk) != size:
            raise StorageError(
                f"{self._directory.root}/{self._path}: {size:,} bytes were requested, {len(chunk):,} arrived"
            )
        buffer[:size] = chunk
        self._place += size
        return size


@cache
def client(bucket: str, process: int, answer_s: float, is_hurried: bool = False) -> ObjectStore:
    """Return the client of a process. A forked process must not use its parent's client.

    A request fails after ``answer_s`` seconds without an answer, and ``is_hurried`` requests are not repeated.
    """
    retries = _NO_RETRIES if is_hurried else RETRIES
    options: dict[str, Any] = {"retry_config": retries, "client_options": {"timeout": timedelta(seconds=answer_s)}}
    if bucket.startswith("s3:") and _endpoint().startswith("http://"):
        options["client_options"]["allow_http"] = True  # a user who sets that endpoint allows it
    if bucket.startswith("s3:") and "AWS_COPY_IF_NOT_EXISTS" not in os.environ:
        # Without a way, the client refuses such copies. For S3 itself, it knows only an upload of several parts
        # (S3CopyIfNotExists of the crate object_store).
        options["copy_if_not_exists"] = COPY
    if bucket.startswith("s3:") and os.environ.get("AWS_PROFILE"):
        options["credential_provider"] = _profile()
    try:
        return from_url(bucket, **options)
    except (BaseError, ValueError) as error:
        raise UsageError(f"{bucket}: {error}") from error


def storage_options(root: str) -> dict[str, str]:
    """Return the options that a client of another library needs in addition to the environment.

    Such a client reads the environment itself.
    """
    limits = {"timeout": f"{patience.ANSWER_S:g}s", "retry_timeout": f"{patience.REPEAT_S:g}s"}
    endpoint = _endpoint()
    if not root.startswith("s3") or not endpoint:
        return limits
    return {**limits, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower()}


def _endpoint() -> str:
    """Return the endpoint of an S3 store that is not Amazon's; empty if none is set."""
    return next(filter(None, map(os.environ.get, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))), "")


def _profile() -> Any:
    """Return the credentials of AWS_PROFILE, which boto3 can find. Raise UsageError without boto3."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise UsageError(
            "AWS_PROFILE is set, but boto3, which reads profiles, is not installed. Run pip install boto3, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    return Boto3CredentialProvider()


def _ask(question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
    """Call ``question``, and up to four more times after truncated answers, which the client does not repeat.

    Each question can be repeated safely. It is not repeated after ``ANSWER_S``.
    """
    deadline = time.monotonic() + patience.ANSWER_S
    for seconds in PAUSES:
        try:
            return question(*arguments, **options)
        except GenericError as error:
            if _TRUNCATED not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(seconds)
    return question(*arguments, **options)


def _first(pages: Iterable[Sequence[ObjectMeta]], limit: int | None) -> list[ObjectMeta]:
    """Return what a listing has, up to the page with which there are more than ``limit``."""
    objects: list[ObjectMeta] = []
    for page in pages:
        objects += page
        if limit is not None and len(objects) > limit:
            break
    return objects


def _piece(stored_object: GetResult) -> tuple[ObjectMeta, bytes]:
    return stored_object.meta, bytes(stored_object.bytes())


def _whole(stored_object: GetResult, limit: int) -> bytes | None:
    """Return the content; None if it is longer than ``limit`` bytes."""
    return bytes(stored_object.bytes()) if stored_object.meta["size"] <= limit else None


def _renewed(data: bytes) -> bytes:
    """Return the content of a lock with a new number, padded as before."""
    lock_document = json.loads(data) | {"renewal": token_hex(8)}
    return json.dumps(lock_document).encode().ljust(len(data))


def _is_own(path: str) -> bool:
    """Return whether no other process writes to this name."""
    return path.startswith(f"{OWN}/") or path.endswith(SCRATCH)


def _name(key: str) -> str:
    return key.rstrip("/").rpartition("/")[2]


def _nanoseconds(meta: ObjectMeta) -> int:
    return round(meta["last_modified"].timestamp() * 1e6) * 1000


def _info(meta: ObjectMeta) -> FileInfo:
    return FileInfo(_name(meta["path"]), meta["size"], _nanoseconds(meta), is_dir=False)


@contextlib.contextmanager
def _errors(verb: str, directory: ObjectDirectory, path: str) -> Iterator[None]:
    try:
        with directory._patience.watch():
            yield
    except (BaseError, OSError) as error:
        place = f"{directory.root}/{path}".rstrip("/")
        raise StorageError(f"cannot {verb} {place}: {_reason(error, directory.root)}") from error


_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login",
    "ab": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and "
    "AZURE_TENANT_ID",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and "
    "AZURE_TENANT_ID",
}


def _reason(error: Exception, root: str) -> str:
    """Return the first line of the client's message, without its debug output, or a text with advice."""
    text = str(error)
    if any(address in text for address in _METADATA):
        return (
            f"no credentials were found: this machine has no role, and the environment has none. Set "
            f"{_CREDENTIALS[root[:2]]} (see Object stores in the documentation)"
        )
    if "NoSuchBucket" in text or "ContainerNotFound" in text:
        return "there is no such bucket"
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
