"""What a large state costs: a model in CPU time, requests and bytes, derived from some runs and tested on others.

    python cost_work.py MASTER    for each checkpoint named in a line of stdin, run ``compact`` and print a line of JSON

CPU time is that of all processes of the cluster and of the application: executors, Python workers, driver.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from measuring import Cost, measure, peak_memory
from queries import NOW, TIMESTAMP, TTL

EXECUTORS = 2
MILLION = 1_000_000


def spread(source: Path, target: Path, partitions: int, *, checksums: bool = True) -> Path:
    """Make the checkpoint ``target`` with ``partitions``, each a copy of one of those of ``source``.

    Spark would put the entries into other partitions, which makes no difference here. Without ``checksums`` it has no
    checksum files, as in object stores, where Hadoop writes none.
    """
    old = len([path for path in (source / "state/0").iterdir() if path.name.isdigit()])
    state = shutil.ignore_patterns("*.delta", "*.snapshot", "*.zip", "*.changelog", "SSTs", ".*.crc")
    shutil.copytree(source, target, ignore=state)
    ignored = None if checksums else shutil.ignore_patterns(".*.crc")
    for number in range(partitions):
        folder = target / f"state/0/{number}"
        shutil.copytree(source / f"state/0/{number % old}", folder, ignore=ignored, dirs_exist_ok=True)
    for path in (target / "state/0/_metadata/metadata", *(target / "offsets").glob("[0-9]*")):
        text = path.read_text().replace(f'"numPartitions":{old}', f'"numPartitions":{partitions}')
        setting = '"spark.sql.shuffle.partitions":"{}"'
        path.write_text(text.replace(setting.format(old), setting.format(partitions)))
    return target


@dataclass(frozen=True)
class Run:
    """One run of ``compact``: what it had to do, and what it cost. ``worker_mib`` is the peak of a Python worker."""

    partitions: int
    entries: int
    cost: Cost
    worker_mib: float

    @property
    def millions(self) -> float:
        return self.entries / MILLION


@dataclass(frozen=True)
class Model:
    """CPU seconds of a run: some for itself, some for each partition, and some for each million entries."""

    run: float
    partition: float
    million: float

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Model:
        """Return the model that explains three or more runs best."""
        known = np.array([(1, run.partitions, run.millions) for run in runs])
        found, *_ = np.linalg.lstsq(known, np.array([run.cost.cpu for run in runs]), rcond=None)
        return cls(*map(float, found))

    def cpu(self, partitions: int, entries: int) -> float:
        """Return the CPU seconds of a run."""
        return self.run + self.partition * partitions + self.million * entries / MILLION


class Application:
    """A Spark application on a cluster, in a process of its own, that compacts checkpoints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._to: IO[str] = process.stdin
        self._from: IO[str] = process.stdout

    def compact(self, checkpoint: Path) -> Run:
        """Run ``compact`` on a checkpoint, which it changes, and return its cost."""
        done: dict[str, Any] = {}

        def run() -> None:
            self._to.write(f"{checkpoint}\n")
            self._to.flush()
            done.update(json.loads(self._from.readline()))

        cost = measure(run)
        return Run(done["partitions"], done["entries"], cost, peak_memory("pyspark.daemon") / (1 << 20))


@contextlib.contextmanager
def application(master: str) -> Iterator[Application]:
    """Start an application on all cores of a cluster, and end it after the block."""
    command = [sys.executable, __file__, master]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Application(process)
    finally:
        process.communicate(timeout=60)


def main(master: str) -> None:
    from cluster_work import application_session

    from ttlsnap import compact
    from ttlsnap.engines.spark import SparkEngine
    from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

    session = application_session(master, EXECUTORS)
    for line in sys.stdin:
        path = Path(line.strip())
        factory = TtlTransformerFactory(StateTtlConfig(parse_duration(TTL)), TIMESTAMP)
        report = compact(str(path), [factory], now=NOW, engine=SparkEngine(session), rewrite="full", stopped=True)
        partitions = len([folder for folder in (path / "state/0").iterdir() if folder.name.isdigit()])
        print(json.dumps({"entries": report.totals.entries, "partitions": partitions}), flush=True)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
