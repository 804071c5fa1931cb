"""Fixtures for targets in object stores."""

from ..storage.conftest import bucket, proxy, servers, store, store_of

__all__ = ["bucket", "proxy", "servers", "store", "store_of"]
