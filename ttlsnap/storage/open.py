"""Functions that open the directory at a path or a URI."""

from __future__ import annotations

import os
from pathlib import Path

from ttlsnap.errors import StorageError, UnsupportedError, UsageError
from ttlsnap.extras import require_package
from ttlsnap.storage.directory import Directory, cache_listings
from ttlsnap.storage.local import LocalDirectory, read_up_to
from ttlsnap.storage.uris import REMOTE, is_local, split_uri


def open_directory(target: str) -> Directory:
    """Return the directory that ``target`` names: a path, or a URI of a file, an object store or HDFS.

    The directory need not exist. Raise UnsupportedError for other URI schemes, and UsageError for an invalid path or
    URI, or if the package for the store is not installed.
    """
    if is_local(target):
        return open_local(target)
    if target.lower().startswith("hdfs:"):
        require_package("hdfs-native")
        from ttlsnap.storage.hdfs import HdfsDirectory

        return HdfsDirectory(target)
    require_package("obstore")
    from ttlsnap.storage.objects import ObjectDirectory

    return ObjectDirectory(target)


def open_for_reading(target: str) -> Directory:
    """Return what ``open_directory`` returns, for a directory that is only read, and does not change."""
    return for_reading(open_directory(target))


def for_reading(files: Directory) -> Directory:
    """Return the same directory for a time in which it does not change. Listings of a remote directory are cached."""
    return files if isinstance(files, LocalDirectory) else cache_listings(files)


def open_local(target: str) -> LocalDirectory:
    """Return the local directory that ``target`` (a path or a ``file:`` URI) names.

    Raise UnsupportedError for other URIs, and UsageError for an invalid path or URI.
    """
    if not target:
        raise UsageError("the path is empty; write . for the current folder")
    scheme, host, path = split_uri(target)
    if len(scheme) > 1:
        if scheme in REMOTE:
            raise UnsupportedError(f"{target}: only a local path is possible here")
        if scheme == "dbfs":
            raise UnsupportedError(f"{target}: Databricks mounts dbfs:/ at /dbfs; use /dbfs{path}")
        if scheme != "file":
            raise UnsupportedError(
                f"{target}: the scheme '{scheme}' is not supported; give a local path, or a URI of "
                f"{', '.join(['file', *REMOTE])}"
            )
        if host not in ("", "localhost"):
            raise UsageError(f"{target}: a file: URI cannot have a host; write file:///path")
        if not path.startswith("/"):
            raise UsageError(f"{target}: a file: URI needs an absolute path; write file:///path")
        target = path
    if "\0" in target:
        raise UsageError(f"{target!r}: a path cannot contain a NUL character")
    return LocalDirectory(os.path.realpath(target))


def read_given(path: str | Path, limit: int, kind: str) -> bytes:
    """Return the content of a file that the user named: ``kind``, such as "a policy".

    Raise UsageError if it does not exist or is longer than ``limit`` bytes, and StorageError if it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            data = read_up_to(file, limit + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{path} does not exist; name {kind}") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder; name {kind}") from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > limit:
        raise UsageError(f"{path} is longer than {limit:,} bytes: is that {kind}?")
    return data
