"""Shares of CPU time by stage of the work, from samples of the main thread's stack.

The processor's timer asks for a sample every millisecond, but Python answers only between calls of C code. So a sample
counts for all CPU time since the one before.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable
from types import FrameType
from typing import Any

STAGES: dict[str, tuple[str, ...]] = {
    "codec and `.crc`": ("stores/codecs.py", "checkpoint/file_checksums.py", "stores/rocksdb/archive.py"),
    "row checksums": ("stores/row_checksums.py",),
    "gathering": ("unsaferow/gather.py",),
    "parsing": (
        *("stores/hdfs/records.py", "stores/hdfs/entries.py", "stores/rocksdb/batch.py"),
        *("stores/rocksdb/partition.py", "stores/rocksdb/database.py", "unsaferow/rows.py"),
    ),
    "deciding": (
        *("stores/hdfs/key_index.py", "transformers/", "transform/", "entries/", "unsaferow/"),
        *("compaction/results.py", "operators/"),
    ),
    "writing": ("stores/hdfs/snapshot_writer.py", "stores/rocksdb/writer.py", "storage/"),
}
VERIFYING = "verifying"
_VERIFIERS = ("_verify_all", "_verify_changes")  # of both stores' writers
REST = "the rest"
_STEP_S = 0.001


def profile(work: Callable[[], Any], runs: int) -> dict[str, float]:
    """Run ``work`` several times. Return the share of each stage, verifying and the rest, between 0 and 1."""
    spent: defaultdict[str, float] = defaultdict(float)
    before = time.process_time()

    def look(_: int, frame: FrameType | None) -> None:
        nonlocal before
        now = time.process_time()
        spent[_stage_of(frame)] += now - before
        before = now

    old = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, _STEP_S, _STEP_S)
    try:
        for _ in range(runs):
            work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)
    return {stage: spent[stage] / sum(spent.values()) for stage in (*STAGES, VERIFYING, REST)}


def _stage_of(frame: FrameType | None) -> str:
    """Return the stage of the innermost frame that has one, unless the work is verified there."""
    found = REST
    while frame is not None:
        if frame.f_code.co_name in _VERIFIERS:
            return VERIFYING
        if found is REST:
            _, _, path = frame.f_code.co_filename.rpartition("/ttlsnap/")
            found = next((stage for stage, paths in STAGES.items() if path.startswith(paths)), REST)
        frame = frame.f_back
    return found
