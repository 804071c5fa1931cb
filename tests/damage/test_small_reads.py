"""Reading a small file needs little memory, however large the limit for such files is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ttlsnap.errors import StorageError
from ttlsnap.storage.open import open_local

from ..samples import sample
from . import wreck
from .confined import Confinement
from .conftest import Ttlsnap

LZ4 = "agg-deltas-lz4-4.2"


@pytest.fixture(scope="module")
def narrow() -> Iterator[Confinement]:
    """Yield a process that has 32 MiB of address space beyond what it uses."""
    confined = Confinement(room=32 << 20)
    yield confined
    confined.close()


@pytest.mark.parametrize("command", [("history",), ("recover",), ("inspect",), ("rollback",)], ids=lambda c: c[0])
def test_the_journal_of_a_run_is_read_in_little_memory(
    ttlsnap: Ttlsnap, narrow: Confinement, tmp_path: Path, command: tuple[str, ...]
) -> None:
    target = sample(LZ4, tmp_path)
    assert ttlsnap("compact", target, *wreck.compacting(LZ4)).code == 0
    found = narrow.run(command[0], target, *command[1:])
    assert (found.code, found.err) == (0, ""), found


def test_a_file_that_claims_to_be_empty_is_read_up_to_the_limit(tmp_path: Path) -> None:
    process = open_local("/proc/self")
    whole = Path("/proc/self/limits").read_bytes()
    assert process.read("limits", 1 << 30) == whole
    assert process.read("limits", len(whole)) == whole
    with pytest.raises(StorageError, match="longer than"):
        process.read("limits", len(whole) - 1)
