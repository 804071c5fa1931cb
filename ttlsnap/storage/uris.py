"""The URIs of checkpoints, and their form in Hadoop."""

from __future__ import annotations

from urllib.parse import urlparse

from ttlsnap.errors import UsageError

OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "az": "az"}
"""The supported schemes of object stores, including Hadoop's, and the names that the client uses for them."""


REMOTE = {**OBJECT_STORES, "hdfs": "hdfs"}
"""The schemes of all storages that are not on this machine."""


def is_local(target: str) -> bool:
    """Return whether ``target`` is on this machine's file systems. Raise UsageError unless it is a path or a URI."""
    try:
        return urlparse(target).scheme not in REMOTE
    except ValueError as error:
        raise UsageError(f"{target}: not a path or a URI ({error})") from error


def hadoop_uri(root: str) -> str:
    """Return the URI of the directory ``root`` in Spark. For S3, Hadoop has only the file system ``s3a``."""
    if is_local(root):
        return f"file:{root}"
    scheme, _, place = root.partition("://")
    return f"{'s3a' if REMOTE[scheme] == 's3' else scheme}://{place}"
