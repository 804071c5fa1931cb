"""The library in C: it is there, can be switched off, and computes what the array code computes."""

from __future__ import annotations

import os
import subprocess
import sys

import google_crc32c
import numpy as np
import pytest

from ttlsnap import native
from ttlsnap.stores.hdfs import key_index
from ttlsnap.unsaferow.rows import Rows

pytestmark = pytest.mark.skipif(not native.is_available(), reason="ttlsnap was installed without a C compiler")


def _rows(count: int) -> Rows:
    chance = np.random.default_rng(5)
    return Rows.of([chance.bytes(int(size)) for size in chance.integers(0, 400, count)])


@pytest.mark.parametrize("with_tables", [False, True])
def test_checksums_are_those_of_the_crc_package(with_tables: bool) -> None:
    keys, values = _rows(300), _rows(300).take(np.arange(300)[::-1])
    found = native.join_checksums(
        (keys.data, keys.start, keys.size), (values.data, values.start, values.size), with_tables=with_tables
    )
    pieces = zip(keys.to_arrow().to_pylist(), values.to_arrow().to_pylist(), strict=True)
    assert found.tolist() == [google_crc32c.value(key + value) for key, value in pieces]


def test_hashes_are_those_of_the_array_code(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _rows(300)
    hashes = key_index.hash_rows(rows)
    monkeypatch.setattr(native, "is_available", lambda: False)
    assert hashes.tolist() == key_index.hash_rows(rows).tolist()
    assert len(set(hashes.tolist())) > 250


@pytest.mark.parametrize("setting", ["0", "1"])
def test_a_setting_switches_it_off(setting: str) -> None:
    code = "from ttlsnap import native; print(native.is_available())"
    env = {**os.environ, native.SETTING: setting}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(setting == "1")
