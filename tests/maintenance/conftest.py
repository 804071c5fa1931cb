"""Fixtures for targets in object stores."""

from ..objects.conftest import bucket, proxy, servers, store, store_of

__all__ = ["bucket", "proxy", "servers", "store", "store_of"]
