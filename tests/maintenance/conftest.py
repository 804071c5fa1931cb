"""A night has a target in an object store."""

from ..objects.conftest import bucket, s3, server

__all__ = ["bucket", "s3", "server"]
