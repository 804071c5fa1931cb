"""A proxy that injects the faults of networks and services into requests and answers."""

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
from urllib.parse import unquote

CHANGING = ("PUT", "POST", "DELETE")
_OF_A_CONNECTION = ("connection", "keep-alive", "transfer-encoding")


@dataclass(frozen=True)
class Request:
    """One request, and the number of changing requests up to this one."""

    changes: int
    method: str
    path: str


Fault = Callable[[Request], str | None]
"""A function that returns the fault of a request, or None for no fault.

``lost``: the request does not arrive. ``unanswered``: its answer does not arrive. ``half``: the request is cut off.
``half answer``: the answer is cut off. ``slow``: the answer is late. ``busy``: the store asks for a retry.
``forbidden``: the store denies access. ``careless``: the store ignores conditions. ``forgetful``: it only ignores those
about versions (``If-Match``). ``late``: the connection breaks, and
the request arrives when ``Proxy.deliver`` is called. ``silent``: there is no answer, and the connection stays open."""


def fine(request: Request) -> str | None:
    """Return no fault."""
    return None


@dataclass
class Proxy:
    """A proxy in front of the server at ``target`` (``host:port``).

    ``seen`` has the requests that arrived. ``uploaded`` and ``downloaded`` are the bytes of their bodies and answers.
    ``held`` has the late requests: method, path, headers and body.
    """

    target: str
    endpoint: str = ""
    fault: Fault = fine
    seen: list[Request] = field(default_factory=list)
    uploaded: int = 0
    downloaded: int = 0
    held: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, method: str, path: str) -> Request:
        with self._lock:
            changes = sum(request.method in CHANGING for request in self.seen) + (method in CHANGING)
            self.seen.append(Request(changes, method, unquote(path)))
            return self.seen[-1]

    def count(self, uploaded: int, downloaded: int) -> None:
        with self._lock:
            self.uploaded += uploaded
            self.downloaded += downloaded

    def deliver(self) -> list[int]:
        """Let the late requests arrive. Return the status of each answer."""
        held, self.held = self.held, []
        return [self.forward(*request)[0] for request in held]

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send a request to the server. Return the status, the headers and the body of the answer."""
        with contextlib.closing(HTTPConnection(self.target)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()

    def reset(self) -> None:
        """Remove the fault, and forget the requests, apart from late ones."""
        with self._lock:
            self.fault = fine
            self.seen.clear()
            self.uploaded = self.downloaded = 0


@contextlib.contextmanager
def proxied(target: str) -> Iterator[Proxy]:
    """Run a proxy while the block runs."""
    proxy = Proxy(target)

    class Handler(_Handler):
        before = proxy

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    before: Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.before.fault(self.before.note(self.command, self.path))
        if fault == "lost":
            self._hang_up()
            return
        if fault == "silent":
            self.rfile.read(1)  # until the client closes the connection
            self.close_connection = True
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
        if fault == "late":
            self.before.held.append((self.command, self.path, headers, body))
            self._hang_up()
            return
        if fault == "forgetful":
            headers = {name: value for name, value in headers.items() if name.lower() != "if-match"}
        if fault == "half":
            self._send_half(headers, body)
            return
        status, told, answer = self.before.forward(self.command, self.path, headers, body)
        self.before.count(len(body), len(answer))
        if fault == "unanswered":
            self._hang_up()
            return
        self._answer(status, told, answer, cut=fault == "half answer")

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
        """Send the beginning of a request to the server, and hang up."""
        host, _, port = self.before.target.partition(":")
        with socket.create_connection((host, int(port))) as connection:
            lines = [f"{self.command} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body[: len(body) // 2])
        self._hang_up()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True
