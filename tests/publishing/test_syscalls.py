"""The parser of strace's log, in which another thread can interrupt the line of a call."""

from __future__ import annotations

from pathlib import Path

from .syscalls import read_calls
from .zygote import BEGIN


def test_an_interrupted_line_gets_its_result(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        f'7 openat(AT_FDCWD</>, "{BEGIN}", O_RDONLY) = -1 ENOENT (No such file or directory)\n'
        '7 unlink("/ck/a" <unfinished ...>\n'
        '8 write(3</ck/b>, "x", 1) = 1\n'
        "7 <... unlink resumed>) = -1 ENOSPC (No space left on device) (INJECTED)\n"
        '7 rename("/ck/a", "/ck/c" <unfinished ...>\n'
        "8 fsync(3</ck/b>) = -1 EIO (Input/output error) (INJECTED)\n"
        "7 <... rename resumed>) = 0\n"
        '7 unlink("/ck/d") = ?\n'
    )
    calls = [(str(call), call.changed, call.injected, call.to) for call in read_calls(log, Path("/ck"))]
    assert calls == [
        ("unlink #1 a", False, True, None),
        ("write #1 b", True, False, None),
        ("rename #1 a", True, False, "c"),
        ("fsync #1 b", False, True, None),
        ("unlink #2 d", False, False, None),
    ]
