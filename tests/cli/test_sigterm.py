"""A command that gets SIGTERM ends before its work is done. It reports each target's outcome, and leaves no fence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.storage.open import open_directory

from ..maintenance.targets import fresh
from ..matrix import FULL
from ..publishing.commands import Commands
from ..publishing.trees import is_fenced, tree
from ..samples import sample

pytestmark = pytest.mark.slow

# A slow rule, which writes a byte to a file for each entry that it gets.
SLOW = """
import os, time
from pathlib import Path
from ttlsnap.transform.protocols import Drop, Keep

def slow(key, value):
    with Path(__file__).with_name("seen").open("ab") as seen:
        seen.write(b".")
    time.sleep(0.05)
    return Drop() if sum(map(ord, str(key))) % 2 else Keep()
"""
# A rule that swallows all exceptions, even the one that a signal raises.
DEAF = """
import os, signal, time
from ttlsnap.transform.protocols import Drop, Keep

sent = []

def deaf(key, value):
    if not sent:
        sent.append(key)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
        except BaseException:
            pass
    return Drop() if sum(map(ord, str(key))) % 2 else Keep()
"""
PATIENCE_S = 180.0
ENTRIES = 480
"""The entries of each target."""


class Process:
    """A running command, whose current folder contains the modules of rules."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._folder = folder
        (folder / "rules_slow.py").write_text(SLOW)
        (folder / "rules_deaf.py").write_text(DEAF)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ttlsnap", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
        )

    def send_when_begun(self, *, times: int = 1, group: bool = False) -> tuple[int, str, str]:
        """Send SIGTERM to the process or its group once a rule is running. Return exit code, stdout and stderr."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.entries_seen():
            assert self.process.poll() is None and time.monotonic() < deadline, self.process.communicate()
            time.sleep(0.05)
        return self.send(times=times, group=group)

    def send(self, *, times: int = 1, group: bool = False) -> tuple[int, str, str]:
        """Send SIGTERM now. Return exit code, stdout and stderr. The process must end before its work is done."""
        for _ in range(times):
            if group:
                os.killpg(self.process.pid, signal.SIGTERM)
            else:
                self.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.entries_seen() < ENTRIES
        assert "Traceback" not in err, err
        return self.process.returncode, out, err

    def entries_seen(self) -> int:
        """Return the number of entries that the slow rule has got."""
        seen = self._folder / "seen"
        return seen.stat().st_size if seen.exists() else 0


def children_of(pid: int) -> list[str]:
    """Return the command lines of the living children of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append((path.parent / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("options", "group"),
    [
        pytest.param(options, group, marks=[pytest.mark.spark] if "spark" in options else [])
        for options in (("--parallelism", "1"), ("--parallelism", "2"), ("--engine", "spark"))
        for group in (False, True)  # systemd signals all processes of a service
        if FULL or group or options == ("--parallelism", "1")
    ],
)
def test_compact_ends_and_leaves_the_checkpoint_unchanged(
    tmp_path: Path, options: tuple[str, ...], group: bool
) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = tree(target)
    engine = () if "spark" in options else ("--engine", "local")
    words = ("compact", str(target), "--transformer", "rules_slow:slow", "--stopped", *engine, *options)
    process = Process(tmp_path, *words)
    code, out, err = process.send_when_begun(times=2, group=group)
    assert (code, out) == (143, ""), err
    assert err.splitlines()[-1].startswith("Stopped by SIGTERM. Everything is complete or undone")
    assert tree(target) == before
    assert not (target / "_ttlsnap/runs").exists()
    assert children_of(process.process.pid) == []


def test_a_run_is_not_published_even_if_a_rule_swallows_the_signal(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = tree(target)
    options = ("--transformer", "rules_deaf:deaf", "--stopped", "--engine", "local", "--parallelism", "1")
    process = Process(tmp_path, "compact", str(target), *options)
    out, err = process.process.communicate(timeout=PATIENCE_S)
    assert (process.process.returncode, out) == (143, ""), err
    assert tree(target) == before


def policy(folder: Path, text: str) -> str:
    path = folder / "policy.toml"
    path.write_text(f"[defaults]\nstopped = true\n{text}")
    return str(path)


@pytest.mark.parametrize("engine", ["local", "spark"] if FULL else ["local"])
def test_maintain_reports_the_outcome_of_each_target(tmp_path: Path, engine: str) -> None:
    # There are more targets than workers, so that the last targets never start.
    (tmp_path / "ck").mkdir()
    targets = [fresh(tmp_path / "ck", f"{number:02}") for number in range(10)]
    before = tree(targets[0])
    path = policy(tmp_path, '[[target]]\npath = "ck/*"\ntransformer = "rules_slow:slow"\n')
    words = ("maintain", path, "--engine", engine, "--format", "json", "--metrics", str(tmp_path / "metrics"))
    code, out, err = Process(tmp_path, *words, "--log-format", "json").send_when_begun(times=3)
    assert code == 143, err
    found = {one["target"]: one for one in json.loads(out)["targets"]}
    assert sorted(found) == [str(target) for target in targets]
    metrics = (tmp_path / "metrics").read_text()
    for target in targets:
        one = found[str(target)]
        assert (one["status"], one["exit_code"]) == ("stopped", 143)
        assert one["error"] == f"{target}: SIGTERM stopped this run before anything was published"
        assert f'ttlsnap_target_status{{target="{target}",status="stopped"}} 1\n' in metrics
        assert tree(target) == before
    assert "ttlsnap_run_exit_code 143\n" in metrics
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines] == ["begun", *["target"] * len(targets), "done"]
    assert err.splitlines()[-1].startswith("Stopped by SIGTERM.")


def test_maintain_stops_waiting_for_a_busy_target(tmp_path: Path) -> None:
    target = fresh(tmp_path, "ck")
    path = policy(
        tmp_path, '[[target]]\npath = "ck"\nttl = "7d"\ntimestamp = "value.max"\non_busy = "wait"\nwait = "1h"\n'
    )
    with open_directory(str(target)).lock():
        process = Process(tmp_path, "maintain", path, "--engine", "local", "--format", "json")
        time.sleep(6)  # maintain checks a busy target every 15 seconds
        code, out, _ = process.send()
    assert (code, [one["status"] for one in json.loads(out)["targets"]]) == (143, ["stopped"])


def test_applying_an_interrupted_plan_reports_its_targets_as_stopped(tmp_path: Path) -> None:
    for number in range(3):
        fresh(tmp_path / "ck", f"{number}")
    before = tree(tmp_path / "ck/0")
    path = policy(tmp_path, '[[target]]\npath = "ck/*"\ntransformer = "rules_slow:slow"\n')
    words = ("maintain", path, "--engine", "local", "--format", "json")
    code, out, _ = Process(tmp_path, *words, "--plan-out", str(tmp_path / "plan")).send_when_begun()
    assert (code, {one["status"] for one in json.loads(out)["targets"]}) == (143, {"stopped"})
    applied = subprocess.run(
        [sys.executable, "-m", "ttlsnap", *words, "--apply", str(tmp_path / "plan")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found: list[Any] = json.loads(applied.stdout)["targets"]
    assert (applied.returncode, {one["status"] for one in found}) == (143, {"stopped"}), applied.stderr
    assert tree(tmp_path / "ck/0") == before


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with Commands(tmp_path_factory.mktemp("commands"), processes=1) as made:
        yield made


CALLS = ["rename", "linkat", "link", "unlink", "fsync", "mkdir"]


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13, 21] if FULL else [3])
@pytest.mark.parametrize("call", CALLS if FULL else ["rename", "unlink"])
def test_maintain_publishes_each_target_completely_or_not_at_all(
    commands: Commands, tmp_path: Path, call: str, number: int
) -> None:
    # Each thread gets the signal at every call, starting with its n-th.
    targets = [fresh(tmp_path / "ck", f"{number}") for number in range(3)]
    whole = fresh(tmp_path, "whole")
    path = policy(tmp_path, '[[target]]\npath = "ck/*"\nttl = "7d"\ntimestamp = "value.max"\n')
    alone = ["compact", str(whole), "--ttl", "7d", "--timestamp", "value.max", "--engine", "local", "--stopped"]
    old = tree(whole)
    assert commands.run(*alone).code == 0
    new = tree(whole)
    words = ["maintain", path, "--engine", "local", "--format", "json"]
    ended = commands.trace(words, tmp_path / "ck", f"{call}:signal=SIGTERM:when={number}+").ended
    # A signal that arrives before the results ends the command without a JSON document.
    found = {one["target"]: one["status"] for one in json.loads(ended.out)["targets"]} if ended.out else {}
    for target in targets:
        assert not is_fenced(target)
        assert tree(target) in ([new if found[str(target)] == "done" else old] if found else [old, new])
        assert found.get(str(target), "stopped") in ("done", "stopped")
        recovered = commands.run("recover", str(target), "--format", "json")
        assert (recovered.code, recovered.json["outcome"]) == (0, "nothing")
    assert ended.code == 143 or (found and "stopped" not in found.values())
