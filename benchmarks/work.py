"""The measured work of ttlsnap's engines, and its baselines."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash
from queries import NOW, TIMESTAMP, TTL

from ttlsnap import clock_at, open_checkpoint, plan_compaction
from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.compaction.engine import Engine, rename_staged, run_tasks
from ttlsnap.compaction.partition import compact_partition
from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.codecs import Compressor, decompress
from ttlsnap.stores.hdfs.store import HdfsStore
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def planned(
    checkpoint: Path, ttl: str | None = TTL, timestamp: str | None = TIMESTAMP, now: str = NOW
) -> Iterator[list[PartitionTask]]:
    """Yield the tasks of a compaction of ``checkpoint``, as ``compact`` makes them, with a separate staging folder."""
    files = open_directory(str(checkpoint))
    found = open_checkpoint(files)
    config = StateTtlConfig(parse_duration(ttl)) if ttl else None
    plan = plan_compaction(found, [TtlTransformerFactory(config, timestamp)], clock_at(now, found.batch))
    staging = tempfile.mkdtemp(dir=checkpoint.parent, prefix="staging-")
    try:
        yield plan.tasks(staging, "")
    finally:
        shutil.rmtree(staging)


def run_engine(engine: Engine, tasks: Sequence[PartitionTask]) -> list[PartitionResult]:
    """Run an engine from the state's files to staged files, reopened and recounted."""
    return run_tasks(engine, tasks, lambda: None, lambda entries, dropped: None)


def run_serially(tasks: Sequence[PartitionTask]) -> list[PartitionResult]:
    """Run the same work in this thread."""
    return [rename_staged(task, result) for task in tasks for result in compact_partition(task)]


def count(tasks: Sequence[PartitionTask], results: Sequence[PartitionResult]) -> tuple[int, int, int]:
    """Return the numbers of entries: in the report, dropped, and stored, including derived ones."""
    primary = {(store.name, state.state) for task in tasks for store in task.stores for state in store.states}
    reported = [state for result in results for state in result.states if (result.store, state.state) in primary]
    stored = sum(result.entries for result in results)
    return sum(state.entries for state in reported), sum(state.dropped for state in reported), stored


def codec_of(task: PartitionTask) -> str:
    """Return the codec of the task's files."""
    assert isinstance(task.state_store, HdfsStore)
    return task.state_store.codec


class CodecLimit:
    """The lowest possible cost with these codecs, in one thread.

    Each input byte is verified and decompressed once, and each output byte is compressed and digested once. No entry is
    examined, and no file is reopened.
    """

    def __init__(self, tasks: Sequence[PartitionTask]) -> None:
        self._tasks = tasks
        self.raw_in = self.raw_out = 0
        self._outputs = []
        for task in tasks:
            staged = Path(task.staging_root) / task.stores[0].lineage.new_snapshot
            with staged.open("rb") as file:
                self._outputs.append(b"".join(decompress(file, codec_of(task), str(staged))))
        self.raw_out = sum(map(len, self._outputs))

    def run(self) -> None:
        self.raw_in = 0
        for task, output in zip(self._tasks, self._outputs, strict=True):
            files = open_directory(task.root)
            for file in task.stores[0].lineage.files:
                with open_checked(files, file.path) as stream:
                    self.raw_in += sum(map(len, decompress(stream, codec_of(task), file.path)))
            with Path(task.staging_root, "limit").open("wb") as sink:
                compressor = Compressor(sink, codec_of(task))
                compressor.write(output)
                compressor.close()
            xxhash.xxh3_128(output).digest()


def load_with_spark(session: SparkSession, checkpoint: Path) -> int:
    """Return how many entries Spark finds when it loads the state from the checkpoint."""
    # Reading ``streams`` creates the coordinator of state stores, without which the reader fails.
    session.streams.active  # noqa: B018
    count: int = session.read.format("statestore").load(str(checkpoint)).count()
    return count


def run_command(*arguments: Any) -> None:
    """Run a command in a separate process. Problems that doctor finds are not a failure."""
    script = "from ttlsnap.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    # An installed command has compiled bytecode, so the benchmark must not prevent that.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=Path(__file__).parent, env=env
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{arguments[0]} ended with {done.returncode}: {done.stderr.decode()}")
