"""Interventions by hand after a compaction: a batch that is set back, and old files that are put back."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

from ..compaction.stories import BATCHES, T
from ..judge.model import Model
from ..judge.queries import Event
from ..judge.spark import Checkpoint, Judge

CORRECTED = [Event("k1", T, 70), Event("k9", T + 60, 1), Event("corrected", T + 5, 5)]


def set_back(judge: Judge, checkpoint: Checkpoint, *, planned: bool = True) -> None:
    """Remove the last batch and the planned batch from the logs, and replace the input file of the last batch."""
    for name in ("commits/2", "offsets/2", *(("offsets/3",) if planned else ())):
        (checkpoint.path / name).unlink()
        (checkpoint.path / name).with_name(f".{Path(name).name}.crc").unlink(missing_ok=True)
    (source,) = (path for name in checkpoint.sources for path in judge.events_of(name).glob("00002.json"))
    then = source.stat().st_mtime
    source.write_text("".join(json.dumps(asdict(event)) + "\n" for event in CORRECTED))
    os.utime(source, (then, then))
    checkpoint.model = Model(checkpoint.query)
    checkpoint.model.run(BATCHES[:2])


def put_zips_back(path: Path, run_id: str | None) -> None:
    """Put the old zips back by hand, as if Spark's maintenance had removed the tables that no zip named."""
    backup = path / f"_ttlsnap/runs/{run_id}/backup"
    for table in backup.glob("state/0/*/SSTs/*"):
        (path / table.relative_to(backup)).unlink()
    for replaced in backup.glob("state/0/*/*3.zip*"):
        shutil.copy2(replaced, path / replaced.relative_to(backup))
