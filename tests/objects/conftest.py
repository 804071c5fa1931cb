from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from secrets import token_hex

import pytest

from ttlsnap import objects

from ..matrix import FULL
from .hdfs import hdfs_server
from .server import S3, s3_server


@pytest.fixture(scope="session")
def server() -> Iterator[S3]:
    with s3_server() as s3:
        yield s3


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as uri:
        yield uri


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """The server, as the environment names it, and a client that does not try for minutes."""
    server.reset()
    for name in ("AWS_PROFILE", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    brief = {
        "max_retries": 3,
        "backoff": {"init_backoff": timedelta(milliseconds=20), "max_backoff": timedelta(seconds=1)},
    }
    monkeypatch.setattr(objects, "RETRIES", brief)
    objects.client.cache_clear()
    return server


@pytest.fixture
def bucket(s3: S3) -> str:
    """The URI of a new bucket."""
    name = f"test-{token_hex(6)}"
    s3.make_bucket(name)
    s3.seen.clear()
    return f"s3://{name}"


@pytest.fixture(params=["s3", "hdfs"] if FULL else ["s3"])
def place(request: pytest.FixtureRequest) -> str:
    """The URI of an empty folder that is not on this machine's file systems."""
    if request.param == "s3":
        return str(request.getfixturevalue("bucket"))
    return f"{request.getfixturevalue('hdfs')}/test-{token_hex(6)}"
