"""A process that compacts one partition and prints its cost: ``python worker.py CHECKPOINT PARTITION``.

It prints JSON: entries, raw (decompressed) bytes of the partition's files, CPU seconds of the work, and the process's
largest resident size in bytes, with the interpreter and its libraries. ``-1`` means no partition, to measure those.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

from work import codec_of, planned

from ttlsnap.compaction.partition import compact_partition
from ttlsnap.compaction.task import PartitionTask
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.codecs import decompress
from ttlsnap.stores.hdfs.store import HdfsStore


def main() -> None:
    with planned(Path(sys.argv[1])) as tasks:
        partition = int(sys.argv[2])
        started = time.process_time()
        entries = 0
        if partition >= 0:
            task = tasks[partition]
            if len(sys.argv) > 3:
                task = replace(task, rewrite="full" if sys.argv[3] == "full" else "tombstones")
            (result,) = compact_partition(task)
            result.raise_failure()
            entries = result.entries
        figures = {"entries": entries, "cpu": time.process_time() - started, "peak": peak()}
        # This comes last, so that it does not count.
        hdfs = partition >= 0 and isinstance(tasks[partition].state_store, HdfsStore)
        figures["raw"] = _raw_bytes(tasks[partition]) if hdfs else 0
        print(json.dumps(figures))


def peak() -> int:
    """Return the largest resident size of this process in bytes."""
    # Not getrusage's ru_maxrss: it begins with the size of the process that started this one.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _raw_bytes(task: PartitionTask) -> int:
    total = 0
    for file in task.stores[0].lineage.files:
        with open_directory(task.root).open(file.path) as stream:
            total += sum(map(len, decompress(stream, codec_of(task), file.path)))
    return total


if __name__ == "__main__":
    main()
