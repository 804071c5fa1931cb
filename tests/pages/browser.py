"""Headless Chromium, spoken to over a pipe: https://chromedevtools.github.io/devtools-protocol/."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

Scheme = Literal["light", "dark"]


def _above_9(descriptor: int) -> int:
    """Return another number of a file descriptor, which is not one of those that the shell assigns."""
    found = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)
    os.close(descriptor)
    return found


_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")


class Browser:
    """One browser with one tab. It reads commands from its file descriptor 3, and answers on 4, each with a NUL."""

    def __init__(self, profile: Path) -> None:
        program = shutil.which("chromium")
        assert program is not None, "make chromium installs it"
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        flags = [*_FLAGS, f"--user-data-dir={profile}", "--no-first-run", "--disable-extensions", "about:blank"]
        # The shell moves the ends of the pipes to the numbers that Chromium expects.
        to_read, to_write = _above_9(to_read), _above_9(to_write)
        words = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", words, program, *flags],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._left, self._number, self._session = b"", 0, None
        self.requests: list[str] = []
        tabs = self._ask("Target.getTargets")["targetInfos"]
        tab = next(tab["targetId"] for tab in tabs if tab["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        self._ask("Page.enable")
        self._ask("Network.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)  # then Chromium ends
        self._process.wait(60)
        os.close(self._from)

    def open(self, page: Path, *, width: int, scheme: Scheme, medium: str = "") -> None:
        """Open a page in a window of this width, in light or dark mode, as on a screen or for ``print``.

        ``requests`` then has what it loaded.
        """
        self.requests.clear()
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self._ask(
            "Emulation.setEmulatedMedia", media=medium, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        self._events: list[str] = []
        self._ask("Page.navigate", url=page.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript on the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self) -> bytes:
        """Return a picture of the whole page, as PNG."""
        return base64.b64decode(self._ask("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def print(self) -> bytes:
        """Return the page as PDF."""
        return base64.b64decode(self._ask("Page.printToPDF", printBackground=False)["data"])

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            data = os.read(self._from, 1 << 16)
            assert data, "Chromium ended"
            self._left += data
        message, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        if "method" in found:
            if hasattr(self, "_events"):
                self._events.append(found["method"])
            if found["method"] == "Network.requestWillBeSent":
                self.requests.append(found["params"]["request"]["url"])
        return found
