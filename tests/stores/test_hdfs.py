"""Each version of a store has the same entries as a dictionary after the same puts and deletes."""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import BinaryIO
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ttlsnap import LocalEngine, compact
from ttlsnap.errors import CorruptionError
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores import codecs, protocols
from ttlsnap.stores.codecs import Compressor
from ttlsnap.stores.hdfs import entries, key_index, partition, records
from ttlsnap.stores.hdfs.entries import HdfsBatch, read_entries
from ttlsnap.stores.hdfs.files import find_lineage
from ttlsnap.stores.hdfs.snapshot_writer import SnapshotFileWriter
from ttlsnap.stores.hdfs.store import HdfsStore
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.unsaferow.rows import Rows

from ..both_ways import both_ways  # noqa: F401
from ..samples import bytes_of, sample
from .plain import Put, record, state_file

Version = tuple[str, list[Put]]
"""The kind of a file, ``delta`` or ``snapshot``, and its puts in order."""


class Store:
    """The folder of a partition. The simple writer of ``plain`` writes its files."""

    def __init__(self, folder: Path, codec: str = "lz4", row_checksums: bool = False) -> None:
        self.folder, self.form = folder, HdfsStore(codec, row_checksums)
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, puts: Sequence[Put]) -> None:
        self.write_raw(name, state_file(puts, self.form.row_checksums))

    def write_raw(self, name: str, data: bytes) -> None:
        with (self.folder / name).open("wb") as file:
            stream = Compressor(file, self.form.codec)
            stream.write(data)
            stream.close()

    def batches(self, version: int) -> list[HdfsBatch]:
        files = LocalDirectory(str(self.folder.parent.resolve()))
        return list(read_entries(files, find_lineage(files, self.folder.name, version), self.form))

    def entries(self, version: int) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        for batch in self.batches(version):
            assert len(batch.records) == len(batch.keys) == len(batch.values)
            found += zip(batch.keys.to_arrow().to_pylist(), batch.values.to_arrow().to_pylist(), strict=True)
        return found


def _states(versions: Sequence[list[Put]]) -> list[dict[bytes, bytes]]:
    """Return the content of a dictionary after each version."""
    state: dict[bytes, bytes] = {}
    states = []
    for puts in versions:
        for key, value in puts:
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        states.append(dict(state))
    return states


def _forced(keep_deltas: int, window: int, hash_bits: int, long_key: int) -> AbstractContextManager[object]:
    """Set small limits, so that a few entries reach the code paths for many."""
    stack = ExitStack()
    real = key_index.hash_rows

    def poor_hash(rows: Rows) -> key_index.Hashes:
        return real(rows) << np.uint64(64 - hash_bits) if hash_bits else np.zeros(len(rows), np.uint64)

    stack.enter_context(mock.patch.object(entries, "KEPT_DELTA_BYTES", keep_deltas))
    stack.enter_context(
        mock.patch.object(entries, "read_records", functools.partial(records.read_records, window=window))
    )
    stack.enter_context(mock.patch.object(key_index, "LONG", long_key))
    if hash_bits < 64:
        stack.enter_context(mock.patch.object(key_index, "hash_rows", poor_hash))
    return stack


_KEYS = st.integers(0, 14).map(lambda n: struct.pack("<Q", 0) + struct.pack("<Q", n * 2**56) * (1 + n % 3))
_VALUES = st.integers(0, 1000).map(lambda n: struct.pack("<Q", n) * (1 + n % 2))
_PUTS = st.lists(st.tuples(_KEYS, st.none() | _VALUES), max_size=25)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    versions=st.lists(_PUTS, min_size=1, max_size=6),
    snapshots=st.sets(st.integers(1, 6)),
    row_checksums=st.booleans(),
    keep_deltas=st.sampled_from([0, 200, 1 << 26]),
    window=st.sampled_from([1, 64, 300, 1 << 20]),
    hash_bits=st.sampled_from([0, 1, 3, 64]),
    long_key=st.sampled_from([8, 16, 512]),
)
def test_every_version_equals_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    versions: list[list[Put]],
    snapshots: set[int],
    row_checksums: bool,
    keep_deltas: int,
    window: int,
    hash_bits: int,
    long_key: int,
) -> None:
    store = Store(tmp_path_factory.mktemp("store") / "0", "none", row_checksums)
    states = _states(versions)
    for version, (puts, state) in enumerate(zip(versions, states, strict=True), 1):
        store.write(f"{version}.delta", puts)
        if version in snapshots:
            store.write(f"{version}.snapshot", list(state.items()))
    with _forced(keep_deltas, window, hash_bits, long_key):
        for version, state in enumerate(states, 1):
            assert sorted(store.entries(version)) == sorted(state.items())


@pytest.mark.parametrize("row_checksums", [False, True])
@pytest.mark.parametrize("keep_deltas", [0, 1 << 26])
def test_many_entries_over_several_windows_equal_a_dictionary(
    tmp_path: Path, row_checksums: bool, keep_deltas: int
) -> None:
    chance = random.Random(1)
    keys = [struct.pack("<QQ", 0, n) + chance.randbytes(8 * chance.randrange(6)) for n in range(60_000)]

    def puts(count: int) -> list[Put]:
        chosen = chance.choices(keys, k=count)
        return [(k, None if chance.random() < 0.2 else struct.pack("<QQ", 0, chance.randrange(9))) for k in chosen]

    versions: list[list[Put]] = [[(key, struct.pack("<QQ", 0, 99)) for key in keys], puts(20_000), puts(20_000)]
    states = _states(versions)
    store = Store(tmp_path / "0", row_checksums=row_checksums)
    store.write("1.snapshot", versions[0])
    for version in (2, 3):
        store.write(f"{version}.delta", versions[version - 1])
    with mock.patch.object(entries, "KEPT_DELTA_BYTES", keep_deltas):
        assert sorted(store.entries(3)) == sorted(states[-1].items())


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("room", [0, 100_000, 1 << 26])
def test_entries_are_kept_for_the_second_scan_if_there_is_room(tmp_path: Path, again: bool, room: int) -> None:
    store = Store(tmp_path / "0")
    store.write("1.snapshot", [(bytes([i % 256, i // 256] * 4), bytes(64)) for i in range(5000)])
    store.write("2.delta", [(bytes([i % 256, i // 256] * 4), bytes(72)) for i in range(4000, 6000)])
    files = LocalDirectory(str(tmp_path.resolve()))
    with (
        mock.patch.object(partition, "KEPT_BYTES", room),
        store.form.open(files, find_lineage(files, "0", 2), None, keep_in_memory=again) as opened,
    ):
        first, second = ([_bytes_of(batch) for batch in opened.batches({})] for _ in range(2))
        assert first == second and sum(map(len, first)) == 6000
        for path in store.folder.iterdir():
            path.unlink()
        if again and room == 1 << 26:
            assert [_bytes_of(batch) for batch in opened.batches({})] == first
        else:
            with pytest.raises(CorruptionError, match=r"2\.delta"):
                list(opened.batches({}))


def _bytes_of(batch: protocols.EntryBatch) -> list[tuple[bytes, bytes]]:
    return list(zip(batch.keys.to_arrow().to_pylist(), batch.values.to_arrow().to_pylist(), strict=True))


def test_the_last_of_several_writes_in_one_delta_wins(tmp_path: Path) -> None:
    store = Store(tmp_path / "0")
    key, other = bytes(16), struct.pack("<QQ", 0, 1)
    store.write("1.delta", [(key, b"1" * 8), (other, b"1" * 8), (key, None), (key, b"2" * 8), (other, None)])
    assert store.entries(1) == [(key, b"2" * 8)]


def test_a_delete_with_a_row_checksum_removes_the_key(tmp_path: Path) -> None:
    store = Store(tmp_path / "0", row_checksums=True)
    key, other = bytes(16), struct.pack("<QQ", 0, 1)
    store.write("1.snapshot", [(key, b"1" * 8), (other, b"2" * 8)])
    store.write("2.delta", [(key, None)])
    assert store.entries(2) == [(other, b"2" * 8)]


@pytest.mark.parametrize("row_checksums", [False, True])
def test_an_empty_key_is_valid(tmp_path: Path, row_checksums: bool) -> None:
    store = Store(tmp_path / "0", row_checksums=row_checksums)
    store.write("1.snapshot", [(b"", b"1" * 8)])
    store.write("2.delta", [(b"", b"2" * 8)])
    assert store.entries(1) == [(b"", b"1" * 8)]
    assert store.entries(2) == [(b"", b"2" * 8)]


@pytest.mark.parametrize("where", ["snapshot", "put", "delete"])
def test_a_wrong_row_checksum_is_damage(tmp_path: Path, where: str) -> None:
    store = Store(tmp_path / "0", row_checksums=True)
    puts: list[Put] = [(struct.pack("<QQ", 0, n), b"v" * 8) for n in range(3)]
    snapshot = state_file(puts, row_checksums=True)
    delta = state_file([(puts[1][0], b"w" * 8), (puts[2][0], None)], row_checksums=True)
    if where == "snapshot":
        snapshot = snapshot.replace(b"vvvvvvvv", b"vvvvvvvx", 1)
    elif where == "put":
        delta = delta.replace(b"w" * 8, b"w" * 7 + b"x")
    else:
        delta = delta[:-10] + bytes([delta[-10] ^ 1]) + delta[-9:]
    store.write_raw("1.snapshot", snapshot)
    store.write_raw("2.delta", delta)
    with pytest.raises(CorruptionError, match="do not match their checksums; the first has the key 0000"):
        store.batches(2)


@pytest.mark.parametrize("puts", [[(bytes(8), b"")], [(b"", None)]])
def test_a_row_too_short_for_its_checksum_is_damage(tmp_path: Path, puts: list[Put]) -> None:
    store = Store(tmp_path / "0", row_checksums=True)
    store.write_raw("1.delta", state_file(puts))
    with pytest.raises(CorruptionError, match="too short to hold its checksum"):
        store.batches(1)


def test_a_delete_in_a_snapshot_is_damage(tmp_path: Path) -> None:
    store = Store(tmp_path / "0")
    store.write("1.snapshot", [(bytes(8), bytes(8)), (bytes(8), None)])
    with pytest.raises(CorruptionError, match=r"1\.snapshot: a snapshot cannot contain a delete"):
        store.batches(1)


def test_damage_names_its_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "0")
    store.write("1.delta", [(bytes(8), bytes(8))])
    store.write_raw("2.delta", record(bytes(8), bytes(8)))
    with pytest.raises(CorruptionError, match=r"0/2\.delta is truncated"):
        store.batches(2)


@pytest.mark.parametrize("row_checksums", [False, True])
@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy", "lzf", "none"])
def test_a_written_snapshot_has_all_copied_and_put_entries(tmp_path: Path, codec: str, row_checksums: bool) -> None:
    store = Store(tmp_path / "0", codec, row_checksums)
    chance = random.Random(3)
    puts: list[Put] = [
        (struct.pack("<QQ", 0, n), struct.pack("<Q", n) * (1 + chance.randrange(3))) for n in range(5_000)
    ]
    store.write("1.snapshot", puts)
    with (store.folder / "2.snapshot").open("wb") as sink:
        writer = SnapshotFileWriter(sink, store.form)
        (batch,) = store.batches(1)
        numbers = np.arange(len(batch.keys))
        writer.copy(HdfsBatch(batch.records.take(numbers % 3 == 0), batch.keys, batch.values))
        # The other entries get values from elsewhere in the buffer.
        changed = np.flatnonzero(numbers % 3 == 1)
        writer.put(batch.keys.take(changed), batch.values.take(changed[::-1]))
        writer.close()
    changed_puts = puts[1::3]
    wanted = puts[::3] + [(key, value) for (key, _), (_, value) in zip(changed_puts, changed_puts[::-1], strict=True)]
    assert writer.entries == len(wanted)
    assert sorted(store.entries(2)) == sorted(wanted)


def test_staged_snapshots_are_compared_byte_by_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("agg-snapshot-zstd-4.1", tmp_path)
    before = bytes_of(target)
    real = codecs.decompress

    def flipped(file: BinaryIO, codec: str, where: str) -> Iterator[bytes]:
        data = bytearray(b"".join(map(bytes, real(file, codec, where))))
        if "/staged/" in where and len(data) > 4:
            data[-5] ^= 1  # of the last value
        yield bytes(data)

    monkeypatch.setattr(partition, "decompress", flipped)
    factory = TtlTransformerFactory(StateTtlConfig(2 * 86_400_000_000), "value.max")
    with pytest.raises(CorruptionError, match=r"entries were staged and \d+ read back, or their bytes differ"):
        compact(str(target), [factory], engine=LocalEngine(1), stopped=True)
    assert bytes_of(target) == before


def test_missing_files_are_named_before_anything_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "0")
    for name in ("1.delta", "2.snapshot", "4.delta"):
        store.write(name, [])
    assert store.entries(2) == []
    for version, missing in ((3, "3.delta"), (4, "3.delta"), (9, "3.delta")):
        with pytest.raises(CorruptionError, match=f"0/{missing} is missing: version {version} needs every delta after"):
            store.batches(version)
    for path in store.folder.iterdir():
        path.rename(path.with_name(path.name.replace("4.delta", "gone")))
    with pytest.raises(CorruptionError, match=r"0/4\.snapshot is missing: without it, .* after 2\.snapshot, and none"):
        store.batches(4)
    (store.folder / "2.snapshot").unlink()
    with pytest.raises(CorruptionError, match=r"2\.delta is missing: .* as there is no snapshot \(1 missing\)"):
        store.batches(2)
