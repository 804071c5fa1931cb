"""Every kind of file in a checkpoint, truncated, flipped and overwritten, through the command line.

With checksum files, ttlsnap finds all damage. Without them, only a file's own format can reveal it. The format does not
reveal a number or a text that became another valid one, which Spark believes as well. Then a command may succeed, but
its counts are those of the state files.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from ..samples import bytes_of, sample
from . import model, wreck
from .conftest import Refuses, Ttlsnap

LZ4, ZSTD, LZF = "agg-deltas-lz4-4.2", "agg-snapshot-zstd-4.1", "lzf-both-4.2"
KINDS = {
    "delta": (LZ4, "state/0/1/3.delta"),
    "delta after a snapshot": (LZF, "state/0/0/4.delta"),
    "snapshot": (ZSTD, "state/0/0/5.snapshot"),
    "Hadoop's checksums": (LZ4, "state/0/1/.3.delta.crc"),
    "Spark's checksum": (ZSTD, "state/0/0/5.snapshot.crc"),
    "checksums of Spark's checksum": (ZSTD, "state/0/0/.5.snapshot.crc.crc"),
    "offsets": (LZ4, "offsets/6"),
    "commits": (LZ4, "commits/6"),
    "checksums of offsets": (LZ4, "offsets/.6.crc"),
    "operator metadata": (LZ4, "state/0/_metadata/metadata"),
    "state schema": (LZ4, "state/0/0/_metadata/schema"),
    "query metadata": (LZ4, "metadata"),
}
BARE = [kind for kind in KINDS if "checksum" not in kind]


@pytest.mark.parametrize("kind", KINDS)
def test_with_checksum_files_all_damage_is_found(refuses: Refuses, tmp_path: Path, kind: str) -> None:
    name, file = KINDS[kind]
    target = sample(name, tmp_path)
    path = target / file
    whole = path.read_bytes()
    for number, (label, data) in enumerate(wreck.damages(whole, random.Random(kind), 3)):
        if data == whole or (path.name.startswith(".") and data[:4] + data[8:] == whole[:4] + whole[8:]):
            continue  # with a single checksum, the number of bytes per checksum has no effect
        path.write_bytes(data)
        command = ("compact", target, *wreck.compacting(name))
        if number % 2:
            command = ("inspect", target, *wreck.scanning(name))
        told = refuses(5, target, *command, label=f"{kind}, {label}")
        assert str(path) in told or str(path).replace(".crc", "") in told or path.name in told, (label, told)
        assert "Restore the files named above" in told or "never that long" in told, (label, told)


@pytest.mark.parametrize("kind", BARE)
def test_without_checksum_files_damage_is_found_or_loses_no_entry(ttlsnap: Ttlsnap, tmp_path: Path, kind: str) -> None:
    name, file = KINDS[kind]
    target = wreck.forget_checksums(sample(name, tmp_path))
    path = target / file
    whole = path.read_bytes()
    found = 0
    for number, (label, data) in enumerate(wreck.damages(whole, random.Random(f"bare {kind}"), 4)):
        path.write_bytes(data)
        before = bytes_of(target)
        if number % 2:
            outcome = ttlsnap("inspect", target, *wreck.scanning(name), "--format", "json", label=label)
        else:
            outcome = ttlsnap("compact", target, *wreck.compacting(name), "--format", "json", label=label)
        found += outcome.code != 0
        if outcome.code:
            assert bytes_of(target) == before, label
            assert str(target) in outcome.err, (label, outcome.err)
            continue
        report = json.loads(outcome.out)
        shown = report["operators"][0]["stores"][0]["states"][0] if number % 2 else report["totals"]
        assert shown["entries"] >= _proven(target, name), label
        if not number % 2:
            shutil.rmtree(target)
            wreck.forget_checksums(sample(name, tmp_path))
    assert found >= 3


def _proven(target: Path, name: str) -> int:
    """Return the number of entries in the state files. For a compacted checkpoint, count those of the backup."""
    codec = {LZ4: "lz4", ZSTD: "zstd", LZF: "lzf"}[name]
    version = 7 if name == LZ4 else 5
    entries = 0
    for partition in target.glob("state/0/[0-9]"):
        ours = partition / f"{version}.snapshot"
        if target.joinpath("_ttlsnap").exists():
            ours.unlink(missing_ok=True)
            for old in target.glob(f"_ttlsnap/runs/*/backup/state/0/{partition.name}/{version}.*"):
                shutil.copy(old, partition)
        entries += len(model.live_entries(partition, version, codec))
    return entries
