"""Changed zips of snapshots in RocksDB stores."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

Edit = Callable[[dict[str, bytes]], None]


def edit_zip(path: Path, edit: Edit) -> None:
    """Unpack a zip, change it, and pack it again, without the checksums beside it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    edit(members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    for checksum in path.parent.glob(f"*{path.name}.crc*"):
        checksum.unlink()
