"""A night has a target in an object store."""

from ..objects.conftest import bucket, proxy, servers, store, store_of

__all__ = ["bucket", "proxy", "servers", "store", "store_of"]
