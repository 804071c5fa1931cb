"""The hooks of a policy: a command and a webhook that learn which targets failed.

They get a JSON document without keys and values of entries. A hook that fails is a warning, and changes nothing else.
No message has an argument of the command, or more of the webhook's address than its host, because both may be secrets.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ttlsnap.errors import UsageError
from ttlsnap.versions import VERSION


class HookError(Exception):
    """A hook that failed. The message says why."""


@dataclass(frozen=True)
class OnFailure:
    """The hooks of a policy. Each may take ``timeout_s`` seconds. The command starts in ``folder``."""

    folder: str
    command: tuple[str, ...] = ()
    webhook: str | None = None
    timeout_s: float = 30

    def __post_init__(self) -> None:
        if not self.command and self.webhook is None:
            raise UsageError("on_failure needs a command or a webhook")
        if self.webhook is not None:
            _require_address(self.webhook)

    def send(self, document: dict[str, Any]) -> Iterator[str]:
        """Send a document to the hooks. Yield a warning about each hook that fails."""
        body = json.dumps(document).encode()
        hooks: list[tuple[str, Callable[[bytes], None]]] = []
        if self.command:
            hooks.append((f"the command {self.command[0]}", self._run))
        if self.webhook is not None:
            parts = urlsplit(self.webhook)
            hooks.append((f"the webhook at {parts.scheme}://{parts.netloc}", self._post))
        for name, send in hooks:
            try:
                send(body)
            except HookError as error:
                yield f"on_failure: {name} {error}. It may not have reported the failed targets"

    def _run(self, body: bytes) -> None:
        """Run the command with ``body`` as its standard input, without a shell."""
        try:
            process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # so that all its processes can be stopped
            )
        except (OSError, ValueError) as error:
            raise HookError(f"cannot be started: {getattr(error, 'strerror', None) or type(error).__name__}") from error
        try:
            process.communicate(body, timeout=self.timeout_s)
        except subprocess.TimeoutExpired as error:
            raise HookError(f"was stopped after {self.timeout_s:g} s") from error
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            raise HookError(f"ended with exit code {process.returncode}")

    def _post(self, body: bytes) -> None:
        """Post ``body`` to the webhook, without following redirects."""
        failures: list[HookError] = []

        def post() -> None:
            try:
                _post_to(self.webhook or "", body, self.timeout_s)
            except HookError as error:
                failures.append(error)

        # The timeout of a socket is that of each operation. The thread limits the time of all of them.
        thread = threading.Thread(target=post, daemon=True)
        thread.start()
        thread.join(self.timeout_s)
        if thread.is_alive():
            raise HookError(f"did not answer within {self.timeout_s:g} s")
        if failures:
            raise failures[0]


class _NoRedirect(HTTPRedirectHandler):
    """A handler that treats a redirect as an error, because it names a host that the policy does not."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post_to(address: str, body: bytes, timeout_s: float) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": f"ttlsnap/{VERSION}"}
    try:
        with build_opener(_NoRedirect).open(Request(address, body, headers), timeout=timeout_s):
            return
    except HTTPError as error:
        error.close()
        raise HookError(f"answered with status {error.code}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise HookError(f"cannot be reached: {getattr(reason, 'strerror', None) or type(reason).__name__}") from error


def _require_address(address: str) -> None:
    """Raise UsageError, which does not quote it, for an address that is not that of a webhook."""
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or not address.isascii() or any(character <= " " for character in address):
        raise UsageError("webhook is not an address such as https://example.com/hook")
    if "@" in parts.netloc:
        raise UsageError("webhook has a user or a password before the host; use a command, which can send them")
