"""A helper that gives a sample checkpoint the logs of a query that uses one of its sources twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path


def read_one_source_twice(checkpoint: Path, positions: Callable[[int], Sequence[int]], logs: int = 2) -> None:
    """Give each batch the offsets at ``positions``, and copy the first log of a source to as many as ``logs``.

    Each log ends at 6, or where the batches of the checkpoint end.
    """
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        lines = path.read_text().splitlines()[:2]
        offsets = [f'{{"logOffset":{position}}}' for position in positions(int(path.name))]
        path.write_text("\n".join([*lines, *offsets]))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    log = checkpoint / "sources/0"
    newest = max(int(path.name) for path in log.glob("[0-9]*"))
    for number in range(newest + 1, 7 if newest > 4 else newest + 1):
        (log / str(number)).write_text((log / str(newest)).read_text())
    for name in range(1, logs):
        shutil.copytree(log, checkpoint / f"sources/{name}")
