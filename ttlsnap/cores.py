"""The processors of this machine."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Return how many processors this process may use. Only Linux knows a process that may not use all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
