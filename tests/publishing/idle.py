"""Helpers for tests with a query that is idle while ttlsnap publishes, and that nobody has stopped."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from ..judge.layouts import last_batch
from ..judge.queries import Event
from ..judge.spark import Checkpoint, Judge
from .trees import Tree, tree

STOPPED = re.compile("CONCURRENT_STREAM_LOG_UPDATE|Concurrent update to the log. Multiple streaming jobs detected")
"""Spark's error about a batch that another query has planned. Spark 3.4 gave the error a name."""
HDFS: dict[str, Any] = {"provider": "hdfs"}
ROCKSDB: dict[str, Any] = {"provider": "rocksdb"}
CHANGELOG: dict[str, Any] = {"provider": "rocksdb", "changelog": True}
IDS: dict[str, Any] = {"provider": "rocksdb", "changelog": True, "checkpoint_format": 2}


def stores(version: str) -> list[dict[str, Any]]:
    """Return the stores that a version supports."""
    since = {"3.2": ROCKSDB, "3.5": CHANGELOG, "4.1": IDS}
    return [HDFS, *(store for first, store in since.items() if first <= version)]


def logs_and_state(checkpoint: Path) -> Tree:
    """Return the tree of a checkpoint without the logs of its sources."""
    return {path: content for path, content in tree(checkpoint).items() if not path.startswith("sources")}


def ends_untouched(judge: Judge, checkpoint: Checkpoint, events: list[Event]) -> None:
    """Give events to the running query, and assert that it stops and changes nothing."""
    before = logs_and_state(checkpoint.path)
    judge.feed(checkpoint, events)
    words = judge.last_words(checkpoint)
    assert STOPPED.search(words), words
    judge.stop(checkpoint)
    assert logs_and_state(checkpoint.path) == before


def await_batch(checkpoint: Path, batch: int) -> None:
    """Wait until an endless query has committed a batch."""
    for _ in range(600):
        if last_batch(checkpoint) >= batch:
            return
        time.sleep(0.1)
    raise TimeoutError(f"no batch {batch} in {checkpoint}")
