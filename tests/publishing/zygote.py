"""A warm process that forks a child for each order. The child runs ttlsnap's commands like a process of their own.

Each line on stdin is an order: ``{"commands": [[argument...]...], "out": folder, ...}``. The answer has two lines: the
child's process id, and its exit code once it has ended. A negative exit code is the signal that killed it. The output
of each command is in ``out``, as ``<n>.out``, ``<n>.err`` and ``<n>.code``. An order can have these options:

``traced``           the child waits until it has a tracer
``file_size_limit``  the maximum size of a file in bytes
``obey_modes``       permissions apply to root, too

An order ``{"warm": [[argument...]...]}`` runs in this process itself, so that its children find all modules imported.
The faults need that: they count system calls, and a child that imports a module opens more files.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import ttlsnap
from ttlsnap.cli.app import run

BEGIN = "/ttlsnap-tests-begin"
_PR_SET_PTRACER = 0x59616D61
_ANY = ctypes.c_ulong(-1 & (2**64 - 1))


def main() -> None:
    """Serve orders until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        if "warm" in order:
            _redirect(Path(os.devnull), Path(os.devnull))
            for found in pkgutil.walk_packages(ttlsnap.__path__, "ttlsnap."):
                if found.name != "ttlsnap.__main__":
                    importlib.import_module(found.name)
            code = max(run(command) for command in order["warm"])
            gc.collect()
            gc.freeze()
            answers.write(f"{code}\n")
            answers.flush()
            continue
        ready, say_ready = os.pipe()
        child = os.fork()
        if child == 0:
            _serve(order, say_ready)
        os.close(say_ready)
        os.read(ready, 1)
        os.close(ready)
        answers.write(f"{child}\n")
        answers.flush()
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _serve(order: dict[str, Any], say_ready: int) -> None:
    out = Path(order["out"])
    code = 99
    try:
        if "file_size_limit" in order:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_size_limit"],) * 2)
        if order.get("obey_modes"):
            _obey_modes()
        if order.get("traced"):
            _await_tracer(say_ready, out / "strace")
        else:
            os.close(say_ready)
        for number, command in enumerate(order["commands"]):
            _redirect(out / f"{number}.out", out / f"{number}.err")
            code = 99  # also if the command raises
            code = run(command)
            sys.stdout.flush()
            sys.stderr.flush()
            (out / f"{number}.code").write_text(str(code))
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def _redirect(out: Path, err: Path) -> None:
    for path, descriptor in ((out, 1), (err, 2)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(opened, descriptor)
        os.close(opened)


def _obey_modes() -> None:
    """Give up the capabilities that let root ignore permissions (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) or libc.capset(header, (ctypes.c_uint32 * 6)(sets[0] & ~0b110, *sets[1:])):
        raise OSError(ctypes.get_errno(), "capabilities")


def _await_tracer(say_ready: int, log: Path) -> None:
    """Wait until the tracer writes calls to its ``log``, without a call that the tests count."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
    written = os.open(log, os.O_RDONLY | os.O_CREAT)
    os.close(say_ready)
    while BEGIN.encode() not in os.pread(written, 1 << 16, 0):
        with contextlib.suppress(OSError):
            os.mknod(f"{BEGIN}/nothing")  # ttlsnap never makes such a call
        time.sleep(0.001)


if __name__ == "__main__":
    main()
