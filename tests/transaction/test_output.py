"""``--output``: destinations that are allowed, and destinations that are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import compact as run_compaction
from ttlsnap import doctor, inspect
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..publishing.commands import Commands
from ..publishing.stories import compact
from ..publishing.trees import tree
from ..samples import sample


def a_file(path: Path) -> Path:
    path.write_text("mine")
    return path


def a_full_folder(path: Path) -> Path:
    path.mkdir()
    (path / ".hidden").write_text("mine")
    return path


PLACES: dict[str, Callable[[Path, Path], Path]] = {
    "a file": lambda source, folder: a_file(folder / "file"),
    "a folder that is not empty": lambda source, folder: a_full_folder(folder / "full"),
    "the source": lambda source, folder: source,
    "in the source": lambda source, folder: source / "new",
    "deep in the source": lambda source, folder: source / "state" / "0" / "new",
    "around the source": lambda source, folder: source.parent,
    "the source by another way": lambda source, folder: source.parent / "x" / ".." / source.name / "new",
}


@pytest.mark.parametrize("place", PLACES)
def test_an_impossible_destination_is_refused(commands: Commands, checkpoint: Path, tmp_path: Path, place: str) -> None:
    destination = PLACES[place](checkpoint, tmp_path)
    old, around = tree(checkpoint), sorted(tmp_path.iterdir())
    refused = commands.run(*compact(checkpoint, "--output", str(destination)))
    assert refused.code == 2
    assert "--output" in refused.err or "must not contain each other" in refused.err
    assert tree(checkpoint) == old
    assert not (checkpoint / "_ttlsnap").exists()
    assert sorted(tmp_path.iterdir()) == around


def test_a_link_into_the_source_is_refused(commands: Commands, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(checkpoint / "state")
    old = tree(checkpoint)
    assert commands.run(*compact(checkpoint, "--output", str(tmp_path / "link" / "new"))).code == 2
    assert tree(checkpoint) == old


@pytest.mark.parametrize("exists", [False, True])
def test_a_new_or_an_empty_folder_is_accepted(
    commands: Commands, checkpoint: Path, tmp_path: Path, exists: bool
) -> None:
    destination = tmp_path / "above" / "new"
    if exists:
        destination.mkdir(parents=True)
    old = tree(checkpoint)
    assert commands.run(*compact(checkpoint, "--output", str(destination))).code == 0
    assert tree(checkpoint) == old
    new = tree(destination)
    assert new["offsets/2"] == old["offsets/2"]
    assert new["state/0/0/3.snapshot"] != old["state/0/0/3.snapshot"]
    assert [path.name for path in destination.parent.iterdir()] == ["new"]


def test_doctor_finds_a_copy_with_new_and_old_stores_in_order(tmp_path: Path) -> None:
    """Only one side of the join is rewritten. The other one keeps the files of all versions."""
    target, copy = sample("join-4.2", tmp_path), tmp_path / "copy"
    rule = TtlTransformerFactory(StateTtlConfig(86_400_000_000), timestamp="left:value.at")
    options: dict[str, Any] = {"now": "2026-11-21T12:00:00Z", "max_drop": 1.0, "stopped": True, "drop_unmatched": True}
    assert run_compaction(str(target), [rule], output=str(copy), **options).totals.dropped
    sides = [len(list((copy / "state/0/0" / f"{side}-keyWithIndexToValue").iterdir())) for side in ("left", "right")]
    assert sides[0] < sides[1]
    report = doctor(str(copy))
    assert (report.exit_code, [version.restorable for version in report.versions]) == (0, ["yes", *["cleaned up"] * 5])


def test_a_copy_says_who_planned_its_batch(tmp_path: Path) -> None:
    target, copy = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "copy"
    rule = TtlTransformerFactory(StateTtlConfig(7 * 86_400_000_000), timestamp="value.max")
    run_compaction(str(target), [rule], max_drop=1.0, stopped=True)
    made = run_compaction(str(target), [rule], output=str(copy), stopped=True, now="2100-01-01T00:00:00Z", max_drop=1.0)
    assert made.totals.dropped
    assert inspect(str(copy)).planned_by == made.run
    assert [problem.code for problem in doctor(str(copy)).problems] == ["planned-batch"]
