"""State schema files are written as Spark writes them."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from ttlsnap import open_checkpoint
from ttlsnap.checkpoint.state_schema import (
    decode_modified_utf8,
    encode_modified_utf8,
    read_state_schema,
    with_schemas,
)
from ttlsnap.schema.types import IntegerType, StringType, StructField, StructType
from ttlsnap.storage.local import LocalDirectory

from ..samples import SAMPLES

NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir() and "no-schema" not in path.name)


@pytest.mark.parametrize("name", NAMES)
def test_spark_writes_the_same_bytes(name: str) -> None:
    files = LocalDirectory(str(SAMPLES / name))
    stores = [store for operator in open_checkpoint(files).operators for store in operator.stores]
    assert stores
    for store in stores:
        found = read_state_schema(files, store.schema_file)
        assert found is not None
        written = (SAMPLES / name / store.schema_file).read_bytes()
        schemas = {family.name: family for family in found}
        if name == "limit-3.1":  # this version wrote the type void under its older name
            written = written.replace(b'"null"', b'"void"')
        assert with_schemas(files, store.schema_file, schemas) == written


@pytest.mark.parametrize("name", ["dedup-columns-3.1", "agg-deltas-lz4-4.2", "visits-4.2"])
def test_new_schemas_are_read_again(tmp_path: Path, name: str) -> None:
    files = LocalDirectory(str(SAMPLES / name))
    (store,) = (store for operator in open_checkpoint(files).operators for store in operator.stores)
    old = read_state_schema(files, store.schema_file)
    assert old is not None
    # Long enough for several pieces, with a NUL and a character beyond the first plane in a name.
    wide = StructType(tuple(StructField(f"\0🦊{n:04}", IntegerType()) for n in range(500 if "3.1" in name else 5000)))
    key = StructType((StructField("key", StringType()),))
    name_of = "default" if len(old) == 1 else "another"
    wanted = (*old[:-1], replace(old[-1], name=name_of, key=key, value=wide))
    (tmp_path / "schema").write_bytes(with_schemas(files, store.schema_file, {old[-1].name: wanted[-1]}))
    assert read_state_schema(LocalDirectory(str(tmp_path)), "schema") == wanted


@pytest.mark.parametrize("text", ["", "a\0b", "é", "🦊", "€\0🦊"])
def test_modified_utf8(text: str) -> None:
    data = encode_modified_utf8(text)
    assert b"\0" not in data
    assert decode_modified_utf8(data, "here") == text
    units = struct.iter_unpack("<H", text.encode("utf-16-le"))
    assert len(data) == sum(1 if 0 < unit < 0x80 else 2 if unit < 0x800 else 3 for (unit,) in units)
