"""Links, and files on other mounts, cannot be renamed during publishing, so runs refuse them before any work."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ttlsnap import clock_at, open_checkpoint, plan_compaction
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers.keep import KeepTransformerFactory

from ..cli.running import Ttlsnap
from ..matrix import FULL
from ..samples import COMPACTABLE, bytes_of, sample
from .owners import require_root

HDFS, ROCKSDB = "agg-snapshot-zstd-4.1", "rocksdb-4.2"


def compacting(target: Path, *options: str | Path) -> list[str]:
    """Return the command that drops some entries of a sample, and keeps others."""
    words = ["--ttl", "2d", "--timestamp", COMPACTABLE[target.name], "--engine", "local", "--stopped", "--yes"]
    return ["compact", str(target), *words, *map(str, options)]


def snapshot_of(target: Path) -> str:
    """Return the newest snapshot of a partition."""
    found = [path for path in target.glob("state/0/1/*") if path.suffix in (".snapshot", ".zip")]
    return str(max(found, key=lambda path: int(path.stem)).relative_to(target))


def sidecar_of(target: Path) -> str:
    snapshot = target / snapshot_of(target)
    sidecar = snapshot.with_name(f".{snapshot.name}.crc")
    return str(sidecar.relative_to(target))


def leftover_of(target: Path) -> str:
    """Write a snapshot of an uncommitted batch. Return its path."""
    snapshot = target / snapshot_of(target)
    newer = snapshot.with_stem(str(int(snapshot.stem) + 1))
    newer.write_bytes(snapshot.read_bytes())
    return str(newer.relative_to(target))


def table_of(target: Path) -> str:
    """Return a table of the newest snapshot."""
    checkpoint = open_checkpoint(open_directory(str(target)))
    plan = plan_compaction(checkpoint, [KeepTransformerFactory()], clock_at("checkpoint", checkpoint.batch))
    return plan.stores[0].partitions[1].lineage.shared[0].path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (HDFS, snapshot_of), (HDFS, sidecar_of), (HDFS, leftover_of),
        (ROCKSDB, snapshot_of), (ROCKSDB, leftover_of), (ROCKSDB, table_of),
    ],
)  # fmt: skip
def test_a_live_file_that_is_a_link_within_the_checkpoint_is_refused(
    ttlsnap: Ttlsnap, tmp_path: Path, name: str, file: Callable[[Path], str]
) -> None:
    target = sample(name, tmp_path)
    path = target / file(target)
    (target / "elsewhere").mkdir()
    path.rename(target / "elsewhere" / path.name)
    path.symlink_to(target / "elsewhere" / path.name)
    before = bytes_of(target)
    for options in ([], ["--dry-run"]):
        refused = ttlsnap(*compacting(target, *options))
        assert refused.code == 4, refused
        told = " ".join(refused.err.split())
        assert f"{path} is a symbolic link" in told and "Nothing was changed" in told
        assert bytes_of(target) == before
        assert path.is_symlink()
    copied = ttlsnap(*compacting(target, "--output", tmp_path / "copy"))
    assert copied.code == 0, copied


def test_a_link_to_a_folder_in_the_place_of_a_snapshot_is_refused(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    version = max(int(path.stem) for path in target.glob("state/0/1/*.delta"))
    path = target / f"state/0/1/{version}.snapshot"
    path.symlink_to("..")
    before = bytes_of(target)
    refused = ttlsnap(*compacting(target))
    assert refused.code == 4 and f"{path} is a symbolic link" in " ".join(refused.err.split()), refused
    assert bytes_of(target) == before


def test_a_link_in_the_place_of_a_published_file_does_not_block_recover(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    # Only ``rollback`` refuses the link, before it changes anything.
    target = sample(HDFS, tmp_path)
    assert ttlsnap(*compacting(target)).code == 0
    path = target / snapshot_of(target)
    (target / "elsewhere").mkdir()
    path.rename(target / "elsewhere" / path.name)
    path.symlink_to(target / "elsewhere" / path.name)
    before = bytes_of(target)
    refused = ttlsnap("rollback", target, "--stopped")
    assert refused.code == 4 and f"{path} is a symbolic link" in refused.err, refused
    assert bytes_of(target) == before
    assert ttlsnap("recover", target).code == 0
    path.unlink()
    (target / "elsewhere" / path.name).rename(path)
    assert ttlsnap("rollback", target, "--stopped").code == 0


def own_process(words: list[str]) -> str:
    """Return the line of a shell that runs a command."""
    return shlex.join([sys.executable, "-m", "ttlsnap", *words])


def in_own_mounts(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with its own mounts, which no other process sees."""
    require_root()
    done = subprocess.run(["unshare", "--mount", "sh", "-ec", script], capture_output=True, text=True)
    if "unshare failed" in done.stderr:
        pytest.skip(f"this machine allows no mounts, which this test needs: {done.stderr}")
    return done


PLACES = [(HDFS, "state/0/1"), (HDFS, "state"), (HDFS, "offsets"), (HDFS, "_ttlsnap"), (ROCKSDB, "state/0/1/SSTs")]
MOUNTS = [(name, folder, kind) for kind in ("bind", "tmpfs") for name, folder in PLACES]
SLICE = [(HDFS, "state/0/1", "tmpfs"), (ROCKSDB, "state/0/1/SSTs", "bind")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "folder", "kind"), MOUNTS if FULL else SLICE)
def test_a_folder_on_another_mount_is_refused(tmp_path: Path, name: str, folder: str, kind: str) -> None:
    target, elsewhere = sample(name, tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (target / folder).mkdir(exist_ok=True)
    quoted, place = shlex.quote(str(target / folder)), shlex.quote(str(elsewhere))
    make = "" if kind == "bind" else f"mount -t tmpfs ttlsnap {place}\n"
    commands = [f"{own_process(compacting(target, *options))} && exit 1 || echo $?" for options in ([], ["--dry-run"])]
    before = bytes_of(target)
    done = in_own_mounts(
        f"{make}cp -a {quoted}/. {place}\nmount --bind {place} {quoted}\n"
        f"{commands[0]}\n{commands[1]}\n"
        f"{own_process(compacting(target, '--output', tmp_path / 'copy'))}\n"
    )
    assert done.returncode == 0, done
    assert done.stdout.split()[:2] == ["4", "4"], done
    told = " ".join(done.stderr.split())
    assert told.count(f"is on another mount than {target / '_ttlsnap'}") == 2, done
    assert told.count(f"{target / folder}") or folder == "_ttlsnap", done
    assert bytes_of(target) == before


def test_a_mount_is_accepted_where_no_file_is_moved(tmp_path: Path) -> None:
    # The logs of the query's sources are on their own disk.
    target, elsewhere = sample(HDFS, tmp_path), tmp_path / "elsewhere"
    shutil.copytree(target / "sources", elsewhere)
    quoted, place = shlex.quote(str(target / "sources")), shlex.quote(str(elsewhere))
    done = in_own_mounts(f"mount --bind {place} {quoted}\n{own_process(compacting(target))}\n")
    assert done.returncode == 0, done
