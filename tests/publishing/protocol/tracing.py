"""The steps of real runs. A local directory records every change, and can kill the run before a step."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import LocalEngine, recover, rollback
from ttlsnap import compact as run_compact
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import FENCE_MARK
from ttlsnap.errors import TtlsnapError
from ttlsnap.storage import open as opening
from ttlsnap.storage.directory import FileInfo
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.unsynced import Unsynced
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ...samples import COMPACTABLE, sample

_IN_RUN = re.compile(r"(?:_ttlsnap/)?runs/(?P<run>[^/]+)/(?P<part>[^/-]+)")


class CutOffError(BaseException):
    """An error at every change after the cut, as if the process had been killed."""


class Trace:
    """The steps of one command, and the number of the step before which it is killed."""

    def __init__(self, cut_before: int | None = None) -> None:
        self.steps: list[str] = []
        self._cut_before = cut_before

    def add(self, step: str) -> None:
        """Add the next step, before the command takes it."""
        if len(self.steps) == self._cut_before:
            raise CutOffError(step)
        self.steps.append(step)


def name_move(source: str, target: str) -> str:
    """Return the name of a rename by its ends: in a run's staged files, in a run's backup, or in place."""
    ends = [match["part"] if (match := _IN_RUN.match(path)) else "place" for path in (source, target)]
    return "stage" if ends == ["staged", "staged"] else " to ".join(ends)


def words(steps: Sequence[str]) -> list[str]:
    """Omit repetitions, because the number of files does not matter, and checks before and after all changes."""
    found = [step for step, _ in groupby(steps)]
    return found[found[:1] == ["look"] : len(found) - (found[-1:] == ["look"])]


@contextmanager
def traced(monkeypatch: pytest.MonkeyPatch, cut_before: int | None = None) -> Iterator[Trace]:
    """Record the steps of the command that runs in the block, and kill it before a step if asked to."""
    trace = Trace(cut_before)

    class Traced(_Traced):
        steps = trace

    with monkeypatch.context() as patched:
        patched.setattr(opening, "LocalDirectory", Traced)
        yield trace


class Real:
    """A copy of a sample checkpoint, on which real commands run."""

    @classmethod
    def of(cls, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Real:
        """Copy the sample ``name`` into ``folder``."""
        return cls(sample(name, folder), COMPACTABLE[name], monkeypatch)

    def __init__(self, path: Path, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self._field, self._patch = path, field, monkeypatch

    def copy(self, name: str) -> Real:
        """Return a copy of this checkpoint."""
        return Real(Path(shutil.copytree(self.path, self.path.parent / name)), self._field, self._patch)

    def run(self, command: str, cut_before: int | None = None) -> list[str]:
        """Run a command and return the steps it took."""
        target = str(self.path)
        with traced(self._patch, cut_before) as trace:
            try:
                if command == "compact":
                    self._compact(target)
                elif command == "rollback":
                    rollback(target, stopped=True)
                else:
                    recover(target, prefer_undo=command == "undo")
            except (CutOffError, TtlsnapError):
                assert cut_before is not None
        return trace.steps

    def _compact(self, target: str) -> None:
        ttl = TtlTransformerFactory(StateTtlConfig(1), self._field)
        run_compact(target, [ttl], now="2100-01-01T00:00:00Z", engine=LocalEngine(1), stopped=True, max_drop=1.0)


class _Traced(LocalDirectory):
    """A directory that records the steps of the protocol. Methods that call each other count as one step."""

    steps: Trace
    _depth = 0

    @contextmanager
    def _step(self, name: str | None) -> Iterator[None]:
        if name is not None and not self._depth:
            self.steps.add(name)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        with self._step("look" if path == layout.STATE else None):
            return super().list(path, suffixes)

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        with self._step(name_move(source, target)):
            super().rename(source, target, overwrite=overwrite)

    def move_folder(self, source: str, target: str) -> None:
        with self._step(None):
            super().move_folder(source, target)

    def move_in(self, source: str, path: str) -> None:
        with self._step(_written(path)):
            super().move_in(source, path)

    def keep_copy(self, source: str, target: str) -> None:
        with self._step("preserve"):
            super().keep_copy(source, target)

    def create(self, path: str, data: bytes) -> bool:
        with self._step(_log(path, data)):
            return super().create(path, data)

    def replace(self, path: str, data: bytes, *, instead_of: bytes | None = None) -> None:
        with self._step(_journal(data) if path.endswith("/journal.json") else _log(path, data)):
            super().replace(path, data, instead_of=instead_of)

    @contextmanager
    def writer(self, path: str, later: Unsynced | None = None) -> Iterator[Any]:
        with self._step(_written(path)), super().writer(path, later) as file:
            yield file

    def remove(self, path: str) -> None:
        with self._step("remove log" if path.startswith(layout.OFFSETS) else None):
            super().remove(path)

    def remove_tree(self, path: str) -> None:
        with self._step("clean up" if self._has_files(path) else None):
            super().remove_tree(path)

    def _has_files(self, path: str) -> bool:
        return any(not info.is_dir or self._has_files(f"{path}/{info.name}") for info in super().list(path))


def _written(path: str) -> str | None:
    match = _IN_RUN.match(path)
    return "stage" if match is not None and match["part"] == "staged" else None


def _log(path: str, data: bytes) -> str | None:
    if not path.startswith(layout.OFFSETS):
        return None
    return "fence" if data.startswith(FENCE_MARK.encode()) else "planned batch"


def _journal(data: bytes) -> str:
    return f"journal {json.loads(data)['status']}"
