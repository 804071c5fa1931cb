from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from datetime import timedelta
from secrets import token_hex

import pytest

from ttlsnap.storage import objects

from ..matrix import FULL
from .hdfs import hdfs_server
from .proxy import Proxy
from .stores import KINDS, Store, store_server

STORES = [*KINDS] if FULL else ["moto"]
PLACES = [*STORES, "hdfs"] if FULL else STORES


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as uri:
        yield uri


@pytest.fixture(scope="session")
def store_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Store]]:
    """Return a function that starts the server with a given name. The server runs until the session ends."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def server(name: str) -> Store:
            return stack.enter_context(store_server(name, tmp_path_factory.mktemp(name)))

        yield server


@pytest.fixture
def store_of(store_servers: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Store]:
    """Return a function that prepares a server without faults and sets the environment for it.

    The client gives up after a second instead of minutes.
    """

    def of(name: str) -> Store:
        store = store_servers(name)
        store.proxy.reset()
        for unwanted in ("AWS_PROFILE", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(unwanted, raising=False)
        for variable, value in store.kind.environment(store.proxy.endpoint).items():
            monkeypatch.setenv(variable, value)
        brief = {
            "max_retries": 3,
            "backoff": {"init_backoff": timedelta(milliseconds=20), "max_backoff": timedelta(seconds=1)},
        }
        monkeypatch.setattr(objects, "RETRIES", brief)
        monkeypatch.setattr(objects, "PAUSES", (0, 0.01, 0.01, 0.02))
        objects.client.cache_clear()
        return store

    return of


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, store_of: Callable[[str], Store]) -> Store:
    return store_of(request.param)


@pytest.fixture
def proxy(store: Store) -> Proxy:
    return store.proxy


@pytest.fixture
def bucket(store: Store) -> str:
    """Return the URI of a new bucket."""
    return store.new_bucket()


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, store_of: Callable[[str], Store]) -> str:
    """Return the URI of an empty folder that is not on this machine's file systems."""
    if request.param == "hdfs":
        return f"{request.getfixturevalue('hdfs')}/test-{token_hex(6)}"
    return store_of(request.param).new_bucket()
