"""The state files of a checkpoint, found by their names alone. This module does not need Spark and opens no file.

The layout of a checkpoint names the files that contain the state of its last committed batch. A snapshot is a
``.snapshot`` file, or a ``.zip`` file with RocksDB. A delta is a ``.delta`` or a ``.changelog`` file.

``snapshot``  each partition has a snapshot of that version
``deltas``    each partition has all deltas from version 1 on, and no snapshot
``both``      each partition has a snapshot of an earlier version, and every delta after it
``mixed``     the partitions differ

A missing file raises an error, because Spark could not load the state.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

_STATE_FILE = re.compile(r"(\d+)(_[^.]+)?\.(delta|snapshot|zip|changelog)")
_SNAPSHOT_FILE = re.compile(r"\.?(\d+)(_[^.]+)?\.(snapshot|zip)(\.crc)*")
_KIND = {"zip": "snapshot", "changelog": "delta"}


def last_batch(checkpoint: Path) -> int:
    """Return the last committed batch, or -1 if there is none."""
    names = [path.name for path in (checkpoint / "commits").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def has_begun(checkpoint: Path) -> bool:
    """Return whether a batch was planned after the last committed batch."""
    names = [path.name for path in (checkpoint / "offsets").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1) > last_batch(checkpoint)


def has_uncommitted_state(checkpoint: Path) -> bool:
    """Return whether every store has the state of a batch after the last committed one."""
    version = last_batch(checkpoint) + 2
    folders = store_folders(checkpoint)
    stored = [{_STATE_FILE.sub(r"\1", path.name) for path in folder.iterdir()} for folder in folders]
    return bool(folders) and all(str(version) in versions for versions in stored)


def await_rest(checkpoint: Path) -> None:
    """Wait until no file comes or grows: tasks and maintenance can go on for a moment after the query stopped."""
    before: set[tuple[str, int]] = set()
    while before != (before := {(str(path), path.stat().st_size) for path in checkpoint.rglob("*") if path.exists()}):
        time.sleep(0.5)


def store_folders(checkpoint: Path) -> list[Path]:
    """Return every folder that contains files of a store, sorted. The provider does not matter."""
    files = (checkpoint / "state").rglob("*")
    return sorted({path.parent for path in files if _STATE_FILE.fullmatch(path.name)})


def snapshots_in(folder: Path) -> dict[int, list[Path]]:
    """Return the files of each snapshot in a store's folder by version, including checksum files."""
    found: dict[int, list[Path]] = {}
    for path in folder.iterdir():
        match = _SNAPSHOT_FILE.fullmatch(path.name)
        if match:
            found.setdefault(int(match.group(1)), []).append(path)
    return found


def has_snapshots(checkpoint: Path, version: int) -> bool:
    """Return whether each store has a snapshot of ``version``.

    If the deltas have checksum files, as in Spark 4.1, the snapshot must have one, too.
    """
    folders = store_folders(checkpoint)
    snapshots = [snapshots_in(folder).get(version, []) for folder in folders]
    sidecars = any((folder / f"{version}.delta.crc").exists() for folder in folders)
    return bool(folders) and all(
        any(path.suffix != ".crc" for path in files)
        and (not sidecars or any(path.name == f"{version}.snapshot.crc" for path in files))
        for files in snapshots
    )


def layout_of(checkpoint: Path) -> str:
    """Return the layout of the last committed batch's state. Raise ``ValueError`` if a file is missing."""
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
