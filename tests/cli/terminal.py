"""Commands on a terminal of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def run_on_terminal(*words: str, streams: tuple[str, ...] = ("stdout",), exit_code: int = 0) -> str:
    """Return what a command writes to a terminal, without colours. ``streams`` are its outputs that are on it."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    written: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(controller, 65536):
                written.append(data)
        except OSError:  # the last process has closed the terminal
            pass

    reader = threading.Thread(target=read)
    reader.start()
    outputs: Any = {stream: terminal if stream in streams else subprocess.DEVNULL for stream in ("stdout", "stderr")}
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "ttlsnap", *words]
    ended = subprocess.run(command, env=environment, check=False, stdin=subprocess.DEVNULL, **outputs)
    os.close(terminal)
    reader.join()
    os.close(controller)
    assert ended.returncode == exit_code, written
    return _STYLE.sub("", b"".join(written).decode()).replace("\r\n", "\n")
