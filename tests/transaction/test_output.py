"""``--output``: destinations that are allowed, and destinations that are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..publishing.commands import Commands
from ..publishing.stories import compact
from ..publishing.trees import tree


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
