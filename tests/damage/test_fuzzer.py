"""Hundreds of damaged checkpoints, each from a seed. See ``fuzzing`` for the promises of every command.

``TTLSNAP_FUZZ_CASES`` says how many (12), ``TTLSNAP_FUZZ_RUN`` names the series of seeds (by default the commit), and
``TTLSNAP_FUZZ_SEED`` repeats the case that a failure names. ``TTLSNAP_FUZZ_LOG`` is a file that gets a JSON line of
each case.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.cli.app import run

from .. import matrix
from .fuzzing import CLASSES, SECONDS, Ward, is_changed, snapshot

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("TTLSNAP_FUZZ_CASES", "12"))
RUN = os.environ.get("TTLSNAP_FUZZ_RUN") or matrix.seed()
SEED = os.environ.get("TTLSNAP_FUZZ_SEED")
LOG = os.environ.get("TTLSNAP_FUZZ_LOG")
ROOT = Path(__file__).parents[2]
PATIENCE = 9 * SECONDS
"""Seconds without output until a worker counts as stuck. The worker itself measures the computing time of a command,
but it cannot notice a command that waits or computes for ever."""


class Worker:
    """A process that runs one case after the other, and may die in one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.damage.fuzzing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def case(self, seed: str) -> dict[str, Any]:
        """Return the result of a case. It is ``wrong`` if the worker died, or if a command did not end."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        command = "nothing"
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE)
            except queue.Empty:
                return {"seed": seed, "wrong": [f"{command} does not end"]}
            if not line:
                return {"seed": seed, "wrong": [f"{command} ended the process with {self._process.wait()}"]}
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
            command = line.strip()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def answers(seeds: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the result of each seed. After a failure the next seed gets a new worker."""
    worker = Worker()
    try:
        for seed in seeds:
            answer = worker.case(seed)
            yield answer
            if answer["wrong"]:
                worker.close()
                worker = Worker()
    finally:
        worker.close()


def test_every_damaged_checkpoint_gets_a_clear_answer(tmp_path: Path) -> None:
    seeds = [SEED] if SEED is not None else [f"{RUN}-{number}" for number in range(CASES)]
    wrong, refused, hidden = [], 0, 0
    with Path(LOG or tmp_path / "log").open("a") as log:
        for answer in answers(seeds):
            log.write(json.dumps(answer) + "\n")
            log.flush()
            refused += answer.get("codes", {}).get("compact", 0) != 0
            hidden += answer.get("hidden") is not None
            assert answer.get("hidden") in (None, *CLASSES)
            if answer["wrong"]:
                wrong.append(
                    f"TTLSNAP_FUZZ_SEED={answer['seed']}: {answer.get('of')}, {answer.get('done')}: {answer['wrong']}"
                )
    assert not wrong, "\n".join(wrong)
    assert SEED is not None or 0 < refused < len(seeds)


def test_a_failed_run_may_remove_the_rests_of_a_killed_one_and_leave_nothing_new(tmp_path: Path) -> None:
    patient = Ward(tmp_path).patient("cut off 3", "agg-deltas-lz4-4.2")
    killed = snapshot(patient.folder)
    assert any(name.startswith("_ttlsnap/.staged.") for name in killed)
    (patient.folder / "state/0/1/7.delta").write_bytes(b"damaged")
    before = snapshot(patient.folder)
    assert run(["compact", str(patient.folder), *patient.compacting]) == 5
    after = snapshot(patient.folder)
    assert not any(name.startswith("_ttlsnap") for name in after)
    assert not is_changed(before, after, ())
    assert is_changed(killed, after, ())
    assert is_changed(after, before, ())
    assert is_changed(before, {**after, "_ttlsnap/runs/20260101T000000Z-abcdef/staged": "d"}, ())
