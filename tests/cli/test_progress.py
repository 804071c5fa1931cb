"""The progress bar is on stderr, and never between data on the same terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

from ..samples import SAMPLES

EXPORT = [sys.executable, "-m", "ttlsnap", "export", str(SAMPLES / "agg-deltas-lz4-4.2"), "--to", "-"]


def run_on_terminal(*streams: str) -> str:
    """Return what an export writes to a terminal. ``streams`` are those of its outputs that are on it."""
    controller, terminal = pty.openpty()
    written: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(controller, 65536):
                written.append(data)
        except OSError:  # the last process has closed the terminal
            pass

    reader = threading.Thread(target=read)
    reader.start()
    outputs = {stream: terminal if stream in streams else subprocess.DEVNULL for stream in ("stdout", "stderr")}
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    subprocess.run(EXPORT, env=environment, check=True, stdin=subprocess.DEVNULL, **outputs)  # type: ignore[call-overload]
    os.close(terminal)
    reader.join()
    os.close(controller)
    return b"".join(written).decode()


def test_data_on_a_terminal_has_no_progress_between_it() -> None:
    written = run_on_terminal("stdout", "stderr")
    assert written.count("\n") == 480 and "\x1b" not in written


def test_progress_is_on_a_terminal_that_gets_no_data() -> None:
    assert "exporting" in run_on_terminal("stderr")
