"""A file with keys or values of entries is no more readable than the checkpoint, also while it is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ..publishing.owners import make_reachable, umask
from ..samples import sample
from .running import Ttlsnap

AGG = "agg-deltas-lz4-4.2"
RULE = ("--ttl", "7d", "--timestamp", "value.max", "--engine", "local", "--stopped", "--dry-run")


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def with_modes(folder: Path, *, files: int, folders: int) -> Path:
    """Return a checkpoint whose files and folders have these modes."""
    target = sample(AGG, folder)
    for path in (target, *target.rglob("*")):
        path.chmod(folders if path.is_dir() else files)
    return target


@pytest.fixture(autouse=True)
def reachable(tmp_path: Path) -> None:
    make_reachable(tmp_path)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.html"


@pytest.mark.parametrize(
    ("files", "folders", "mask", "found"),
    [
        (0o644, 0o755, 0o022, "0o644"),
        (0o640, 0o755, 0o022, "0o640"),
        (0o644, 0o750, 0o022, "0o640"),
        (0o600, 0o755, 0o000, "0o600"),
        (0o400, 0o700, 0o022, "0o600"),
        (0o664, 0o775, 0o027, "0o640"),
    ],
)
def test_a_page_with_keys_is_as_readable_as_the_state(
    ttlsnap: Ttlsnap, tmp_path: Path, page: Path, files: int, folders: int, mask: int, found: str
) -> None:
    target = with_modes(tmp_path, files=files, folders=folders)
    with umask(mask):
        assert ttlsnap("inspect", target, "--entries", 2, "--report", f"html={page}", "--show-keys").code == 0
    assert mode(page) == found


def test_one_private_partition_makes_the_page_private(ttlsnap: Ttlsnap, tmp_path: Path, page: Path) -> None:
    target = with_modes(tmp_path, files=0o644, folders=0o755)
    for path in (target / "state/0/1").iterdir():
        path.chmod(0o600)
    assert ttlsnap("inspect", target, "--entries", 2, "--report", f"html={page}", "--show-keys").code == 0
    assert mode(page) == "0o600"


def test_a_page_without_keys_has_the_mode_of_the_umask(ttlsnap: Ttlsnap, tmp_path: Path, page: Path) -> None:
    target = with_modes(tmp_path, files=0o600, folders=0o700)
    with umask(0o027):
        assert ttlsnap("inspect", target, "--report", f"html={page}").code == 0
    assert mode(page) == "0o640"


@pytest.mark.parametrize("more", [[], ["--show-keys"]], ids=["without keys", "with keys"])
def test_a_page_is_no_more_readable_than_the_one_that_it_replaces(
    ttlsnap: Ttlsnap, tmp_path: Path, page: Path, more: list[str]
) -> None:
    target = with_modes(tmp_path, files=0o644, folders=0o755)
    words = ("inspect", target, "--entries", 2, "--report", f"html={page}", *more)
    assert ttlsnap(*words).code == 0
    page.chmod(0o640)
    assert ttlsnap(*words).code == 0
    assert mode(page) == "0o640"


def test_the_page_of_several_targets_is_as_readable_as_all_of_them(
    ttlsnap: Ttlsnap, tmp_path: Path, page: Path
) -> None:
    first = with_modes(tmp_path / "first", files=0o644, folders=0o755)
    other = with_modes(tmp_path / "other", files=0o640, folders=0o750)
    report = ("--report", f"html={page}", "--show-keys")
    assert ttlsnap("compact", first, other, *RULE, *report).code == 0
    assert mode(page) == "0o640"


def test_plans_are_as_readable_as_the_state(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = with_modes(tmp_path, files=0o600, folders=0o700)
    policy, plan = tmp_path / "policy.toml", tmp_path / "plan.json"
    policy.write_text(f'[[target]]\npath = "{target}"\n[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\n')
    assert ttlsnap("maintain", policy, "--plan-out", plan, "--engine", "local").code == 0
    assert mode(plan) == "0o600"
    plan.unlink()
    words = ("migrate", target, "--partitions", 3, "--stopped", "--engine", "local", "--dry-run")
    assert ttlsnap(*words, "--plan-out", plan).code == 0
    assert mode(plan) == "0o600"


@pytest.mark.parametrize("to", ["state", "delta:state", "state.ndjson"])
def test_exports_are_as_readable_as_the_state_under_the_umask(ttlsnap: Ttlsnap, tmp_path: Path, to: str) -> None:
    target = with_modes(tmp_path, files=0o664, folders=0o775)
    (target / "state/0/1/7.delta").chmod(0o640)
    name = to.removeprefix("delta:")
    with umask(0o022):
        assert ttlsnap("export", target, "--to", to.replace(name, str(tmp_path / name))).code == 0
    made = [tmp_path / name, *(tmp_path / name).rglob("*")]
    assert {mode(path) for path in made if path.is_file()} == {"0o640"}
    assert {mode(path) for path in made if path.is_dir()} <= {"0o750"}


def test_an_archive_is_as_readable_as_the_state_under_the_umask(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target, archive = with_modes(tmp_path, files=0o664, folders=0o775), tmp_path / "archive"
    with umask(0o027):
        done = ttlsnap("compact", target, *RULE[:-1], "--yes", "--expired-to", archive)
    assert done.code == 0
    assert {mode(path) for path in archive.iterdir()} == {"0o640"}
    assert mode(archive) == "0o750"


def test_files_are_private_while_they_are_written(
    ttlsnap: Ttlsnap, tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake

    target, seen, sync, convert = sample(AGG, tmp_path / "given"), set[str](), os.fsync, deltalake.convert_to_deltalake

    def look() -> None:
        for top in tmp_path.iterdir():
            if top.name != "given" and ((top.is_dir() and any(top.iterdir())) or top.suffix == ".tmp"):
                seen.add(mode(top))

    def sync_and_look(descriptor: int) -> None:
        look()
        sync(descriptor)

    def convert_and_look(*given: object, **named: object) -> None:
        convert(*given, **named)  # type: ignore[arg-type]
        look()

    monkeypatch.setattr(os, "fsync", sync_and_look)
    monkeypatch.setattr(deltalake, "convert_to_deltalake", convert_and_look)
    with umask(0):
        assert ttlsnap("inspect", target, "--report", f"html={page}", "--entries", 2, "--show-keys").code == 0
        assert seen == {"0o600"}
        seen.clear()
        assert ttlsnap("export", target, "--to", f"delta:{tmp_path / 'tables'}").code == 0
    assert seen == {"0o700"}


def test_a_failed_export_gives_the_users_folder_its_mode_back(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target, to = sample(AGG, tmp_path), tmp_path / "state"
    damaged = target / "state/0/1/7.delta"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    to.mkdir(0o750)
    assert ttlsnap("export", target, "--to", to).code == 5
    assert mode(to) == "0o750"
