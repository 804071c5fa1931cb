"""Missing files are named, and stray files are left alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ..samples import bytes_of, sample
from . import wreck
from .conftest import Refuses, Ttlsnap

LZ4, ZSTD, LZF, OLD = "agg-deltas-lz4-4.2", "agg-snapshot-zstd-4.1", "lzf-both-4.2", "agg-format1-3.5"


def _remove(*names: str) -> Callable[[Path], None]:
    def do(target: Path) -> None:
        for name in names:
            path = target / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return do


def _folder_for_file(name: str) -> Callable[[Path], None]:
    def do(target: Path) -> None:
        (target / name).unlink()
        (target / name).mkdir()

    return do


def _write(name: str, data: bytes) -> Callable[[Path], None]:
    def do(target: Path) -> None:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(data)

    return do


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _only_a_file(target: Path) -> None:
    shutil.rmtree(target)
    target.write_bytes(b"a file")


def _stale(target: Path) -> None:
    shutil.copy(target / "state/0/0/.4.delta.crc", target / "state/0/0/.5.delta.crc")


def _wrong_but_fitting(target: Path) -> None:
    path = target / "state/0/0/5.delta"
    whole = path.read_bytes()
    path.write_bytes(wreck.flipped(whole, 77))
    wreck.seal(path)
    path.write_bytes(whole)


def _other_step(target: Path) -> None:
    wreck.seal(target / "state/0/0/5.delta", step=16)
    path = target / "state/0/0/5.delta"
    path.write_bytes(wreck.flipped(path.read_bytes(), 8 * 100))


MISSING: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a delta in the middle": (LZ4, _remove("state/0/1/3.delta"), "state/0/1/3.delta is missing"),
    "several deltas": (LZ4, _remove("state/0/1/3.delta", "state/0/1/5.delta"), "(2 missing)"),
    "the last delta": (LZ4, _remove("state/0/0/7.delta"), "state/0/0/7.delta is missing"),
    "a snapshot and what it stood for": (LZF, _remove("state/0/0/2.snapshot", "state/0/0/2.delta"), "2.delta is"),
    "all files of a partition": (LZ4, _remove("state/0/1", "sources"), "partition 1 is the first wrong one"),
    "partition 0": (LZ4, _remove("state/0/0"), "partition 0 is the first wrong one"),
    "partition 1 of an old one": (OLD, _remove("state/0/1"), "partition 1 is the first wrong one"),
    "a partition too many": (LZ4, _write("state/0/2/1.delta", b""), "partition 2 is the first wrong one"),
    "every partition": (LZ4, _remove("state/0/0", "state/0/1"), "state/0 has no partition folder"),
    "the offsets of the batch": (LZ4, _remove("offsets/6"), "offsets/6 is missing"),
    "an empty delta": (LZ4, _write("state/0/0/7.delta", b""), ".7.delta.crc does not match the size"),
    "a folder for a delta": (LZ4, _folder_for_file("state/0/0/3.delta"), "state/0/0/3.delta is missing"),
    "a folder for offsets": (LZ4, _folder_for_file("offsets/6"), "offsets/6 is missing"),
    "another file's checksums": (LZ4, _stale, "do not match the checksum in state/0/0/.5.delta.crc"),
    "checksums of other bytes": (LZ4, _wrong_but_fitting, "bytes 0 to 512 do not match"),
    "checksums of 16 bytes each": (LZ4, _other_step, "5.delta: bytes 96 to 112 do not match"),
    "checksums that are none": (LZ4, _write("state/0/0/.5.delta.crc", b"crc"), "is not a Hadoop checksum file"),
    "Spark's checksum of other bytes": (
        ZSTD,
        lambda target: wreck.edit(target / "state/0/0/5.snapshot.crc", '"mainFileSize":261', '"mainFileSize":262'),
        "5.snapshot does not match the checksum in state/0/0/5.snapshot.crc",
    ),
    "Spark's checksum without a number": (
        ZSTD,
        lambda target: wreck.edit(target / "state/0/0/5.snapshot.crc", '"value":', '"value":1e999,"value_":'),
        "5.snapshot.crc is not a checksum file that Spark wrote",
    ),
    "metadata of later batches only": (
        LZ4,
        lambda target: (target / "state/0/_metadata/metadata").rename(_made(target / "state/0/_metadata/v2") / "7"),
        "_metadata/v2: it has no operator metadata for batch 6 or an earlier one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSING)
def test_missing_and_stale_files_are_named(refuses: Refuses, tmp_path: Path, case: str) -> None:
    name, wreak, says = MISSING[case]
    target = sample(name, tmp_path)
    wreak(target)
    told = refuses(5, target, "compact", target, *wreck.compacting(name))
    assert says in told
    assert str(target) in told
    assert says in refuses(5, target, "inspect", target, *wreck.scanning(name))


def test_an_empty_state_file_without_checksums_is_an_error(refuses: Refuses, tmp_path: Path) -> None:
    for name, file in (
        (LZ4, "7.delta"),
        (ZSTD, "5.snapshot"),
        (LZF, "5.delta"),
        ("window-append-snappy-4.0", "6.delta"),
    ):
        target = wreck.forget_checksums(sample(name, tmp_path))
        (target / "state/0/0" / file).write_bytes(b"")
        told = refuses(5, target, "compact", target, *wreck.compacting(name))
        assert f"{file} is truncated: it ends at decompressed byte 0" in told or f"{file}: damaged near byte 0" in told


@pytest.mark.parametrize(
    ("wreak", "says"),
    [
        (_remove("."), "does not exist"),
        (_only_a_file, "has no offsets and no state folder"),
        (_remove("offsets", "commits", "state", "sources"), "has no offsets and no state folder"),
        (_remove("state"), "has no state folder"),
        (_remove("state/0"), "has no operator folder"),
        (
            _remove("offsets"),
            "the offset log is missing, but the state has versions up to 7. Spark 4.1 and later do not",
        ),
        (_remove("commits"), "the commit log is missing, but offsets has the batches 0 to 6"),
        (_remove(*(f"commits/{n}" for n in range(7))), "Spark runs batch 6 again, and continues with this state"),
        (_remove("commits", "state/0/0", "state/0/1", *(f"offsets/{n}" for n in range(1, 7))), "no batch is committed"),
    ],
)
def test_a_target_that_is_not_a_checkpoint_is_a_wrong_argument(
    ttlsnap: Ttlsnap, tmp_path: Path, wreak: Callable[[Path], object], says: str
) -> None:
    target = sample(LZ4, tmp_path)
    wreak(target)
    before = bytes_of(target)
    for command in ("compact", "inspect"):
        options = wreck.compacting(LZ4) if command == "compact" else ()
        outcome = ttlsnap(command, target, *options)
        assert (outcome.code, says in outcome.err, str(target) in outcome.err) == (2, True, True), outcome
    assert bytes_of(target) == before


STRAYS = (
    "x.tmp", "state/0/0/.1.delta.5f0e.TID5.tmp",
    "state/0/0/99.delta.bak", "state/0/0/7.delta~", "state/0/0/.7.delta.swp",
    "state/0/0/_SUCCESS", "state/0/0/07.delta", "state/0/0/-7.delta", "state/0/0/7.delta.crc.bak", "state/0/0/8.DELTA",
    "state/0/0/1.snapshot/x", "state/0/0/backup/1.txt", "state/0/0/3.snapshot/_metadata/schema", "state/0/_SUCCESS",
    "state/0/00/1.delta", "state/0/x/1.delta", "state/0/_metadata/x", "state/0/_metadata/v2x/0", "state/_SUCCESS",
    "state/x/0/1.delta", "state/1", "offsets/6~", "offsets/.7.tmp", "offsets/x", "offsets/001", "offsets/-1",
    "offsets/y/x", "commits/6.bak", "commits/-9/x", "commits/_SUCCESS", "a folder/é ü/file", "_ttlsnap2/x",
    "sources/x/y",
    "state/0/0/18446744073709551616.delta", "offsets/99999999999999999999",
)  # fmt: skip


@pytest.mark.parametrize("name", [LZ4, OLD])
@pytest.mark.parametrize("output", [False, True])
def test_stray_files_are_left_alone(ttlsnap: Ttlsnap, tmp_path: Path, name: str, output: bool) -> None:
    clean = sample(name, tmp_path / "clean")
    options = (*wreck.compacting(name), "--format", "json")
    expected = ttlsnap("compact", clean, *options, "--dry-run")
    target = sample(name, tmp_path)
    for stray in STRAYS:
        _write(stray, f"stray {stray}".encode())(target)
    (target / "state/0/0/7.snapshot.tmp").symlink_to("nowhere")
    (target / "loop").symlink_to("loop")
    before = bytes_of(target)
    counted = ttlsnap("inspect", target, "--age", "--timestamp", "value.max", "--format", "json")
    assert json.loads(counted.out)["operators"][0]["stores"][0]["states"][0]["entries"] > 0
    copy = tmp_path / "copy"
    done = ttlsnap("compact", target, *options, *(("--output", copy) if output else ()))
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["totals"] == json.loads(expected.out)["totals"]
    after = bytes_of(target)
    # The replaced deltas are in the backup.
    backups = {path.relative_to(target).as_posix() for path in target.glob("_ttlsnap/runs/*/backup")}
    moved = {f"{backup}/{path}": path for backup in backups for path in before.keys() - after.keys()}
    assert {path.rpartition(".")[2] for path in moved.values()} == (set() if output else {"delta", "crc"})
    assert {moved.get(path, path): data for path, data in after.items() if moved.get(path, path) in before} == before
    again = ttlsnap("compact", copy if output else target, *options)
    assert (again.code, json.loads(again.out)["totals"]["dropped"]) == (0, 0)
    if output:
        state_like = {stray for stray in STRAYS if stray.endswith(".delta") and stray.startswith("state/")}
        missing = {stray for stray in STRAYS if not (copy / stray).exists()}
        assert missing <= state_like


def test_an_error_names_a_file_that_cannot_be_read() -> None:
    from ttlsnap.errors import StorageError
    from ttlsnap.storage.open import open_directory

    # /proc/self/mem is a regular file whose reading fails, because page 0 of a process is never mapped.
    with open_directory("/proc/self").open("mem") as file, pytest.raises(StorageError, match=r"cannot read .*/mem: "):
        file.read(8)
