"""A checkpoint with every kind of file that publishing moves to the backup; processes run commands on its copies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..judge.queries import Query
from ..judge.spark import Checkpoint, Judge
from .commands import Commands
from .faults import Workshop
from .stories import BATCHES, LATER, compact
from .trees import copy, end_halfway


@pytest.fixture(scope="session")
def rich(inputs: Judge) -> Checkpoint:
    """Return a checkpoint of Spark 4.1 after a crash, with both kinds of checksum files and an uncommitted batch."""
    made = inputs.write(Query(codec="zstd"), BATCHES, layout="snapshot", version="4.1", uncommitted=LATER[0])
    version = len(BATCHES)
    names = {path.name for path in (made.path / "state/0/1").iterdir()}
    beside = {f"{version}.snapshot", f"{version}.snapshot.crc", f".{version}.snapshot.crc"}
    assert {*beside, f".{version}.snapshot.crc.crc", f"{version + 1}.delta", f"{version + 1}.delta.crc"} <= names
    end_halfway(made.path)
    return made


@pytest.fixture(scope="session")
def commands(rich: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Yield warm processes that run ttlsnap's commands."""
    folder = tmp_path_factory.mktemp("commands")
    with Commands(folder) as made:
        names = iter(range(100))

        def everything() -> list[list[str]]:
            scratch = str(copy(rich.path, folder / f"warm-{next(names)}"))
            return [
                compact(scratch),
                ["rollback", scratch],
                ["recover", scratch, "--format", "json"],
                ["history", scratch, "--prune", "--yes", "--format", "json"],
                compact(scratch, "--output", f"{scratch}-new"),
            ]

        made.warm(everything)
        yield made


@pytest.fixture(scope="module")
def workshop(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Return a workshop with its own folder for each module."""
    return Workshop(commands, tmp_path_factory.mktemp("workshop"))


@pytest.fixture
def checkpoint(rich: Checkpoint, tmp_path: Path) -> Path:
    """Return a copy of the rich checkpoint, which tests may change."""
    return copy(rich.path, tmp_path / "checkpoint")
