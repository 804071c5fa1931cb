"""Checkpoints as trees of bytes, without ttlsnap's own files."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

Tree = dict[str, str]
FENCE = b"ttlsnap fence"


def tree(checkpoint: Path) -> Tree:
    """Return every file with the hash of its bytes, every folder and every link, except ``_ttlsnap``."""
    return {
        str(path.relative_to(checkpoint)): _content(path)
        for path in sorted(checkpoint.rglob("*"))
        if path.relative_to(checkpoint).parts[0] != "_ttlsnap"
    }


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return "a folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def newest(log: Path) -> int:
    """Return the highest number in a log's folder."""
    return max(int(path.name) for path in log.iterdir() if path.name.isdigit())


def is_fenced(checkpoint: Path) -> bool:
    """Return whether the newest offset file begins like a fence, so that Spark refuses it."""
    offsets = checkpoint / "offsets"
    return (offsets / str(newest(offsets))).read_bytes().startswith(FENCE)


def end_halfway(checkpoint: Path) -> Path:
    """Remove the state of the begun batch from the last partition: the process ended before it was written.

    So the sink cannot have that batch.
    """
    return _remove_begun(checkpoint, f"0/{newest(checkpoint / 'state/0')}")


def end_at_once(checkpoint: Path) -> Path:
    """Remove all state of the begun batch: the process ended when only the offsets were written."""
    return _remove_begun(checkpoint, "*/[0-9]*")


def _remove_begun(checkpoint: Path, folders: str) -> Path:
    version = newest(checkpoint / "commits") + 2
    removed = [
        path
        for path in checkpoint.glob(f"state/{folders}/**/*")
        if re.fullmatch(rf"\.*{version}(_[0-9a-f-]+)?\.(delta|changelog|snapshot|zip)(\.crc)*", path.name)
    ]
    assert removed
    for path in removed:
        path.unlink()
    return checkpoint


def copy(checkpoint: Path, to: Path) -> Path:
    """Copy a checkpoint with ``_ttlsnap`` and with its times, which identify a lineage."""
    return Path(shutil.copytree(checkpoint, to, symlinks=True))


def differences(found: Tree, wanted: Tree) -> list[str]:
    """Return the differences between two trees, for a message."""
    names = sorted(found.keys() | wanted.keys())
    return [
        f"{name}: {'missing' if name not in found else 'too much' if name not in wanted else 'differs'}"
        for name in names
        if found.get(name) != wanted.get(name)
    ]
