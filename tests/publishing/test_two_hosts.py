"""The lease keeps two machines apart on a network file system where a ``flock`` does not reach other machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ttlsnap import rollback
from ttlsnap.errors import BusyError, StorageError
from ttlsnap.publishing.journal import backup_path
from ttlsnap.storage import lease
from ttlsnap.storage.directory import LOCK
from ttlsnap.storage.local import LocalDirectory

from ..matrix import FULL, rotating
from .commands import Commands
from .hosts import Host, moves_of
from .library import compact_with
from .stories import compact
from .trees import copy, differences, is_fenced, tree

pytestmark = pytest.mark.slow

SOON = 5.0


def moves(checkpoint: Path, twin: Path) -> tuple[int, int]:
    """Return the number of files that a compaction of the checkpoint stages, and the number that it moves."""
    compact_with(copy(checkpoint, twin))
    return moves_of(twin)


def locks(checkpoint: Path) -> list[Path]:
    """Return the lock files in a checkpoint."""
    return list(checkpoint.glob(f"{LOCK}*"))


def test_every_command_refuses_while_another_host_publishes(
    commands: Commands, checkpoint: Path, tmp_path: Path
) -> None:
    # The other host renews its lease for as long as it works.
    policy = tmp_path / "policy.toml"
    policy.write_text(
        f'[defaults]\non_fenced = "recover"\non_busy = "fail"\nstopped = true\n[[target]]\npath = "{checkpoint}"\n'
        '[[target.rule]]\nttl = "2h"\ntimestamp = "value.max"\n'
    )
    old = tree(checkpoint)
    staged, moved = moves(checkpoint, tmp_path / "twin")
    with Host(*compact(checkpoint), at=staged + moved // 2, lease=SOON) as first:
        time.sleep(1.3 * SOON)
        with Host("recover", checkpoint, lease=SOON) as second:
            assert second.go_on().code == 4, "the lease was not renewed"
        half = tree(checkpoint)
        assert is_fenced(checkpoint)
        for argv in (
            ["recover", str(checkpoint)],
            ["recover", str(checkpoint), "--undo"],
            ["rollback", str(checkpoint)],
            compact(checkpoint),
            compact(checkpoint, "--output", str(tmp_path / "copy")),
            ["history", str(checkpoint), "--prune"],
            ["doctor", str(checkpoint), "--fix", "stale-snapshot"],
            ["maintain", str(policy), "--engine", "local"],
        ):
            ended = commands.run(*argv)
            assert ended.code == 4, (argv, ended)
            told = " ".join((ended.err + ended.out).split())
            assert f"another ttlsnap is working on {checkpoint} ({first.name})" in told, (argv, ended)
            assert tree(checkpoint) == half, argv
        ended = first.go_on()
    assert ended.code == 0, ended.err
    assert tree(checkpoint) == tree(tmp_path / "twin")
    assert commands.run("rollback", str(checkpoint)).code == 0
    assert tree(checkpoint) == old
    assert not locks(checkpoint)


PLACES = ("staging", "first", "middle", "last")
SLICE = [("middle", "recover"), ("staging", "compact"), ("last", "undo")]


@pytest.mark.parametrize(
    ("place", "then"),
    [(place, then) for place in PLACES for then in ("recover", "undo", "compact")]
    if FULL
    else rotating(SLICE, 1, "hosts that sleep"),
)
def test_a_host_that_slept_too_long_changes_nothing(checkpoint: Path, tmp_path: Path, place: str, then: str) -> None:
    # Another host has taken over the expired lease. The first host detects that before its next change.
    old = tree(checkpoint)
    staged, moved = moves(checkpoint, tmp_path / "twin")
    new = tree(tmp_path / "twin")
    at = {"staging": 1, "first": staged + 1, "middle": staged + moved // 2, "last": staged + moved}[place]
    other: dict[str, Sequence[str | Path]] = {
        "recover": ["recover", checkpoint],
        "undo": ["recover", checkpoint, "--undo"],
        "compact": compact(checkpoint),
    }
    with Host(*compact(checkpoint), at=at, stops=True, lease=SOON) as first:
        with Host(*other[then]) as second:
            early = second.go_on()
        assert early.code == 4 and first.name in early.err, early
        time.sleep(1.3 * SOON)
        with Host(*other[then], lease=SOON) as second:
            ended = second.go_on()
        fenced = then == "compact" and place != "staging"
        assert ended.code == (4 if fenced else 0), ended
        left = tree(checkpoint)
        everything = tree_of_all(checkpoint)
        assert fenced or left in (old, new), differences(left, old)
        late = first.go_on()
    assert late.code == 5, late
    assert "its lock expired" in late.err and "Traceback" not in late.err
    assert tree_of_all(checkpoint) == everything, "the host that slept has changed something"
    with Host("recover", checkpoint, lease=SOON) as third:
        assert third.go_on().code == 0
    assert tree(checkpoint) in (old, new)
    assert not is_fenced(checkpoint)
    assert not locks(checkpoint)


@pytest.mark.parametrize("then", ["recover", "undo"] if FULL else rotating(["recover", "undo"], 1, "late renames"))
def test_a_rename_that_arrives_after_recover_changes_nothing(checkpoint: Path, tmp_path: Path, then: str) -> None:
    # The server of the file system receives the request of the first host after the second host has taken over.
    old = tree(checkpoint)
    staged, moved = moves(checkpoint, tmp_path / "twin")
    new = tree(tmp_path / "twin")
    options = ["--undo"] if then == "undo" else []
    at = staged + moved // 4  # an old file moves to the backup
    with Host(*compact(checkpoint), at=at, stops=True, lease=SOON, late=True) as first:
        time.sleep(1.3 * SOON)
        with Host("recover", checkpoint, *options, lease=SOON) as second:
            assert second.go_on().code == 0
        assert tree(checkpoint) == (old if options else new)
        assert first.go_on().code == 5
    assert tree(checkpoint) == (old if options else new)


def test_a_rename_of_a_rollback_that_arrives_after_its_undo_changes_nothing(checkpoint: Path, tmp_path: Path) -> None:
    # The old delta has no place in the new state, so no file is in the way of the late rename.
    compact_with(checkpoint)
    new = tree(checkpoint)
    twin = copy(checkpoint, tmp_path / "twin")
    undone = rollback(str(twin), stopped=True)
    document = json.loads((twin / f"_ttlsnap/runs/{undone.run}/journal.json").read_text())
    targets = [move["target"] for move in document["moves"]]
    at = targets.index("state/0/0/3.delta") + 1
    with Host("rollback", checkpoint, "--stopped", at=at, stops=True, lease=SOON, late=True) as first:
        time.sleep(1.3 * SOON)
        with Host("recover", checkpoint, "--undo", lease=SOON) as second:
            assert second.go_on().code == 0
        assert tree(checkpoint) == new
        first.go_on()
    assert tree(checkpoint) == new
    assert Host("rollback", checkpoint, "--stopped", lease=SOON).go_on().code == 0
    assert tree(checkpoint) == tree(twin)


def tree_of_all(checkpoint: Path) -> dict[str, bytes | None]:
    """Return every file and folder, including ttlsnap's own."""
    return {
        str(path.relative_to(checkpoint)): path.read_bytes() if path.is_file() else None
        for path in sorted(checkpoint.rglob("*"))
    }


def test_the_lease_of_a_dead_host_expires(commands: Commands, checkpoint: Path, tmp_path: Path) -> None:
    staged, moved = moves(checkpoint, tmp_path / "twin")
    with Host(*compact(checkpoint), at=staged + moved // 2, lease=SOON) as first:
        first.kill()
    with Host("recover", checkpoint) as second:
        early = second.go_on()
    assert early.code == 4 and first.name in early.err and "its lock expires in" in early.err
    time.sleep(1.3 * SOON)
    with Host("recover", checkpoint, lease=SOON) as second:
        assert second.go_on().code == 0
    assert tree(checkpoint) == tree(tmp_path / "twin")
    assert not locks(checkpoint)


def test_a_killed_run_does_not_block_the_next_run_on_its_own_machine(
    commands: Commands, checkpoint: Path, tmp_path: Path
) -> None:
    staged, moved = moves(checkpoint, tmp_path / "twin")
    with Host(*compact(checkpoint), at=staged + moved // 2, elsewhere=False) as first:
        assert commands.run("recover", str(checkpoint)).code == 4
        first.kill()
    assert len(locks(checkpoint)) == 1
    assert commands.run("recover", str(checkpoint)).code == 0
    assert tree(checkpoint) == tree(tmp_path / "twin")
    assert not locks(checkpoint)


def test_refused_runs_and_runs_without_work_leave_no_files(commands: Commands, checkpoint: Path) -> None:
    for argv, code in (
        (compact(checkpoint, ttl="900d"), 0),
        (["recover", str(checkpoint)], 0),
        (["rollback", str(checkpoint)], 4),
        (["history", str(checkpoint), "--prune"], 0),
        (compact(checkpoint, "--set", "nothing=1"), 2),
    ):
        ended = commands.run(*argv)
        assert ended.code == code, ended
        assert not (checkpoint / "_ttlsnap").exists(), argv


RACE = """
import fcntl, os, random, sys, time
from ttlsnap.storage import lease
from ttlsnap.errors import BusyError
from ttlsnap.storage.local import LocalDirectory

fcntl.flock = lambda *_: None
lease.read_boot = lambda: f"machine {os.getpid()}"
if sys.argv[2] == "no links":
    def refused(*_):
        raise PermissionError(1, "no hard links here")
    os.link = refused
files, marker, held = LocalDirectory(sys.argv[1]), sys.argv[1] + "/held", 0
print("ready", flush=True)
sys.stdin.readline()
while held < 50:
    try:
        with files.lock():
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))  # which fails if another holds the lock, too
            time.sleep(random.random() / 200)
            os.unlink(marker)
            held += 1
    except BusyError:
        pass
"""


@pytest.mark.parametrize("links", ["links", "no links"])
def test_only_one_of_many_simultaneous_hosts_holds_the_lock(tmp_path: Path, links: str) -> None:
    command = [sys.executable, "-c", RACE, str(tmp_path), links]
    pipe = subprocess.PIPE
    hosts = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(4)]
    for host in hosts:
        assert host.stdout is not None and host.stdout.readline(), host.communicate()
    for host in hosts:  # all of them begin together
        assert host.stdin is not None
        host.stdin.write("\n")
        host.stdin.flush()
    ends = [host.communicate(timeout=60) for host in hosts]
    assert [host.returncode for host in hosts] == [0] * 4, ends
    assert list(tmp_path.iterdir()) == []


def test_only_one_process_takes_over_an_expired_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    monkeypatch.setattr(lease, "LEASE", 1.0)
    one, other = LocalDirectory(str(tmp_path)), LocalDirectory(str(tmp_path))
    lost = {"host": "elsewhere", "process": 7, "token": "0"}
    (tmp_path / "_ttlsnap").mkdir()
    for number in (1, 4):
        (tmp_path / f"{LOCK}.{number:016}").write_text(json.dumps(lost))
    with pytest.raises(BusyError, match=r"\(process 7 on 'elsewhere'\)"), one.lock():
        pass
    time.sleep(1.2)
    with one.lock():
        (lock,) = locks(tmp_path)
        assert json.loads(lock.read_text())["process"] == os.getpid()
        with pytest.raises(BusyError, match="another ttlsnap is working"), other.lock():
            pass
        with pytest.raises(BusyError, match="another ttlsnap is working"), other.lock(shared=True):
            pass
        one.replace("_ttlsnap/x", b"")
        one.remove("_ttlsnap/x")
    assert list(tmp_path.iterdir()) == []


def test_a_takeover_writes_into_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", 1.0)
    (tmp_path / "precious").write_bytes(b"p" * 2000)
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "_ttlsnap").mkdir(parents=True)
    (checkpoint / f"{LOCK}.{1:016}").hardlink_to(tmp_path / "precious")
    time.sleep(1.2)
    files = LocalDirectory(str(checkpoint))
    with files.lock():
        assert [json.loads(lock.read_text())["process"] for lock in locks(checkpoint)] == [os.getpid()]
    assert (tmp_path / "precious").read_bytes() == b"p" * 2000
    assert list(checkpoint.iterdir()) == []


def test_a_damaged_lock_file_belongs_to_an_unknown_process_and_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE", 1.0)
    files = LocalDirectory(str(tmp_path))
    for content in (b"", b"[]", b'{"host": 1}', b"x" * 5000):
        (tmp_path / "_ttlsnap").mkdir()
        (tmp_path / f"{LOCK}.{1:016}").write_bytes(content)
        with pytest.raises(BusyError, match=r"\(unknown process\)"), files.lock():
            pass
        time.sleep(1.2)
        with files.lock():
            pass
        assert list(tmp_path.iterdir()) == []


def test_every_kind_of_change_needs_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LocalDirectory(str(tmp_path))
    files.mkdirs("_ttlsnap")
    for name in "ab":
        (tmp_path / name).write_bytes(b"old")
    with files.lock():
        (lock,) = locks(tmp_path)
        lock.write_text("{}")
        # As if this process had been suspended: with such a long lease, the last renewal is long ago.
        monkeypatch.setattr(lease, "LEASE", 1e9)
        for change in (
            lambda: files.create("c", b""),
            lambda: files.replace("a", b"new"),
            lambda: files.writer("a").__enter__(),
            lambda: files.rename("a", "c"),
            lambda: files.keep_copy("a", "c"),
            lambda: files.move_in(str(tmp_path / "a"), "c"),
            lambda: files.remove("a"),
            lambda: files.remove_tree(""),
            lambda: files.mkdirs("c"),
        ):
            with pytest.raises(StorageError, match="its lock expired"):
                change()
        monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_backup_with_the_only_copy_of_a_file_is_kept(commands: Commands, checkpoint: Path, tmp_path: Path) -> None:
    # This happens if a host moves a file after another host has undone its run.
    old = tree(checkpoint)
    staged, moved = moves(checkpoint, tmp_path / "twin")
    with Host(*compact(checkpoint), at=staged + moved // 2, elsewhere=False) as first:
        first.kill()
    (run,) = [path.name for path in checkpoint.glob("_ttlsnap/runs/*")]
    assert commands.run("recover", str(checkpoint), "--undo").code == 0
    kept = backup_path(run, "state/0/0/1.delta")
    (checkpoint / kept).parent.mkdir(parents=True)
    (checkpoint / "state/0/0/1.delta").rename(checkpoint / kept)
    for argv in (["recover", str(checkpoint)], compact(checkpoint)):
        ended = commands.run(*argv)
        assert ended.code == 0, ended
        assert f"{checkpoint / kept} was not restored" in " ".join((ended.out + ended.err).split()), argv
    for argv in (["rollback", str(checkpoint)], ["history", str(checkpoint), "--prune"]):
        assert commands.run(*argv).code == 0
    (checkpoint / kept).rename(checkpoint / "state/0/0/1.delta")
    assert tree(checkpoint) == old
    assert commands.run("history", str(checkpoint), "--prune").code == 0
    assert not (checkpoint / kept).parent.exists()
