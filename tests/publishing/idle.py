"""A query that is idle while ttlsnap publishes, and that nobody has stopped: what its tests share."""

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
"""What Spark says of a batch that another query has begun, in words that got a name with 3.4."""
HDFS: dict[str, Any] = {"provider": "hdfs"}
ROCKSDB: dict[str, Any] = {"provider": "rocksdb"}
CHANGELOG: dict[str, Any] = {"provider": "rocksdb", "changelog": True}
IDS: dict[str, Any] = {"provider": "rocksdb", "changelog": True, "checkpoint_format": 2}


def stores(version: str) -> list[dict[str, Any]]:
    """The stores that a version has."""
    since = {"3.2": ROCKSDB, "3.5": CHANGELOG, "4.1": IDS}
    return [HDFS, *(store for first, store in since.items() if first <= version)]


def logs_and_state(checkpoint: Path) -> Tree:
    """All but what the source has taken note of."""
    return {path: content for path, content in tree(checkpoint).items() if not path.startswith("sources")}


def ends_untouched(judge: Judge, checkpoint: Checkpoint, events: list[Event]) -> None:
    """The query that is up gets these events, stops, and has changed nothing."""
    before = logs_and_state(checkpoint.path)
    judge.feed(checkpoint, events)
    words = judge.last_words(checkpoint)
    assert STOPPED.search(words), words
    judge.stop(checkpoint)
    assert logs_and_state(checkpoint.path) == before


def await_batch(checkpoint: Path, batch: int) -> None:
    """Until a query that has no end has committed a batch."""
    for _ in range(600):
        if last_batch(checkpoint) >= batch:
            return
        time.sleep(0.1)
    raise TimeoutError(f"no batch {batch} in {checkpoint}")
