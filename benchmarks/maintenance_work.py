"""The targets of a policy, copied again for each round, and ``ttlsnap maintain`` as a separate process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from work import run_command

SMALL = Path(__file__).parents[1] / "sample_checkpoints/agg-deltas-lz4-4.2"
FIELDS = 'timestamp = "value.max"\nstopped = true\n'


def maintenance(
    folder: Path, source: Path, targets: int, ttl: str, *options: str, now: str = "checkpoint"
) -> Callable[[], Callable[[], None]]:
    """Return a function that prepares ``targets`` copies of a checkpoint, and returns the run of a policy on them."""

    def ready() -> Callable[[], None]:
        shutil.rmtree(folder, ignore_errors=True)
        for number in range(targets):
            shutil.copytree(source, folder / "targets" / f"{number:02d}")
        policy = folder / "policy.toml"
        policy.write_text(f'[[target]]\npath = "targets/*"\nttl = "{ttl}"\nnow = "{now}"\n{FIELDS}')
        return lambda: run_command("maintain", policy, *options)

    return ready
