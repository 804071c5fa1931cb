"""Commands on other machines that share a file system. A ``flock`` does not reach these machines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from .commands import Ended

_PATIENCE_S = 60
_SCRIPT = """
import fcntl, json, os, signal, sys
from ttlsnap.storage import lease
from ttlsnap.cli.app import run
from ttlsnap.storage.local import LocalDirectory

given = json.loads(sys.argv[1])
fcntl.flock = lambda *_: None
lease.LEASE = given["lease"]
if given["elsewhere"]:
    lease.read_boot = lambda: f"machine {os.getpid()}"
really, seen = LocalDirectory.rename, 0

def halt():
    global seen
    seen += 1
    if seen == given["at"]:
        if given["stops"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            print("waiting", flush=True)
            sys.stdin.readline()

def rename(self, source, target, **how):
    if "state/" in source:  # the moves of a run, and those of its new files to where they are staged
        halt()
    really(self, source, target, **how)

call = os.rename

def sent_late(source, target):
    # The checks of the process are over, and only the system call, or its request to the server, is still to come.
    rename_now = "/state/" in str(source) and "/_ttlsnap/." not in str(source)
    if rename_now:
        halt()
    call(source, target)

if given["late"]:
    os.rename = sent_late
else:
    LocalDirectory.rename = rename
code = run(given["argv"])
sys.stdout.flush()
os._exit(code)
"""


def moves_of(checkpoint: Path) -> tuple[int, int]:
    """Return the number of files that a checkpoint's only run staged, and the number that it moved."""
    (journal,) = checkpoint.glob("_ttlsnap/runs/*/journal.json")
    moved = json.loads(journal.read_text())["moves"]
    return sum("/staged/" in move["source"] for move in moved), len(moved)


class Host:
    """A command on a machine that shares the file system. The context manager kills it at the end.

    The command halts before the ``at``-th rename of a state file. It waits for ``go_on`` while its threads run on and
    renew the lease. With ``stops``, the whole process is suspended, as on a machine that sleeps. With ``late``, it
    halts after its own checks, as if the server of the file system received the request later.
    """

    def __init__(
        self,
        *argv: str | Path,
        at: int = 0,
        stops: bool = False,
        lease: float = 120,
        elsewhere: bool = True,
        late: bool = False,
    ) -> None:
        self._stops, self._waits = stops, at > 0
        given = {
            "argv": [str(word) for word in argv],
            "at": at,
            "stops": stops,
            "lease": lease,
            "elsewhere": elsewhere,
            "late": late,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONSAFEPATH": "1", "COLUMNS": "200"},
        )

    def __enter__(self) -> Self:
        if self._waits:
            self.wait_for_halt()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def name(self) -> str:
        """Return the name of the process in messages."""
        return f"process {self._process.pid} on {socket.gethostname()!r}"

    def wait_for_halt(self) -> None:
        """Wait until the command halts."""
        if self._stops:
            stat = Path(f"/proc/{self._process.pid}/stat")
            until = time.monotonic() + _PATIENCE_S
            while stat.read_text().rpartition(")")[2].split()[0] != "T":
                assert time.monotonic() < until and self._process.poll() is None, self._process.communicate()
                time.sleep(0.01)
            return
        assert self._process.stdout is not None and self._process.stderr is not None
        assert self._process.stdout.readline() == "waiting\n", self._process.stderr.read()

    def go_on(self) -> Ended:
        """Let the command continue to its end. Return its result."""
        if self._stops:
            self._process.send_signal(signal.SIGCONT)
        out, err = self._process.communicate("\n", timeout=_PATIENCE_S)
        return Ended(self._process.returncode, out, err)

    def kill(self) -> None:
        """Let the machine fail."""
        self._process.kill()
        self._process.communicate()
