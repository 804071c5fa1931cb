"""Stores that accept connections and never answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ttlsnap import recover
from ttlsnap.errors import StorageError
from ttlsnap.storage import objects, patience
from ttlsnap.storage.open import open_directory

from ..samples import sample
from .denied import COMMANDS, change_of, denied_from, ended
from .places import objects_of, upload
from .proxy import Proxy, Request


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 0.5)
    monkeypatch.setattr(patience, "REPEAT_S", 0)
    monkeypatch.setattr(objects, "RETRIES", {"max_retries": 0})


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Run a server that never answers. Return its host and port."""
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted.append(server.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    for connection in accepted:
        connection.close()


@pytest.mark.slow
def test_a_name_node_that_never_answers_is_an_error(silent_server: str) -> None:
    files = open_directory(f"hdfs://{silent_server}/checkpoint")
    requests: tuple[Callable[[], object], ...] = (
        lambda: files.stat("offsets"),
        lambda: files.list("offsets"),
        lambda: files.read("offsets", 1),
        lambda: files.open("offsets"),
        lambda: files.rename("offsets", "commits"),
        lambda: files.remove("offsets"),
        lambda: files.mkdirs("offsets"),
    )
    for request in requests:
        with pytest.raises(StorageError, match="no answer within"):
            request()


def test_an_object_store_that_never_answers_is_an_error(silent_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-central-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{silent_server}")
    files = open_directory("s3://silent/checkpoint")
    with pytest.raises(StorageError, match="cannot look at s3://silent/checkpoint/offsets: "):
        files.stat("offsets")
    assert patience.patience_with("s3://silent").is_hurried


@pytest.mark.wide
@pytest.mark.parametrize("store", ["moto"], indirect=True)
def test_a_run_whose_store_falls_silent_says_that_it_is_interrupted(
    proxy: Proxy, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 5.0)  # a busy machine needs some time for each answer
    monkeypatch.setattr(patience, "HURRIED_S", 3.0)
    monkeypatch.setattr(objects, "RETRIES", {"max_retries": 0})
    objects.client.cache_clear()
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/checkpoint")
    old, denied = objects_of(uri), denied_from(change_of("/backup/state/"))

    def fault(request: Request) -> str | None:
        return "silent" if denied(request) else None

    end = ended(proxy, capsys, uri, COMMANDS["compact"].on(uri, tmp_path), fault)
    assert end.first.startswith("Error: cannot rename ")
    assert f"Run {end.open_run} is interrupted, and Spark does not start." in end.err
    recover(uri, prefer_undo=True)
    assert objects_of(uri) == old
    assert not patience.patience_with(bucket).is_hurried


def test_a_store_gets_less_time_from_an_unanswered_request_to_the_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 20.0)
    store = patience.Patience()
    with pytest.raises(ValueError, match="refused"), store.watch():
        raise ValueError("refused")
    assert not store.is_hurried
    monkeypatch.setattr(patience, "ANSWER_S", 0.0)
    with pytest.raises(TimeoutError), store.watch():
        raise TimeoutError
    monkeypatch.setattr(patience, "ANSWER_S", 20.0)
    assert (store.is_hurried, store.answer_s) == (True, patience.HURRIED_S)
    with store.watch():
        pass
    assert (store.is_hurried, store.answer_s) == (False, 20.0)


def test_a_call_returns_what_the_client_returns_and_raises_what_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 20.0)
    store = patience.Patience()
    assert store.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        store.call(divmod, 7, 0)
