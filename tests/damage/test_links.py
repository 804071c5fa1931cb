"""Symbolic links: one that leads outside is refused (exit code 4), and one that stays inside is followed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..samples import bytes_of, sample
from . import wreck
from .conftest import Refuses, Ttlsnap

LZ4 = "agg-deltas-lz4-4.2"


@pytest.mark.parametrize(
    "name",
    [
        "state", "state/0", "state/0/0", "state/0/1", "state/0/_metadata", "state/0/0/_metadata", "state/0/0/3.delta",
        "state/0/0/.3.delta.crc", "state/0/0/_metadata/schema", "state/0/_metadata/metadata", "offsets", "offsets/6",
        "commits", "commits/6", "metadata",
    ],
)  # fmt: skip
def test_a_link_that_leads_outside_is_refused(refuses: Refuses, tmp_path: Path, name: str) -> None:
    target = sample(LZ4, tmp_path)
    outside = tmp_path / "outside"
    (target / name).rename(outside)
    (target / name).symlink_to(outside)
    before = bytes_of(outside)
    for command in (("compact", *wreck.compacting(LZ4)), ("inspect", *wreck.scanning(LZ4))):
        told = refuses(4, target, command[0], target, *command[1:])
        assert f"{target / name}" in told
        assert "a symbolic link that leads outside" in told
    told = refuses(4, target, "compact", target, *wreck.compacting(LZ4), "--output", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert bytes_of(outside) == before


@pytest.mark.parametrize("name", ["_ttlsnap", "_ttlsnap/runs"])
def test_ttlsnap_does_not_write_through_a_link_in_the_place_of_its_folders(
    refuses: Refuses, tmp_path: Path, name: str
) -> None:
    target = sample(LZ4, tmp_path)
    (tmp_path / "outside").mkdir()
    (target / name).parent.mkdir(exist_ok=True)
    (target / name).symlink_to(tmp_path / "outside")
    assert "leads outside" in refuses(4, target, "compact", target, *wreck.compacting(LZ4))
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("name", ["sources", "sources/0", "a stray"])
def test_a_link_that_no_run_follows_prevents_only_a_copy(
    refuses: Refuses, ttlsnap: Ttlsnap, tmp_path: Path, name: str
) -> None:
    target = sample(LZ4, tmp_path)
    path = target / name
    if path.exists():
        shutil.rmtree(path)
    path.symlink_to(tmp_path)
    told = refuses(4, target, "compact", target, *wreck.compacting(LZ4), "--output", tmp_path / "copy")
    assert f"{path} is a symbolic link that leads outside" in told
    assert [p.name for p in tmp_path.iterdir()] == [target.name]
    assert ttlsnap("compact", target, *wreck.compacting(LZ4)).code == 0
    assert path.is_symlink()


@pytest.mark.parametrize("to", ["nowhere", "3.delta", "../1/nowhere"])
def test_a_broken_link_is_a_missing_file(refuses: Refuses, tmp_path: Path, to: str) -> None:
    target = sample(LZ4, tmp_path)
    path = target / "state/0/0/3.delta"
    path.unlink()
    path.symlink_to(to)
    for command in (("compact", *wreck.compacting(LZ4)), ("inspect", *wreck.scanning(LZ4))):
        assert "3.delta is missing" in refuses(5, target, command[0], target, *command[1:])


@pytest.mark.parametrize("name", ["state/0/0", "state/0/1", "offsets/6", "state/0/0/6.delta", "offsets", "state"])
@pytest.mark.parametrize("output", [False, True])
def test_a_link_that_stays_inside_is_followed(ttlsnap: Ttlsnap, tmp_path: Path, name: str, output: bool) -> None:
    target = sample(LZ4, tmp_path)
    elsewhere = target / "elsewhere"
    elsewhere.mkdir()
    (target / name).rename(elsewhere / "x")
    (target / name).symlink_to(elsewhere / "x")
    for file in target.rglob(f".{Path(name).name}.crc"):
        file.unlink()
    copy = tmp_path / "copy"
    done = ttlsnap(
        "compact", target, *wreck.compacting(LZ4), "--format", "json", *(("--output", copy) if output else ())
    )
    assert (done.code, json.loads(done.out)["totals"]["entries"]) == (0, 480)
    again = ttlsnap("compact", copy if output else target, *wreck.compacting(LZ4), "--format", "json")
    assert (again.code, json.loads(again.out)["totals"]["dropped"]) == (0, 0)


def test_a_checkpoint_may_itself_be_a_link(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    link = tmp_path / "link"
    link.symlink_to(target)
    report = json.loads(ttlsnap("compact", link, *wreck.compacting(LZ4), "--format", "json").out)
    assert report["target"] == str(target)
    assert (target / "state/0/0/7.snapshot").is_file()
    assert link.is_symlink()


@pytest.mark.parametrize(("name", "to"), [("sources/all", ".."), ("state/0/0/up", "../.."), ("a", "b"), ("c", ".")])
def test_a_copy_through_a_circular_link_is_refused(
    refuses: Refuses, ttlsnap: Ttlsnap, tmp_path: Path, name: str, to: str
) -> None:
    target = sample(LZ4, tmp_path)
    if name == "a":
        for one, other in (("a", "b"), ("b", "a")):
            (target / one).mkdir()
            (target / one / "x").symlink_to(f"../{other}")
    else:
        (target / name).symlink_to(to)
    told = refuses(4, target, "compact", target, *wreck.compacting(LZ4), "--output", tmp_path / "copy")
    assert "a list of all files would never end" in told
    assert [p.name for p in tmp_path.iterdir()] == [target.name]
    assert ttlsnap("compact", target, *wreck.compacting(LZ4)).code == 0


def test_two_partitions_in_one_folder_are_refused(refuses: Refuses, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    shutil.rmtree(target / "state/0/1")
    (target / "state/0/1").symlink_to("0")
    assert "are the same folder" in refuses(4, target, "compact", target, *wreck.compacting(LZ4))


@pytest.mark.parametrize(
    ("name", "inside"), [("_ttlsnap", "state"), ("_ttlsnap/runs", "../state"), ("_ttlsnap/runs", "..")]
)
def test_a_link_from_ttlsnaps_folder_into_the_checkpoint_is_refused(
    refuses: Refuses, tmp_path: Path, name: str, inside: str
) -> None:
    target = sample(LZ4, tmp_path)
    (target / name).parent.mkdir(exist_ok=True)
    (target / name).symlink_to(inside)
    for command in (("compact", target, *wreck.compacting(LZ4)), ("recover", target), ("history", target, "--prune")):
        assert "symbolic link" in refuses(4, target, *command)


def test_foreign_folders_among_the_runs_are_kept(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    kept = target / "_ttlsnap/runs/keep-this/notes"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    assert ttlsnap("compact", target, *wreck.compacting(LZ4)).code == 0
    assert ttlsnap("recover", target).code == 0
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("to", ["itself", "nowhere"])
@pytest.mark.parametrize("name", ["offsets/7", "offsets/0", "commits/7", "state/0/0/8.delta", "state/0/0/x", "state/1"])
def test_doctor_names_a_broken_link(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, to: str) -> None:
    target = sample(LZ4, tmp_path)
    path = target / name
    path.unlink(missing_ok=True)
    path.symlink_to(path.name if to == "itself" else to)
    assert run(["doctor", str(target), "--format", "json"]) == 1
    found = [problem for problem in json.loads(capsys.readouterr().out)["problems"] if problem["code"] == "broken-link"]
    assert [(problem["where"], str(path) in problem["message"]) for problem in found] == [(name, True)]


@pytest.mark.parametrize("moved", ["state/0/0/5.snapshot", "state/0/0/5.delta"])
def test_a_link_in_the_place_of_a_moved_file_is_refused(refuses: Refuses, tmp_path: Path, moved: str) -> None:
    name = "agg-snapshot-zstd-4.1"
    target = wreck.forget_checksums(sample(name, tmp_path))
    path = target / moved
    path.rename(target / "elsewhere")
    path.symlink_to(target / "elsewhere")
    told = refuses(4, target, "compact", target, *wreck.compacting(name))
    assert f"{path} is a symbolic link" in told


@pytest.mark.parametrize("kind", ["folder", "link to a folder", "link to a file", "fifo"])
def test_a_repair_is_refused_if_the_place_of_the_fence_is_occupied(refuses: Refuses, tmp_path: Path, kind: str) -> None:
    target = wreck.forget_checksums(sample(LZ4, tmp_path))
    (target / "state/0/0/7.delta").unlink()
    path = target / "offsets/7"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(".." if "folder" in kind else "../metadata")
    fixing = ("--fix", "last-batch-lost", "--yes", "--stopped", "--parallelism", "1")
    refuses((3, 4), target, "doctor", target, *fixing)
