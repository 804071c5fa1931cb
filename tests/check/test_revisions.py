"""``check --base`` compares with the right file, and passes a contract as new only if git says that it is new."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.check.revisions import find_old
from ttlsnap.contract import contract_of_checkpoint

from ..cli.running import Ttlsnap, runner
from ..samples import SAMPLES

FILE = "jobs/a.state.json"


def text(*, without: int = 0) -> str:
    """Return a contract without the first columns of its key."""
    document: dict[str, Any] = contract_of_checkpoint(str(SAMPLES / "agg-deltas-lz4-4.2")).to_json()
    del document["operators"][0]["stores"][0]["states"][0]["key"][:without]
    return json.dumps(document, indent=2) + "\n"


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def remove_object(folder: Path, name: str) -> None:
    found = git(folder, "rev-parse", name)
    (folder / ".git" / "objects" / found[:2] / found[2:]).unlink()


@pytest.fixture(autouse=True)
def _own_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("GIT_", "GITHUB_", "PRE_COMMIT"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository whose contract has changed so that the query cannot restore."""
    root = make(tmp_path / "repository")
    monkeypatch.chdir(root)
    return root


def make(root: Path) -> Path:
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    file = root / FILE
    file.parent.mkdir()
    file.write_text(text())
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "old")
    file.write_text(text(without=1))
    return root


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Ttlsnap:
    return runner(capsys, "check")


def link(root: Path) -> str:
    (root / "la").symlink_to("jobs")
    return "la/a.state.json"


def committed_link(root: Path) -> str:
    name = link(root)
    git(root, "add", "la")
    git(root, "commit", "--quiet", "-m", "link")
    return name


def link_from_outside(root: Path) -> str:
    (root.parent / "elsewhere").symlink_to(root / "jobs")
    return "../elsewhere/a.state.json"


def worktree(root: Path) -> str:
    git(root, "worktree", "add", "--quiet", "../tree")
    (root.parent / "tree" / FILE).write_text(text(without=1))
    return f"../tree/{FILE}"


def submodule(root: Path) -> str:
    make(root.parent / "other")
    git(root, "submodule", "--quiet", "add", str(root.parent / "other"), "sub")
    (root / "sub" / FILE).write_text(text(without=1))
    return f"sub/{FILE}"


def upwards_through_a_link(root: Path) -> str:
    """Name jobs/a.state.json, while a file with the name without the dots is in the commit and is unchanged."""
    (root / "a.state.json").write_text(text(without=1))
    (root / "jobs" / "deep").mkdir()
    (root / "la").symlink_to("jobs/deep")
    git(root, "add", "a.state.json")
    git(root, "commit", "--quiet", "-m", "another")
    return "la/../a.state.json"


@pytest.mark.parametrize("name", [link, committed_link, link_from_outside, worktree, submodule, upwards_through_a_link])
def test_the_file_is_found_in_the_commit_by_its_real_place(
    root: Path, check: Ttlsnap, name: Callable[[Path], str]
) -> None:
    code, out, err = check("--base", "HEAD", name(root))
    assert (code, err) == (1, "")
    assert "incompatible[key-removed]" in out


def test_the_command_prints_the_contract_of_another_repository(root: Path) -> None:
    old = find_old("HEAD", worktree(root))
    assert re.fullmatch(rf"git -C {root.parent / 'tree'} show [0-9a-f]{{40}}:{FILE}", old.command)
    assert subprocess.run(old.command, shell=True, check=True, capture_output=True, text=True).stdout == text()


def test_the_repository_is_that_of_the_file_and_not_of_git_dir(
    root: Path, check: Ttlsnap, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a.state.json").write_text(text(without=1))
    git(root, "add", "a.state.json")
    git(root, "commit", "--quiet", "-m", "another")
    monkeypatch.setenv("GIT_DIR", str(root / ".git"))
    monkeypatch.chdir(root / "jobs")
    assert check("--base", "HEAD", "./a.state.json").code == 1


def test_a_link_in_the_commit_is_not_followed(root: Path, check: Ttlsnap) -> None:
    name = committed_link(root)
    (root / "la").unlink()
    shutil.copytree(root / "jobs", root / "la")
    code, out, err = check("--base", "HEAD", name)
    assert (code, out) == (2, "")
    assert "la is a link" in err


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("JOBS/a.state.json", "HEAD has jobs, and not JOBS"),
        ("jobs/A.state.json", "HEAD has jobs/a.state.json, and not jobs/A.state.json"),
        ("é.state.json", ".state.json, and not é.state.json"),
    ],
)
def test_another_spelling_of_a_name_is_not_new_where_case_does_not_count(
    root: Path, check: Ttlsnap, name: str, told: str
) -> None:
    (root / unicodedata.normalize("NFD", "é.state.json")).write_text(text())
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "another")
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text(without=1))
    assert check("--base", "HEAD", name).code == 0
    git(root, "config", "core.ignorecase", "true")
    code, _, err = check("--base", "HEAD", name)
    assert (code, told in err) == (2, True), err


def without_tree(root: Path) -> None:
    remove_object(root, "HEAD:jobs")


def without_blob(root: Path) -> None:
    remove_object(root, f"HEAD:{FILE}")


def without_commit(root: Path) -> None:
    remove_object(root, "HEAD")


def with_empty_branch(root: Path) -> None:
    (root / ".git" / "refs" / "heads" / "main").write_text("")


def with_empty_head(root: Path) -> None:
    (root / ".git" / "HEAD").write_text("")


def detached_at_a_missing_commit(root: Path) -> None:
    git(root, "checkout", "--quiet", "--detach")
    remove_object(root, "HEAD")


def from_a_remote_that_is_gone(root: Path) -> None:
    """Turn the clone into one without trees, whose remote repository cannot be reached."""
    git(root, "config", "uploadpack.allowFilter", "true")
    clone = root.parent / "clone"
    git(root, "clone", "--quiet", "--no-checkout", "--filter=tree:0", root.as_uri(), str(clone))
    git(clone, "remote", "set-url", "origin", str(root.parent / "gone"))
    shutil.rmtree(root / ".git")
    shutil.move(clone / ".git", root / ".git")


@pytest.mark.parametrize(
    "damage",
    [
        without_tree,
        without_blob,
        without_commit,
        with_empty_branch,
        with_empty_head,
        detached_at_a_missing_commit,
        from_a_remote_that_is_gone,
    ],
)
def test_a_repository_that_git_cannot_read_is_an_error(
    root: Path, check: Ttlsnap, damage: Callable[[Path], None]
) -> None:
    damage(root)
    code, out, err = check("--base", "HEAD", FILE)
    assert (code, out) == (2, "")
    assert err.startswith("Error: git ")
    assert "is new" not in err


def outside(root: Path) -> str:
    shutil.copy(root / FILE, root.parent / "a.json")
    return "../a.json"


@pytest.mark.parametrize(
    ("base", "name", "told"),
    [
        ("HEAD", outside, "git finds no repository with the folder"),
        ("^HEAD", lambda _: FILE, "git finds no commit ^HEAD in the repository"),
        ("HEAD..HEAD", lambda _: FILE, "git finds no commit HEAD..HEAD in the repository"),
        ("HEAD", lambda _: str(SAMPLES / "agg-deltas-lz4-4.2"), "is not a file. With --base, each name is a file"),
    ],
)
def test_what_git_cannot_compare_is_an_error(
    root: Path, check: Ttlsnap, base: str, name: Callable[[Path], str], told: str
) -> None:
    code, out, err = check("--base", base, name(root))
    assert (code, out) == (2, "")
    assert told in err


def test_a_working_folder_elsewhere_is_an_error(root: Path, check: Ttlsnap, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    git(root, "config", "core.worktree", str(tmp_path / "other"))
    code, _, err = check("--base", "HEAD", FILE)
    assert (code, "is outside of the repository" in err or "git finds no repository" in err) == (2, True)


@pytest.mark.parametrize("is_first", [False, True])
def test_every_output_for_programs_says_that_a_contract_is_new(
    root: Path, check: Ttlsnap, is_first: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    git(root, "rm", "--quiet", "--cached", FILE)
    git(root, "commit", "--quiet", "-m", "removed")
    if is_first:
        git(root, "update-ref", "-d", "HEAD")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    reason = f"{'the repository' if is_first else 'HEAD'} has no contract to compare it with"
    documents = check("--base", "HEAD", FILE, "--format", "json", "--strict")
    assert documents.code == 0
    (document,) = documents.json
    assert (document["is_new"], document["old"], document["unseen"]) == (True, f"HEAD:./{FILE}", [reason])
    report = tmp_path / "report.txt"
    code, out, err = check("--base", "HEAD", FILE, "--format", "github", "--report", f"github={report}")
    assert (code, err) == (0, f"{FILE} is new: {reason}\n")
    assert out == f"::notice file={FILE},line=1,title=ttlsnap check::{FILE} is new: {reason}\n"
    assert report.read_text() == out
    assert (tmp_path / "summary").read_text().startswith("## ttlsnap check: new\n")
