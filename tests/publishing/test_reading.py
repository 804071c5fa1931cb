"""Commands that read a checkpoint in which an interrupted run has moved only some of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ttlsnap import export, recover
from ttlsnap.cli.app import run
from ttlsnap.errors import FencedError, StorageError
from ttlsnap.storage.local import LocalDirectory

from ..samples import sample
from ..storage.late import compacted, migrated

READERS = {
    "export": ("export", "{}", "--to", "{}-state"),
    "diff": ("diff", "{}"),
    "diff to another": ("diff", "{}", "{}-other"),
    "inspect --entries": ("inspect", "{}", "--entries", "1"),
    "inspect --age": ("inspect", "{}", "--age"),
    "inspect --sizes": ("inspect", "{}", "--sizes"),
    "explain": ("explain", "{}", "--key", '"u1"', "--ttl", "7d", "--timestamp", "value.max"),
    "contract": ("contract", "{}"),
    "check": ("check", "{}", "{}-other"),
    "check of a new query": ("check", "{}-other", "{}"),
}


def interrupt(checkpoint: Path, kind: str, moves: int) -> None:
    """Run a command on a disk that allows so many moves of its files, and then fails. The last one plans the batch."""
    original, seen = LocalDirectory.rename, list[str]()

    def rename(files: LocalDirectory, source: str, target: str, **options: Any) -> None:
        if ("/state/" in f"{source} {target}" and "staged/" not in target) or target.startswith("offsets/"):
            seen.append(source)
        if len(seen) > moves:
            raise StorageError(f"cannot rename {source}: Input/output error")
        original(files, source, target, **options)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(StorageError, match="is interrupted, and Spark"):
        patch.setattr(LocalDirectory, "rename", rename)
        {"compact": compacted, "migrate": migrated}[kind](str(checkpoint))


@pytest.mark.parametrize("kind", ["compact", "migrate"])
def test_commands_that_read_a_half_swapped_checkpoint_name_recover(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    sample("agg-deltas-lz4-4.2", tmp_path / "other").rename(f"{checkpoint}-other")
    interrupt(checkpoint, kind, 5)
    for name, words in READERS.items():
        capsys.readouterr()
        assert run([word.replace("{}", str(checkpoint)) for word in words]) == 4, name
        assert f"If none is running: ttlsnap recover {checkpoint}\n" in capsys.readouterr().err, name
    assert run(["inspect", str(checkpoint)]) == 0
    assert f"run `ttlsnap recover {checkpoint}`" in capsys.readouterr().out
    recover(str(checkpoint))
    export(str(checkpoint), f"{checkpoint}-state")


def test_earlier_batches_can_be_read_unless_the_run_moves_their_files(tmp_path: Path) -> None:
    for kind in ("compact", "migrate"):
        checkpoint = sample("agg-deltas-lz4-4.2", tmp_path / kind)
        interrupt(checkpoint, kind, 3)
        if kind == "compact":
            assert export(str(checkpoint), f"{checkpoint}-state", batch=5).rows
        else:
            with pytest.raises(FencedError, match="ttlsnap recover"):
                export(str(checkpoint), f"{checkpoint}-state", batch=5)


def test_a_fenced_checkpoint_can_be_read_if_all_files_have_moved(tmp_path: Path) -> None:
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    interrupt(checkpoint, "compact", 6)
    assert export(str(checkpoint), f"{checkpoint}-state").rows
