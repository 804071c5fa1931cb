"""The checkpoint of a run, and the run's id."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from secrets import token_hex

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.errors import (
    FencedError,
)
from ttlsnap.printable import shell_word
from ttlsnap.publishing.journal import (
    read_journals,
)
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import open_directory


def refuse_if_interrupted(files: Directory) -> None:
    """Raise FencedError if an earlier run needs ``recover``."""
    if any(j.status == "open" for j in read_journals(files)) or read_logs(files).fence is not None:
        command = f"ttlsnap recover {shell_word(files.root)}"
        raise FencedError(f"{files.root}: a run was interrupted while it published. Run: {command}")


class Fence(Enum):
    """Whether the fence of a run is there, and what this means for the query. ``MAYBE``: a storage did not say."""

    ABSENT = "Spark can start"
    MAYBE = "Spark may refuse to start"
    PRESENT = "Spark does not start"


def describe_interrupted(files: Directory, run: str, fence: Fence) -> str:
    """Return, for the message of an error, that a run is interrupted, and what to do."""
    return (
        f"Run {run} is interrupted, and {fence.value}. After fixing the error, run: ttlsnap recover "
        f"{shell_word(files.root)}"
    )


def open_existing(target: str) -> Directory:
    """Return the folder of a checkpoint. Raise NotACheckpointError for another folder."""
    files = open_directory(target)
    require_checkpoint(files, layout.OFFSETS)
    return files


def started_at(run: str) -> str:
    """Return the time in UTC at which a run started, from its id, or a dash if the id is not one of ttlsnap's."""
    try:
        return f"{datetime.strptime(run[:16], '%Y%m%dT%H%M%SZ'):%Y-%m-%d %H:%M:%SZ}"
    except ValueError:
        return "-"


def new_run_id() -> str:
    """Return a unique id for a run, which sorts by time. It is unique across checkpoints, because archives use it."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{token_hex(6)}"
