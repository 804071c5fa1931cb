"""A parser of strace's log, which finds the calls that change files below a folder."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from .zygote import BEGIN

# These calls can change a file system. "?" makes strace ignore the calls that a machine does not have.
CHANGING = [
    "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "mkdir",
    "mkdirat", "rmdir", "mknod", "mknodat",
    "open", "openat", "openat2", "creat", "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile",
    "copy_file_range", "splice", "truncate", "ftruncate",
    "fallocate", "fsync", "fdatasync", "sync_file_range", "syncfs", "msync", "chmod", "fchmod", "fchmodat", "chown",
    "fchown", "fchownat", "lchown",
    "utime", "utimes", "utimensat", "futimesat", "setxattr", "fsetxattr", "lsetxattr", "removexattr", "fremovexattr",
]  # fmt: skip
TRACE = "trace=" + ",".join(f"?{name}" for name in CHANGING)

_LINE = re.compile(r"(?P<pid>\d+) +(?P<name>\w+)\((?P<args>.*)\) += (?P<result>-?\d+|\?)(?P<rest>.*)")
_UNFINISHED = re.compile(r"(?P<pid>\d+) +(?P<name>\w+)\((?P<args>.*?)(?P<result>)(\)? += *\?.*| <unfinished \.\.\.>)?")
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>.*\) += (?P<result>-?\d+|\?)(?P<rest>.*)")
_DESCRIPTOR = re.compile(r"(?:AT_FDCWD|\d+)<(?P<path>[^>]*)>")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_RUN = re.compile(r"\d{8}T\d{6}(?:\.?\d+)?Z-[0-9a-f]+")
_SCRATCH = re.compile(r"\.[0-9a-f]{8}\.tmp\b")
_LOCK = re.compile(r"(?<=/lock\.)[0-9a-f]{16}\b")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FOLDER = re.compile(r"(?<=/scratch/ttlsnap-)[a-z0-9_]{8}\b")
_OPENS = {"open", "openat", "openat2", "creat"}
_BY_DESCRIPTOR = {
    "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "copy_file_range", "splice", "ftruncate",
    "fallocate", "fsync", "fdatasync", "sync_file_range", "syncfs", "fchmod", "fchown", "fsetxattr", "fremovexattr",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One call that changes something: the ``number``-th call with its name in its process, on ``path``.

    ``to`` is the other path of a rename or a link. ``changed`` says whether the call changed the disk: it succeeded,
    and was not an fsync. ``injected`` says whether strace let it fail.

    The same step has the same path in every run. In a path, RUN replaces the name of a run. X replaces the token of a
    scratch file or a lock. UUID replaces the id of a new table.
    """

    name: str
    number: int
    path: str
    changed: bool = field(default=False, compare=False)
    injected: bool = field(default=False, compare=False)
    to: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.name} #{self.number} {self.path}"


def read_calls(log: Path, below: Path) -> list[Call]:
    """Return the calls on files below ``below``, in order. Raise ValueError if the log lacks the beginning."""
    counts: Counter[tuple[str, str]] = Counter()
    calls: list[Call] = []
    begun = False
    waiting: dict[tuple[str, str], int] = {}  # calls that another thread has interrupted in the log
    for line in log.read_text(errors="replace").splitlines():
        if resumed := _RESUMED.fullmatch(line):
            place = waiting.pop((resumed["pid"], resumed["name"]), None)
            if place is not None:
                calls[place] = _ended(calls[place], resumed)
            continue
        match = _LINE.fullmatch(line) or _UNFINISHED.fullmatch(line)
        if match is None or "resumed>" in line:
            continue
        name, args = match["name"], match["args"]
        begun = begun or BEGIN in args
        counts[match["pid"], name] += 1
        path = _path(name, args)
        if begun and path is not None and path.is_relative_to(below) and _changes(name, args):
            strings = _STRING.findall(args)
            to = (
                _relative(Path(strings[1]), below)
                if len(strings) == 2 and name.startswith(("rename", "link"))
                else None
            )
            call = Call(name, counts[match["pid"], name], _relative(path, below), to=to)
            calls.append(_ended(call, match) if match.re is _LINE else call)
            if match.re is _UNFINISHED:
                waiting[match["pid"], name] = len(calls) - 1
    if not begun:
        raise ValueError(f"{log}: strace came too late")
    return calls


def _ended(call: Call, match: re.Match[str]) -> Call:
    """Return a call with its result."""
    changed = match["result"].isdigit() and "sync" not in call.name
    return replace(call, changed=changed, injected="(INJECTED)" in match["rest"])


def _relative(path: Path, below: Path) -> str:
    """Return a relative path without the parts that differ between runs."""
    name = str(path.relative_to(below))
    for pattern, word in ((_RUN, "RUN"), (_SCRATCH, ".X.tmp"), (_LOCK, "X"), (_UUID, "UUID"), (_FOLDER, "X")):
        name = pattern.sub(word, name)
    return name


def _changes(name: str, args: str) -> bool:
    return name not in _OPENS or any(flag in args for flag in ("O_CREAT", "O_TRUNC", "O_WRONLY", "O_RDWR"))


def _path(name: str, args: str) -> Path | None:
    """Return the first path that a call names. For a rename or a link, this is the old path."""
    descriptor = _DESCRIPTOR.search(args)
    if name in _BY_DESCRIPTOR:
        return Path(descriptor["path"]) if descriptor else None
    string = _STRING.search(args)
    if string is None:
        return None
    path = Path(string[1])
    return path if path.is_absolute() or descriptor is None else Path(descriptor["path"]) / path
