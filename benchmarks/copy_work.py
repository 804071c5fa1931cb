"""A copy of a checkpoint on one disk, by ``ttlsnap copy``, by hand, and onto an earlier copy."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

from work import run_command

_BY_HAND = 'cp -a "$0" "$1" && sync && find "$1" -type f -print0 | xargs -0 sha256sum > /dev/null'


class Copying:
    """Copies of ``checkpoint`` in new places below ``folder``."""

    def __init__(self, checkpoint: Path, folder: Path) -> None:
        self._checkpoint, self._folder = checkpoint, folder
        self._numbers = itertools.count()
        self._whole, self._earlier = folder / "whole", folder / "earlier"
        run_command("copy", checkpoint, self._whole)
        batches = [int(path.name) for path in (self._whole / "commits").iterdir() if path.name.isdigit()]
        run_command("copy", checkpoint, self._earlier, "--batch", max(batches) - 1)

    @property
    def sizes(self) -> list[int]:
        """The bytes of each file of a copy."""
        return [path.stat().st_size for path in self._whole.rglob("*") if path.is_file()]

    def copy(self) -> None:
        """Copy, and read everything again."""
        run_command("copy", self._checkpoint, self._new_place(), "--verify")

    def by_hand(self) -> None:
        """Copy the same files with ``cp``, sync them, and read them again."""
        subprocess.run(["sh", "-c", _BY_HAND, self._whole, self._new_place()], check=True)

    def onto(self) -> None:
        """Copy what the copy of the batch before does not have."""
        run_command("copy", self._checkpoint, self._new_place(), "--onto", self._earlier)

    def _new_place(self) -> Path:
        return self._folder / str(next(self._numbers))
