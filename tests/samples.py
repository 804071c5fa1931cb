"""Copies of the sample checkpoints, for tests that need no running Spark."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from .judge.inputs import take_home
from .publishing.trees import end_halfway

BEGUN = "uncommitted-batch-4.2"
SAMPLES = Path(__file__).parents[1] / "sample_checkpoints"
NAMES = sorted(path.name for path in SAMPLES.iterdir() if (path / "offsets").is_dir())
COMPACTABLE = {
    "agg-deltas-lz4-4.2": "value.max",
    "agg-snapshot-zstd-4.1": "value.max",
    "dedup-watermark-4.2": "key.at",
    "dedup-within-4.2": "value.expiresAtMicros:us",
    "dedup-columns-3.1": "key.at",
    "dedup-columns-rocksdb-3.2": "key.at",
    "window-append-snappy-4.0": "key.window.end",
    "agg-rowchecksum-deletes-4.2": "key.window.end",
    "agg-format1-3.5": "value.max",
    "uncommitted-batch-4.2": "value.max",
    "lzf-both-4.2": "value.max",
    "rocksdb-4.2": "value.max",
    "rocksdb-3.2": "value.max",
    "rocksdb-changelog-3.5": "value.max",
    "rocksdb-ids-4.2": "key.at",
    "visits-4.2": "value.seen:s",
}
"""The samples that ``compact`` accepts without more options, each with a field that holds a time."""
UNPLANNABLE = ("limit-3.1", "offsets-v2-4.2")
"""The samples with which Spark cannot run a batch without data, so that none is planned."""


ROCKSDB = (
    *("rocksdb-3.2", "rocksdb-4.2", "rocksdb-changelog-3.5", "rocksdb-ids-4.2", "visits-4.2"),
    "dedup-columns-rocksdb-3.2",
)
"""The samples whose new files differ from run to run: RocksDB writes ids and the time of day into its tables."""


def sample(name: str, folder: Path, *, whole: bool = False) -> Path:
    """Copy the sample ``name`` into ``folder``, and make its metadata name the schema files of the copy.

    The batch that was begun in one of them ended halfway, unless it is to be ``whole``: then its sink may have it.
    """
    copy = moved_sample(name, folder)
    take_home(copy)
    if name == BEGUN and not whole:
        end_halfway(copy)
    return copy


def moved_sample(name: str, folder: Path) -> Path:
    """Copy the sample ``name`` into ``folder`` as ``cp -r`` does. Return the path of the copy."""
    # Another test may be copying the sample with --output, and hold a lock in it.
    return Path(shutil.copytree(SAMPLES / name, folder / name, ignore=shutil.ignore_patterns("_ttlsnap")))


def bytes_of(folder: Path) -> dict[str, str]:
    """Return every file below ``folder`` with the hash of its bytes, and every folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def without_own(found: dict[str, str]) -> dict[str, str]:
    """Return the files without those of ttlsnap itself."""
    return {path: content for path, content in found.items() if path.split("/")[0] != "_ttlsnap"}


def without_locks(found: dict[str, str]) -> dict[str, str]:
    """Return the files without locks, because the next run removes the lock of a killed run."""
    return {path: content for path, content in found.items() if "/lock." not in f"/{path}"}
