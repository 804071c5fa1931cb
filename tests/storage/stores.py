"""Servers of object storage, each in its own process: moto from PyPI, and the servers that ``make servers`` builds."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from secrets import token_hex

from ..environments import find, folder_of
from .proxy import Proxy, proxied

_REGION, _NAME, _SECRET = "eu-central-1", "somebody", "not a secret"
_ACCOUNT = "devstoreaccount1"
# Azurite's only account, https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
_ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Kind:
    """A kind of server.

    ``command`` starts it with a port and a folder. ``uri`` is the pattern of a bucket's URI. ``environment`` returns
    the environment variables for an endpoint. ``make_bucket`` makes a bucket at an endpoint.
    """

    command: Callable[[int, Path], list[str]]
    uri: str
    environment: Callable[[str], dict[str, str]]
    make_bucket: Callable[[str, str], None]


@dataclass
class Store:
    """A running server, and the proxy in front of it."""

    kind: Kind
    proxy: Proxy

    def new_bucket(self) -> str:
        """Make a bucket. Return its URI."""
        name = f"test-{token_hex(6)}"
        self.kind.make_bucket(self.proxy.endpoint, name)
        self.proxy.reset()
        return self.kind.uri.format(name)


@contextlib.contextmanager
def store_server(name: str, folder: Path) -> Iterator[Store]:
    """Run the server with this name while the block runs."""
    kind = KINDS[name]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "data").mkdir(parents=True)
    secrets = {"ROOT_ACCESS_KEY": _NAME, "ROOT_SECRET_KEY": _SECRET, "MINIO_ROOT_USER": _NAME}
    path = f"{folder_of('servers') / 'bin'}:{os.environ['PATH']}"  # Azurite needs the Node in this folder
    environment = {**os.environ, **secrets, "PATH": path, "MINIO_ROOT_PASSWORD": _SECRET, "MINIO_REGION": _REGION}
    with (folder / "log").open("wb") as log, contextlib.ExitStack() as stack:
        command = kind.command(port, folder / "data")
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        stack.callback(process.wait)
        stack.callback(os.killpg, process.pid, signal.SIGKILL)
        _wait_for(port, process, folder / "log")
        yield Store(kind, stack.enter_context(proxied(f"127.0.0.1:{port}")))


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers, and is ready: MinIO answers 503 before."""
    until = time.monotonic() + 60
    while True:
        assert process.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
        with (
            contextlib.suppress(OSError),
            contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection,
        ):
            connection.request("GET", "/")
            if connection.getresponse().status < 500:
                return
        time.sleep(0.1)


def _program(name: str) -> str:
    """Return the path of a program that ``make servers`` has built."""
    return str(find("servers") / "bin" / name)


def _s3(endpoint: str) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": _NAME, "AWS_SECRET_ACCESS_KEY": _SECRET}
    return {**keys, "AWS_REGION": _REGION, "AWS_ENDPOINT_URL": endpoint}


def _make_s3(endpoint: str, name: str) -> None:
    import boto3  # type: ignore[import-untyped]

    place = {"LocationConstraint": _REGION}
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name, CreateBucketConfiguration=place)


def _azure(endpoint: str) -> dict[str, str]:
    return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": endpoint}


def _make_azure(endpoint: str, name: str) -> None:
    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient(f"{endpoint}/{_ACCOUNT}", credential=_ACCOUNT_KEY) as client:
        client.create_container(name)


def _moto(port: int, folder: Path) -> list[str]:
    return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]


def _versity(port: int, folder: Path) -> list[str]:
    return [_program("versitygw"), "--port", f"127.0.0.1:{port}", "--region", _REGION, "posix", str(folder)]


def _minio(port: int, folder: Path) -> list[str]:
    addresses = ["--address", f"127.0.0.1:{port}", "--console-address", "127.0.0.1:0"]
    return [_program("minio"), "server", str(folder), *addresses]


def _azurite(port: int, folder: Path) -> list[str]:
    place = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    return [_program("azurite-blob"), *place, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]


KINDS = {
    "moto": Kind(_moto, "s3://{}", _s3, _make_s3),
    "versitygw": Kind(_versity, "s3://{}", _s3, _make_s3),
    "minio": Kind(_minio, "s3://{}", _s3, _make_s3),
    "azurite": Kind(_azurite, f"abfss://{{}}@{_ACCOUNT}.dfs.core.windows.net", _azure, _make_azure),
}
