"""Commands whose store denies every request from one on, as when credentials expire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.cli.app import run
from ttlsnap.errors import StorageError
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.open import open_directory

from .late import compacted, expire
from .proxy import CHANGING, Fault, Proxy, Request

COMPACT = ("--ttl", "7d", "--timestamp", "value.max", "--max-drop", "100%", "--engine", "local", "--stopped", "--yes")


@dataclass(frozen=True)
class Ended:
    """The end of a command.

    It has the exit code, stderr, the run that is open afterwards, and the number of requests.
    """

    code: int
    err: str
    open_run: str | None
    is_fenced: bool
    requests: int

    @property
    def first(self) -> str:
        """The first line of stderr."""
        return self.err.partition("\n")[0]


def ended(proxy: Proxy, capsys: pytest.CaptureFixture[str], uri: str, words: list[str], fault: Fault) -> Ended:
    """Run a command with a fault. Return its end."""
    proxy.reset()
    proxy.fault = fault
    capsys.readouterr()
    code = run(words)
    requests = len(proxy.seen)
    proxy.reset()
    expire(uri)
    files = open_directory(uri)
    journal = Runs.read(files).interrupted
    fenced = read_logs(files).fence is not None
    return Ended(code, capsys.readouterr().err, journal.run if journal else None, fenced, requests)


def denied_from(is_it: Callable[[Request], bool]) -> Fault:
    """Return the fault of a store that denies the first request for which ``is_it`` returns True, and all after it."""
    denied: list[Request] = []

    def fault(request: Request) -> str | None:
        if denied or is_it(request):
            denied.append(request)
        return "forbidden" if denied else None

    return fault


def change_of(path: str, number: int = 1) -> Callable[[Request], bool]:
    """Return a function that finds the change with this ``number`` among those of paths that have this part."""
    seen: list[Request] = []

    def is_it(request: Request) -> bool:
        if request.method in CHANGING and path in request.path:
            seen.append(request)
        return len(seen) == number

    return is_it


def after(is_it: Callable[[Request], bool]) -> Callable[[Request], bool]:
    """Return a function that finds the request after the one that ``is_it`` finds."""
    found: list[Request] = []

    def is_next(request: Request) -> bool:
        if not found and is_it(request):
            found.append(request)
            return False
        return bool(found)

    return is_next


def interrupt(proxy: Proxy, uri: str) -> None:
    """Begin to compact a checkpoint, and lose the store when the first file has moved."""
    proxy.fault = denied_from(change_of("/checkpoint/state/", 3))
    with pytest.raises(StorageError, match="is interrupted, and Spark does not start"):
        compacted(uri)
    proxy.reset()
    expire(uri)


def tear_offsets(proxy: Proxy, uri: str) -> None:
    """Leave an empty file of the next batch, as an old Spark does that dies."""
    open_directory(uri).replace("offsets/7", b"")


@dataclass(frozen=True)
class Command:
    """A command, and what is done to a checkpoint before it."""

    words: tuple[str, ...]
    before: Callable[[Proxy, str], object] = lambda proxy, uri: None

    def on(self, uri: str, state: Path) -> list[str]:
        return [word.format(uri=uri, state=state) for word in self.words]


COMMANDS = {
    "compact": Command(("compact", "{uri}", *COMPACT)),
    "migrate": Command(("migrate", "{uri}", "--partitions", "3", "--engine", "local", "--stopped", "--yes")),
    "import": Command(("import", "{uri}", "--from", "{state}", "--mode", "replace", "--stopped", "--yes")),
    "doctor --fix": Command(("doctor", "{uri}", "--fix", "torn-offset", "--stopped"), tear_offsets),
    "rollback": Command(("rollback", "{uri}", "--stopped"), lambda proxy, uri: compacted(uri)),
    "recover": Command(("recover", "{uri}"), interrupt),
    "recover --undo": Command(("recover", "{uri}", "--undo"), interrupt),
}
