"""Fixtures for targets in object stores."""

from ..storage.conftest import bucket, proxy, store, store_of, store_servers

__all__ = ["bucket", "proxy", "store", "store_of", "store_servers"]
