"""An S3 server, moto's, behind a proxy that does to requests what networks and services do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from moto.server import ThreadedMotoServer

CHANGING = ("PUT", "POST", "DELETE")
_OF_A_CONNECTION = ("connection", "keep-alive", "transfer-encoding")


@dataclass(frozen=True)
class Request:
    """One request: how many have changed something before it and with it, and what it is."""

    changes: int
    method: str
    path: str


Fault = Callable[[Request], str | None]
"""What becomes of a request: None, that it is answered; ``lost`` before it has come, or its answer is
(``unanswered``); it, or its answer, is cut off (``half``, ``half answer``); ``slow``; ``busy``, the store wants it
again later; ``forbidden``; ``careless``, the store takes no notice of conditions."""


def fine(request: Request) -> str | None:
    """No fault."""
    return None


@dataclass
class S3:
    """A server at ``endpoint``, and what is the matter with it; ``seen`` are the requests that came."""

    endpoint: str
    fault: Fault = fine
    seen: list[Request] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, method: str, path: str) -> Request:
        with self._lock:
            changes = sum(request.method in CHANGING for request in self.seen) + (method in CHANGING)
            self.seen.append(Request(changes, method, path))
            return self.seen[-1]

    def reset(self) -> None:
        """Well again."""
        with self._lock:
            self.fault = fine
            self.seen.clear()

    def make_bucket(self, name: str) -> None:
        connection = HTTPConnection(self.endpoint.partition("//")[2])
        connection.request("PUT", f"/{name}")
        assert connection.getresponse().status == 200
        connection.close()


@contextlib.contextmanager
def s3_server() -> Iterator[S3]:
    """The server, for as long as the block lasts."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    behind = moto.get_host_and_port()
    s3 = S3("")

    class Handler(_Handler):
        server_of, target = s3, f"{behind[0]}:{behind[1]}"

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    s3.endpoint = f"http://127.0.0.1:{proxy.server_address[1]}"
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield s3
    finally:
        proxy.shutdown()
        proxy.server_close()
        moto.stop()


class _Handler(BaseHTTPRequestHandler):
    server_of: S3
    target: str
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server_of.fault(self.server_of.note(self.command, self.path))
        if fault == "lost":
            self._hang_up()
            return
        if fault == "busy":
            self._answer(503, [], b"<Error><Code>SlowDown</Code><Message>later</Message></Error>")
            return
        if fault == "forbidden":
            self._answer(403, [], b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
            return
        if fault == "slow":
            time.sleep(0.3)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_A_CONNECTION}
        if fault == "careless":
            headers = {name: value for name, value in headers.items() if not name.lower().startswith("if-")}
        if fault == "half":
            self._send_half(headers, body)
            return
        connection = HTTPConnection(self.target)
        connection.request(self.command, self.path, body, headers)
        response = connection.getresponse()
        answer, told = response.read(), response.getheaders()
        connection.close()
        if fault == "unanswered":
            self._hang_up()
            return
        self._answer(response.status, told, answer, cut=fault == "half answer")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in (*_OF_A_CONNECTION, "content-length"):
                self.send_header(name, value)
        lengths = [value for name, value in headers if name.lower() == "content-length"]
        length = lengths[0] if self.command == "HEAD" and lengths else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if cut:
            self.wfile.write(body[: len(body) // 2])
            self._hang_up()
        elif self.command != "HEAD":
            self.wfile.write(body)

    def _send_half(self, headers: dict[str, str], body: bytes) -> None:
        """The server gets the beginning of a request, and then nothing more."""
        host, _, port = self.target.partition(":")
        with socket.create_connection((host, int(port))) as connection:
            lines = [f"{self.command} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body[: len(body) // 2])
        self._hang_up()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True
