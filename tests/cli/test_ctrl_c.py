"""Ctrl-C at any moment of a run: the exit code is 130, and the message says whether the run was published."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ttlsnap import history

from ..matrix import rotating
from ..publishing.trees import is_fenced, tree
from ..samples import sample
from .terminal import run_on_terminal

pytestmark = pytest.mark.slow

MOMENTS = 300
"""The parts into which the time of a run is divided."""
PATIENCE_S = 180.0
MESSAGES = (
    "Nothing was changed.",  # no command had begun
    "Everything is complete or undone. No run was published.",
    "Everything is complete or undone. Run {run} on {target} was published.",
)


def start(target: Path, *options: str) -> subprocess.Popen[str]:
    """Start a compaction in a process of its own. Return when a signal no longer meets Python's own start."""
    words = ["compact", str(target), "--ttl", "2d", "--timestamp", "value.max", "--engine", "local", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "ttlsnap", *words, "--parallelism", "2", "--stopped", "--yes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and not catches_sigterm(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return process


def catches_sigterm(pid: int) -> bool:
    """Return whether a process handles SIGTERM, as only ttlsnap does, and not Python."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


@pytest.fixture(scope="module")
def run_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the time in seconds that a run takes."""
    process = start(sample("agg-snapshot-zstd-4.1", tmp_path_factory.mktemp("timed")))
    begun = time.monotonic()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    return time.monotonic() - begun


@pytest.mark.parametrize("moment", rotating(range(MOMENTS), 5, "moments of Ctrl-C"))
def test_a_run_ends_with_the_code_of_its_signal_and_says_what_it_did(tmp_path: Path, run_s: float, moment: int) -> None:
    target = sample("agg-snapshot-zstd-4.1", tmp_path)
    old = tree(target)
    number, times = (signal.SIGTERM if moment % 5 == 4 else signal.SIGINT), (3 if moment % 3 == 2 else 1)
    process = start(target)
    time.sleep(run_s * moment / MOMENTS)
    for _ in range(times):
        process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    runs = history(str(target))
    assert process.returncode in (0, 128 + number), (process.returncode, err)
    assert "Traceback" not in err and not is_fenced(target), err
    assert (tree(target) == old) is (runs == [])
    if process.returncode == 0:  # the signal came when the command had printed its result
        assert runs and f"ttlsnap rollback {target}" in out and not err
        return
    name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    (told,) = [line for line in err.splitlines() if line.startswith("Stopped by")]
    run = runs[0].run if runs else ""
    found = [message.format(run=run, target=target) for message in MESSAGES]
    assert told.removeprefix(f"Stopped by {name}. ") in (found[2:] if runs else found[:2])


def test_a_second_ctrl_c_changes_nothing_once_the_result_is_printed(tmp_path: Path) -> None:
    # A thread of a rule keeps the process alive after the command has ended.
    target = sample("agg-snapshot-zstd-4.1", tmp_path)
    (tmp_path / "lingering.py").write_text(
        "import threading, time\nfrom ttlsnap.transform.protocols import Keep\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n\ndef keep(key, value):\n    return Keep()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "ttlsnap", "compact", str(target), "--transformer", "lingering:keep", "--stopped"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while line := process.stdout.readline():
        if "Nothing was changed" in line:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_ctrl_c_on_a_terminal_is_acknowledged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_rules.py").write_text(
        "import os, signal\nfrom ttlsnap.transform.protocols import Keep\n\n"
        "def stop(key, value):\n    os.kill(os.getpid(), signal.SIGINT)\n    return Keep()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    words = ("compact", str(sample("agg-snapshot-zstd-4.1", tmp_path)), "--transformer", "slow_rules:stop")
    written = run_on_terminal(*words, "--engine", "local", "--stopped", streams=("stderr",), exit_code=130)
    first, last = written.index("Stopping. Please wait"), written.index("Stopped by Ctrl-C.")
    assert written.count("Stopping. ") == 1 and first < last


def test_the_message_names_a_copy_that_was_completed(tmp_path: Path) -> None:
    # A rule's module sends the signal when the copy gets its name.
    target, new = sample("agg-snapshot-zstd-4.1", tmp_path), tmp_path / "new"
    (tmp_path / "stopping.py").write_text(
        "import os, signal\nfrom ttlsnap.transform.protocols import Drop, Keep\nrename = os.rename\n\n"
        "def rename_and_stop(*names):\n    rename(*names)\n    if str(names[1]).endswith('/new'):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n\nos.rename = rename_and_stop\n\n"
        "def half(key, value):\n    return Drop() if sum(map(ord, str(key))) % 2 else Keep()\n"
    )
    words = ["compact", str(target), "--transformer", "stopping:half", "--stopped", "--output", str(new)]
    done = subprocess.run(
        [sys.executable, "-m", "ttlsnap", *words], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 130, done
    assert done.stderr.splitlines()[-1].endswith(f"The new checkpoint {new} was completed.")
    assert (new / "offsets").is_dir()
    shutil.rmtree(new)
