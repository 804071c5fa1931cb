"""A process that runs command lines with little memory, or as a user without special rights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ..samples import SAMPLES
from . import wreck

ROOM = 256 << 20
"""Bytes of address space beyond the use of a process that has read a sound sample of each store."""
_MOST_S = 3
"""CPU time that no command line needs. Only one that works through what a damaged file claims to have takes longer."""

_WORKER = """
import contextlib, gc, io, json, os, resource, sys, time
from pathlib import Path
from ttlsnap.cli.app import run

def status(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10

room, user, *warm = json.loads(sys.stdin.readline())
answers = sys.stdout
for command in warm:  # what is loaded later needs memory, and the right to read it
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(command) == 0
gc.collect()
gc.freeze()  # what stays need not be looked at again
if room:
    limit = status("VmSize") + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
if user and os.getuid() == 0:
    os.chdir("/")
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
for line in sys.stdin:
    gc.collect()  # errors of earlier command lines, which hold what they had read
    if not user:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, begun = status("VmRSS"), time.process_time()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(json.loads(line))
    used = status("VmHWM") - before, time.process_time() - begun
    print(json.dumps([code, out.getvalue(), err.getvalue(), *used]), file=answers, flush=True)
"""


class Confined(NamedTuple):
    """The result of a command line, with its peak of memory in bytes, and its CPU time in seconds."""

    code: int
    out: str
    err: str
    peak: int
    cpu: float


class Confinement:
    """One process for many command lines, with ``room`` bytes of memory, or as ``user`` if this process is root."""

    def __init__(self, room: int = 0, user: int = 0) -> None:
        warm = []
        for name in ("agg-deltas-lz4-4.2", "rocksdb-4.2"):
            good = str(SAMPLES / name)
            warm += [["inspect", good, *wreck.scanning(name)], ["compact", good, *wreck.compacting(name), "--dry-run"]]
            warm += [["doctor", good, "--parallelism", "1"]]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._say([room, user, *warm])

    def run(self, *arguments: str | Path) -> Confined:
        """Run one command line in the process."""
        self._say([str(argument) for argument in arguments])
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the process died"
        ended = Confined(*json.loads(answer))
        assert ended.cpu < _MOST_S, f"{arguments}: {ended.cpu:.1f} s"
        return ended

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _say(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
