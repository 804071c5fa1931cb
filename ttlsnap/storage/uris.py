"""The URIs of checkpoints, and their form in Hadoop."""

from __future__ import annotations

import re

from ttlsnap.errors import UsageError

OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "az": "az"}
"""The supported schemes of object stores, including Hadoop's, and the names that the client uses for them."""


REMOTE = {**OBJECT_STORES, "hdfs": "hdfs"}
"""The schemes of all storages that are not on this machine."""


_URI = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", re.DOTALL)
_SLASHES = re.compile("//+")


def split_uri(target: str) -> tuple[str, str, str]:
    """Return the scheme, the host and the path of a path or a URI. What is missing is empty.

    As in Hadoop's ``Path``, the path is literal: ``%20``, ``#`` and ``?`` mean themselves, and slashes count once.
    Raise UsageError for a URI with credentials, which would be shown in reports and logs. Raise it also for ``.`` and
    ``..`` in a URI of an object store or HDFS: Hadoop resolves them, and the clients do not.
    """
    uri_match = _URI.fullmatch(target)
    assert uri_match is not None  # all parts are optional
    scheme, host, path = (part or "" for part in uri_match.groups())
    if not scheme:
        return "", "", target
    user = host.rpartition("@")[0]
    if ":" in user or (scheme.lower() in OBJECT_STORES and "@" in path and ":" in host):
        raise UsageError(
            f"a URI of {scheme}: cannot have credentials. Set them in the environment, by the names of the provider's "
            "own tools, and leave them out of the URI"
        )
    if scheme.lower() in REMOTE and {".", ".."} & {*path.split("/")}:
        raise UsageError(f"{target} has a folder named . or .. in it. Write the path without it")
    return scheme.lower(), host, _SLASHES.sub("/", path)


def is_local(target: str) -> bool:
    """Return whether ``target`` is on this machine's file systems. Raise UsageError unless it is a path or a URI."""
    return split_uri(target)[0] not in REMOTE


def is_within(inner: str, outer: str) -> bool:
    """Return whether the directory ``inner`` is ``outer`` or below it. Both are roots of directories.

    A bucket has several schemes.
    """
    (inner_scheme, host, path), (outer_scheme, other_host, outer_path) = split_uri(inner), split_uri(outer)
    if (REMOTE.get(inner_scheme), host) != (REMOTE.get(outer_scheme), other_host):
        return False
    return f"{path.strip('/')}/".startswith(f"{outer_path.strip('/')}/".lstrip("/"))


def hadoop_uri(root: str) -> str:
    """Return the URI of the directory ``root`` in Spark. For S3, Hadoop has only the file system ``s3a``."""
    if is_local(root):
        # Hadoop's Path writes a local URI without the slashes of an empty host.
        return f"file:{root}"
    scheme, _, place = root.partition("://")
    return f"{'s3a' if REMOTE[scheme] == 's3' else scheme}://{place}"
