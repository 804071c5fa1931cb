"""State files in the wrong partitions."""

from __future__ import annotations

from pathlib import Path

PARTITIONS = 3


def exchange(checkpoint: Path) -> None:
    """Give each partition the state files of the next one."""
    for operator in checkpoint.glob("state/[0-9]*"):
        folders = [operator / str(number) for number in range(PARTITIONS)]
        schemas = [path for path in folders[0].rglob("_metadata") if path.is_dir()]
        names = [path.relative_to(folders[0]) for path in schemas]
        for path, name in zip(schemas, names, strict=True):
            path.rename(operator / f"kept-{str(name).replace('/', '-')}")
        folders[0].rename(operator / "first")
        for number in range(1, PARTITIONS):
            folders[number].rename(folders[number - 1])
        (operator / "first").rename(folders[-1])
        for name in names:
            (operator / f"kept-{str(name).replace('/', '-')}").rename(folders[0] / name)
