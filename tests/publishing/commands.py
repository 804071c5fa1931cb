"""ttlsnap's commands as processes, alone or with a fault injected into one system call."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any, Self, TypeVar

from .syscalls import TRACE, Call, read_calls

T = TypeVar("T")
R = TypeVar("R")
KILLED = -9
_PATIENCE_S = 60


@dataclass(frozen=True)
class Ended:
    """The result of a command. ``code`` is its exit code, or minus the signal that killed it."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Return the JSON document on stdout."""
        document: dict[str, Any] = json.loads(self.out)
        return document


@dataclass(frozen=True)
class Traced:
    """The result of a command under strace, and its calls that change files below the watched folder."""

    ended: Ended
    calls: list[Call]


class Commands:
    """Warm processes that fork commands, several at a time. Use it as a context manager."""

    def __init__(self, folder: Path, processes: int | None = None) -> None:
        if shutil.which("strace") is None:
            raise RuntimeError("strace is needed to inject faults into system calls: apt-get install strace")
        self._folder = folder
        self._numbers = itertools.count()
        # Each worker of pytest has such processes, and there are as many workers as cores.
        self._size = processes or (1 if "PYTEST_XDIST_WORKER" in os.environ else len(os.sched_getaffinity(0)))
        self._idle: Queue[subprocess.Popen[str]] = Queue()
        self._zygotes = [_start_zygote() for _ in range(self._size)]
        for zygote in self._zygotes:
            self._idle.put(zygote)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for zygote in self._zygotes:
            assert zygote.stdin is not None and zygote.stdout is not None
            zygote.stdin.close()
            zygote.wait(timeout=_PATIENCE_S)
            zygote.stdout.close()

    def warm(self, commands: Callable[[], Sequence[Sequence[str]]]) -> None:
        """Run these commands once in each process itself, so that its children find all modules imported."""
        for zygote in self._zygotes:
            code = int(_ask(zygote, {"warm": commands()}))
            if code:
                raise RuntimeError(f"warming up ended with exit code {code}")

    def run(self, *argv: str, **limits: int) -> Ended:
        """Run one command in its own process."""
        return self.run_all([argv], **limits)[0]

    def run_all(self, commands: Sequence[Sequence[str]], **limits: int) -> list[Ended]:
        """Run several commands one after the other in one process."""
        with self._zygote() as zygote, self._scratch() as out:
            _ask(zygote, {"commands": [list(argv) for argv in commands], "out": str(out), **limits})
            return _ended(out, len(commands), _answer(zygote))

    def trace(self, argv: Sequence[str], below: Path, *injected: str) -> Traced:
        """Run one command under strace with faults ``injected``, in strace's syntax: ``rename:error=EIO:when=3``."""
        with self._zygote() as zygote, self._scratch() as out:
            child = _ask(zygote, {"commands": [list(argv)], "out": str(out), "traced": True})
            log = out / "strace"
            faults = [word for fault in injected for word in ("-e", f"inject={fault}")]
            words = ["strace", "-f", "-y", "-q", "-o", str(log), "-e", TRACE, "-e", "signal=none", *faults, "-p", child]
            told = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE_S)
            if told.returncode not in (0, 128 + 9, -9):
                os.kill(int(child), signal.SIGKILL)  # it still waits for a tracer
                _answer(zygote)
                raise RuntimeError(f"strace: {told.stderr}")
            code = _answer(zygote)
            return Traced(_ended(out, 1, code)[0], read_calls(log, below))

    def together(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Call ``work`` for each item, several at a time. Return the results in order."""
        with ThreadPoolExecutor(self._size) as pool:
            return list(pool.map(work, items))

    @contextmanager
    def _zygote(self) -> Iterator[subprocess.Popen[str]]:
        zygote = self._idle.get()
        try:
            yield zygote
        finally:
            self._idle.put(zygote)

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="command-") as folder:
            yield Path(folder)


def _start_zygote() -> subprocess.Popen[str]:
    script = Path(__file__).with_name("zygote.py")
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONSAFEPATH": "1", "COLUMNS": "200"},
    )


def _ask(zygote: subprocess.Popen[str], order: dict[str, Any]) -> str:
    assert zygote.stdin is not None
    zygote.stdin.write(json.dumps(order) + "\n")
    zygote.stdin.flush()
    return _answer(zygote)


def _answer(zygote: subprocess.Popen[str]) -> str:
    assert zygote.stdout is not None
    line = zygote.stdout.readline().strip()
    if not line:
        raise RuntimeError("the process that commands are forked from has ended")
    return line


def _ended(out: Path, count: int, code: str) -> list[Ended]:
    def read(name: str) -> str:
        path = out / name
        return path.read_text() if path.exists() else ""

    return [Ended(int(read(f"{n}.code") or code), read(f"{n}.out"), read(f"{n}.err")) for n in range(count)]
