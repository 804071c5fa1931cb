"""The compaction of the command, as a library call in this process."""

from __future__ import annotations

from pathlib import Path

from ttlsnap import CompactionReport, Listener, LocalEngine
from ttlsnap import compact as run
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.queries import stamp
from .stories import FIELD, NOW, H


def compact_with(
    checkpoint: Path, *, hours: int = 2, listener: Listener | None = None, output: str | None = None
) -> CompactionReport:
    """Drop the entries that are not younger than ``NOW`` minus these hours."""
    return run(
        str(checkpoint),
        [TtlTransformerFactory(StateTtlConfig(hours * H * 1_000_000), FIELD)],
        now=f"{stamp(NOW)}Z",
        engine=LocalEngine(1),
        stopped=True,
        max_drop=1.0,
        listener=listener,
        output=output,
    )
