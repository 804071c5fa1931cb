"""Which state files lie in a checkpoint, told from file names alone: no Spark, no file is opened.

The layout of a checkpoint is how the state of its last committed batch is to be put together. A snapshot is a
``.snapshot`` or, with RocksDB, a ``.zip``; a delta a ``.delta`` or a ``.changelog``:

``snapshot``  a snapshot of that very version, in each partition
``deltas``    deltas from version 1 on, and no snapshot
``both``      a snapshot of some earlier version and every delta after it

A fourth answer, ``mixed``, is for partitions that differ. Missing files raise: a layout nobody could load is
no layout.
"""

from __future__ import annotations

import re
from pathlib import Path

_STATE_FILE = re.compile(r"(\d+)(_[^.]+)?\.(delta|snapshot|zip|changelog)")
_SNAPSHOT_FILE = re.compile(r"\.?(\d+)(_[^.]+)?\.(snapshot|zip)(\.crc)*")
_KIND = {"zip": "snapshot", "changelog": "delta"}


def last_batch(checkpoint: Path) -> int:
    """The last committed batch; -1 where there is none."""
    names = [path.name for path in (checkpoint / "commits").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def has_begun(checkpoint: Path) -> bool:
    """Whether a batch after the last committed one is in the log."""
    names = [path.name for path in (checkpoint / "offsets").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1) > last_batch(checkpoint)


def store_folders(checkpoint: Path) -> list[Path]:
    """Every folder that holds a store's files (of either provider), in order."""
    files = (checkpoint / "state").rglob("*")
    return sorted({path.parent for path in files if _STATE_FILE.fullmatch(path.name)})


def snapshots_in(folder: Path) -> dict[int, list[Path]]:
    """The files of each snapshot in a store's folder, checksums among them."""
    found: dict[int, list[Path]] = {}
    for path in folder.iterdir():
        match = _SNAPSHOT_FILE.fullmatch(path.name)
        if match:
            found.setdefault(int(match.group(1)), []).append(path)
    return found


def has_snapshots(checkpoint: Path, version: int) -> bool:
    """Whether each store has a snapshot of ``version``, and its sidecar where deltas have one (4.1)."""
    folders = store_folders(checkpoint)
    snapshots = [snapshots_in(folder).get(version, []) for folder in folders]
    sidecars = any((folder / f"{version}.delta.crc").exists() for folder in folders)
    return bool(folders) and all(
        any(path.suffix != ".crc" for path in files)
        and (not sidecars or any(path.name == f"{version}.snapshot.crc" for path in files))
        for files in snapshots
    )


def layout_of(checkpoint: Path) -> str:
    """How the state of the last committed batch is laid out."""
    version = last_batch(checkpoint) + 1
    folders = store_folders(checkpoint)
    if version == 0 or not folders:
        raise ValueError(f"no committed state in {checkpoint}")
    layouts = {_folder_layout(folder, version) for folder in folders}
    return layouts.pop() if len(layouts) == 1 else "mixed"


def _folder_layout(folder: Path, version: int) -> str:
    versions: dict[str, list[int]] = {"delta": [], "snapshot": []}
    for path in folder.iterdir():
        match = _STATE_FILE.fullmatch(path.name)
        if match:
            kind = match.group(3)
            versions[_KIND.get(kind, kind)].append(int(match.group(1)))
    base = max((found for found in versions["snapshot"] if found <= version), default=0)
    missing = set(range(base + 1, version + 1)) - set(versions["delta"])
    if missing:
        raise ValueError(f"{folder} cannot give version {version}: no delta {sorted(missing)}")
    if base == version:
        return "snapshot"
    return "both" if base else "deltas"
