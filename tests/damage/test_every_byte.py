"""State files of every codec, cut at every byte and flipped at many: the reader finds the damage as the format allows.

The tests compare the reader with ``model``. Where the model finds the file broken, so must the reader. Elsewhere both
must find the same number of entries. A flipped bit in the data of zstd, snappy, lzf or none can be such a case: those
have no checksum, so Spark cannot find the damage either.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ttlsnap.errors import CorruptionError
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores.hdfs.entries import read_entries
from ttlsnap.stores.hdfs.files import find_lineage
from ttlsnap.stores.hdfs.store import HdfsStore

from ..samples import sample
from . import model, wreck

CASES = [
    ("lz4", "offsets-v2-4.2", "2.delta"),
    ("zstd", "agg-snapshot-zstd-4.1", "5.snapshot"),
    ("snappy", "window-append-snappy-4.0", "2.delta"),
    ("lzf", "lzf-both-4.2", "2.snapshot"),
    ("lzf", "lzf-both-4.2", "4.delta"),
    ("none", "lzf-both-4.2", "1.snapshot"),
    ("none", "lzf-both-4.2", "5.delta"),
    ("row checksums", "agg-rowchecksum-deletes-4.2", "8.delta"),
]


class Patient:
    """One file of a sample as a partition of its own, without checksum files."""

    def __init__(self, path: Path, form: HdfsStore) -> None:
        self.path, self.form, self.data = path, form, path.read_bytes()

    def entries(self) -> int | None:
        """Return how many entries ttlsnap reads, or None if it finds the file damaged."""
        files = LocalDirectory(str(self.path.parents[1]))
        try:
            lineage = find_lineage(files, self.path.parent.name, 1)
            return sum(len(batch.keys) for batch in read_entries(files, lineage, self.form))
        except CorruptionError as error:
            assert str(self.path) in str(error)
            return None

    def proven(self) -> int | None:
        """Return how many entries the model reads, or None if it finds the file broken."""
        try:
            return len(model.live_entries(self.path.parent, 1, self.form.codec, self.form.row_checksums))
        except model.Broken:
            return None

    def judge(self, damages: Iterator[tuple[str, bytes]]) -> int:
        """Compare ttlsnap with the model for each damage. Return how many ttlsnap found."""
        found = 0
        for label, data in damages:
            self.path.write_bytes(data)
            told, expected = self.entries(), self.proven()
            right = told == expected
            if self.path.suffix == ".snapshot" and told is not None and expected is not None:
                # If damage makes two keys of a snapshot equal, both are kept.
                right = told >= expected
            assert right, f"{label}: ttlsnap says {told}, the format {expected}"
            found += told is None
        return found


@pytest.fixture(params=CASES, ids=" ".join)
def patient(request: pytest.FixtureRequest, tmp_path: Path) -> Patient:
    """Put one file of a sample, in the codec of the case, into a partition of its own."""
    codec, name, file = request.param
    checkpoint = sample(name, tmp_path)
    if codec == "none":
        wreck.recode(checkpoint, "lzf", "none")
    alone = tmp_path / "0" / f"1.{file.partition('.')[2]}"
    alone.parent.mkdir()
    shutil.copy(checkpoint / "state/0/0" / file, alone)
    return Patient(alone, HdfsStore("lz4" if codec == "row checksums" else codec, codec == "row checksums"))


def test_a_file_cut_at_any_byte_is_an_error(patient: Patient) -> None:
    assert patient.entries() == patient.proven() is not None
    size = len(patient.data)
    found = patient.judge((f"cut at byte {cut}", patient.data[:cut]) for cut in range(size))
    # A stream ends with a few bytes after the end mark, where Spark also stops reading.
    assert found >= size - {"lz4": 21, "zstd": 8}.get(patient.form.codec, 0)


def test_a_flipped_bit_is_an_error_or_loses_no_entry(patient: Patient) -> None:
    size = 8 * len(patient.data)
    bits = range(size) if size < 200 else sorted(random.Random(size).sample(range(size), 200))
    found = patient.judge((f"bit {bit} flipped", wreck.flipped(patient.data, bit)) for bit in bits)
    # lz4 has a checksum for each block. The others only find a broken structure of the stream or the records.
    assert found >= len(bits) * (0.9 if patient.form.codec == "lz4" else 0.05)


def test_random_bytes_are_an_error_or_lose_no_entry(patient: Patient) -> None:
    damages = wreck.damages(patient.data, random.Random(len(patient.data)), 30)
    assert patient.judge(damages) > 30


@pytest.mark.parametrize("patient", [CASES[-1]], indirect=True, ids=" ".join)
def test_only_a_row_checksum_finds_a_flipped_bit_in_a_row(patient: Patient) -> None:
    raw = wreck.unpacked(patient.path, "lz4")
    lengths = set(_lengths(raw))
    rows = [bit for bit in range(8 * (len(raw) - 4)) if bit // 8 not in lengths]
    for bit in random.Random(8).sample(rows, 150):
        patient.path.write_bytes(wreck.packed(wreck.flipped(raw, bit), "lz4"))
        assert patient.entries() is None, bit
        assert Patient(patient.path, HdfsStore("lz4", False)).entries() is not None, bit


def _lengths(raw: bytes) -> Iterator[int]:
    """Yield the places of bytes that are lengths, not rows."""
    place = 0
    while (size := int.from_bytes(raw[place : place + 4], "big", signed=True)) != -1:
        yield from range(place, place + 4)
        place += 4 + size
        size = int.from_bytes(raw[place : place + 4], "big", signed=True)
        yield from range(place, place + 4)
        place += 4 + max(size, 0)
