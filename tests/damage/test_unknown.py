"""Unknown formats are refused by name (exit code 3), invalid ones are damage (5), and nothing is guessed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ..samples import sample
from . import wreck
from .conftest import Refuses, Ttlsnap

LZ4, ZSTD, OLD = "agg-deltas-lz4-4.2", "agg-snapshot-zstd-4.1", "agg-format1-3.5"
METADATA, SCHEMA = "state/0/_metadata/metadata", "state/0/0/_metadata/schema"
STORE = '"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2},'
KEY = '{"type":"struct","fields":[{"name":"key","type":"string"}]}'


def _edit(file: str, old: str, new: str) -> Callable[[Path], None]:
    return lambda target: wreck.edit(target / file, old, new)


def _time(value: str) -> Callable[[Path], None]:
    """Return a function that sets the begin of the last batch to ``value``."""
    return _edit("offsets/6", '"batchTimestampMs":', f'"batchTimestampMs":{value},"more":')


def _value(field: str) -> Callable[[Path], None]:
    """Return a function that gives the value schema one field of a type."""

    def do(target: Path) -> None:
        text = f'{{"type":"struct","fields":[{{"name":"max","type":{field},"nullable":true,"metadata":{{}}}}]}}'
        wreck.forget_checksums(target).joinpath(SCHEMA).write_bytes(wreck.schema_file(KEY, text))

    return do


def _put(file: str, data: bytes) -> Callable[[Path], None]:
    def do(target: Path) -> None:
        path = wreck.forget_checksums(target) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return do


def _schema(data: bytes) -> Callable[[Path], None]:
    return _put(SCHEMA, data)


DEEP = '{"type":"array","containsNull":true,"elementType":' * 99 + '"long"' + "}" * 99
UNKNOWN: dict[str, tuple[int, Callable[[Path], None], str]] = {
    "codec": (3, _edit("offsets/6", 'codec":"lz4"', 'codec":"brotli"'), "codec 'brotli' is unknown; known are lz4"),
    "codec class": (3, _edit("offsets/6", 'codec":"lz4"', 'codec":"com.x.Codec"'), "'com.x.Codec' is unknown"),
    "provider": (3, _edit("offsets/6", "HDFSBackedStateStoreProvider", "FooProvider"), "streaming.state.FooProvider"),
    "row checksum": (3, _edit("offsets/6", 'Checksum.enabled":"f', 'Checksum.enabled":"maybe f'), "'maybe false'; it"),
    "offset log v3": (3, _edit("offsets/6", "v1\n", "v3\n"), "offsets/6: log version 'v3' is unknown"),
    "commit log v9": (3, _edit("commits/6", "v1\n", "v9\n"), "commits/6: log version 'v9' is unknown"),
    "log version x": (5, _edit("commits/6", "v1\n", "vx\n"), "'vx', not a log version"),
    "operator": (3, _edit(METADATA, "stateStoreSave", "quantumSave"), "'quantumSave', an operator ttlsnap does"),
    "operator metadata v3": (3, _edit(METADATA, "v1\n", "v3\n"), "operator metadata version b'v3', expected v1"),
    "operator metadata vx": (5, _edit(METADATA, "v1\n", "vx\n"), "operator metadata version b'vx'"),
    "operator metadata v3 folder": (3, _put("state/0/_metadata/v3/0", b"v3\n{}"), "_metadata/v3: this version"),
    "store twice": (5, _edit(METADATA, '"stateStoreInfo":[', STORE), "'default' is listed twice"),
    "schema v4": (3, _schema(wreck.schema_file(KEY, KEY, "v4")), "schema: state schema version 'v4' is unknown"),
    "schema x": (5, _schema(wreck.schema_file(KEY, KEY, "x4")), "schema: not a state schema file"),
    "type": (3, _value('"quaternion"'), "schema: the schema has an unknown type: 'quaternion'"),
    "type object": (3, _value('{"type":"tensor"}'), "schema: the schema has an unknown type: 'tensor'"),
    "decimal of 39 digits": (3, _value('"decimal(39,2)"'), "an impossible decimal: 'decimal(39,2)'"),
    "char without end": (3, _value('"char(99999999999)"'), "unknown type: 'char(99999999999)'"),
    "type number": (5, _value("7"), "a type should be text or an object with a type, not 7"),
    "deep type": (5, _value(DEEP), "schema: schema JSON is nested deeper than 64 levels"),
    "deep JSON": (5, _schema(wreck.schema_file(KEY, "[" * 60_000)), "schema: schema is not JSON: nested deeper"),
    "deep JSON that is parsed": (5, _value("[" * 985 + "]" * 985), "schema: schema is not JSON: nested deeper"),
    "a name twice": (5, _value('"long","name":"min"'), "the name 'name' occurs twice"),
    "bytes that are no text": (5, _schema(wreck.schema_file(KEY, b"\xff\xfe{}")), "not modified UTF-8 (byte 0)"),
    "half a pair": (5, _value('"\\ud800"'), "is not Unicode text"),
    "bytes after the schema": (5, _schema(wreck.schema_file(KEY, KEY) + b"x"), "1 bytes follow the end of the schema"),
    "offsets that are no text": (5, _put("offsets/6", b"v1\n\xff{}"), "offsets/6 is not text (byte 3)"),
    "offsets that stop": (5, _put("offsets/6", b"v1\n"), "offsets/6 is truncated: it ends after its first line"),
    "offsets that stop sooner": (5, _put("offsets/6", b"v1"), "offsets/6 is truncated"),
    "offsets of a list": (5, _put("offsets/6", b"v1\n[]\n"), "the second line is not a JSON object"),
    "deep offsets": (5, _put("offsets/6", b"v1\n" + b"[" * 100_000), "not JSON (nested deeper than 400 levels)"),
    "deep time": (5, _time("[" * 980 + "]" * 980), "nested"),
    "NaN": (5, _time("NaN"), "NaN is not a JSON number"),
    "a time of 10^18 ms": (5, _time("9223372036854775807"), "not a number of milliseconds"),
    "a time of 5000 digits": (5, _time("9" * 5000), "not JSON"),
    "a time as text": (5, _time('"1"'), "not a number of milliseconds"),
    "a time twice": (5, _time('1,"batchTimestampMs":2'), "twice"),
    "a setting as number": (5, _edit("offsets/6", 'partitions":"2"', 'partitions":2'), "'conf' is missing, or not an"),
    "settings as list": (5, _edit("offsets/6", '"conf":{', '"conf":[],"x":{'), "'conf' is missing, or not an object"),
    "metadata without id": (5, _put("metadata", b"{}"), "metadata: not the query metadata Spark writes"),
    "an id that is no UUID": (5, _put("metadata", b'{"id":"12345678-1234-5678-1234-5678123456789"}'), "Spark writes"),
    "metadata as list": (5, _put("metadata", b"[1]"), "metadata: not the query metadata Spark writes"),
    "metadata in UTF-16": (5, _put("metadata", '{"id":"x"}'.encode("utf-16")), "metadata: not the query metadata"),
    "half an id": (5, _put("metadata", b'{"id":"\\ud800"}'), "metadata: not the query metadata"),
    "an operator without a name": (5, _edit(METADATA, '"stateStoreSave"', "null"), "None is not a str"),
    "a store in another folder": (5, _edit(METADATA, '"default"', '"../../x"'), "storeName is '../../x'"),
    "a store called NUL": (5, _edit(METADATA, '"default"', '"a\\u0000b"'), "storeName is"),
    "half a store": (5, _edit(METADATA, '"default"', '"\\udcff\\ud800"'), "is not Unicode text"),
    "a store with an endless name": (5, _edit(METADATA, '"default"', f'"{"x" * 300}"'), "File name too long"),
    "operator metadata of nothing": (5, _put(METADATA, b"v1\n"), "not the operator metadata Spark writes"),
}  # fmt: skip
# inspect shows the state of an operator that it does not know, and state that proves to have a known layout
NOT_SEEN_BY_A_SCAN = ("operator", "provider")


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_and_invalid_formats_are_refused_by_name(refuses: Refuses, tmp_path: Path, case: str) -> None:
    code, wreak, says = UNKNOWN[case]
    target = sample(LZ4, tmp_path)
    wreak(target)
    told = refuses(code, target, "compact", target, *wreck.compacting(LZ4))
    assert says in told
    assert len(told) < 1000
    assert str(target) in told or case == "operator"
    if case not in NOT_SEEN_BY_A_SCAN:
        assert says in refuses(code, target, "inspect", target, *wreck.scanning(LZ4))


@pytest.mark.parametrize("case", ["codec", "provider", "operator"])
def test_inspect_without_a_scan_shows_unknown_formats(ttlsnap: Ttlsnap, tmp_path: Path, case: str) -> None:
    target = sample(LZ4, tmp_path)
    UNKNOWN[case][1](target)
    found = ttlsnap("inspect", target)
    assert (found.code, any(word in found.out for word in ("brotli", "FooProvider", "quantumSave"))) == (0, True)


def test_a_checksum_of_an_unknown_kind_is_refused_by_name(refuses: Refuses, tmp_path: Path) -> None:
    target = sample(ZSTD, tmp_path)
    wreck.edit(target / "state/0/0/5.snapshot.crc", "CRC32C", "XXH64")
    told = refuses(3, target, "compact", target, *wreck.compacting(ZSTD))
    assert "5.snapshot.crc: the checksum algorithm 'XXH64' is unknown" in told


@pytest.mark.parametrize("path", ["x/state/../../../y", "/elsewhere/y", "x/state/a\\u0000b", "7"])
def test_a_schema_path_that_leads_outside_is_refused(
    refuses: Refuses, ttlsnap: Ttlsnap, tmp_path: Path, path: str
) -> None:
    target = wreck.forget_checksums(sample(LZ4, tmp_path))
    body = (target / METADATA).read_text().partition("\n")[2]
    _put("state/0/_metadata/v2/0", b"v2\n" + body.encode())(target)
    assert ttlsnap("inspect", target).code == 0
    wreck.edit(target / "state/0/_metadata/v2/0", '{"storeName"', f'{{"stateSchemaFilePaths":["{path}"],"storeName"')
    assert str(target) in refuses((4, 5), target, "inspect", target)


def test_a_boolean_setting_is_read_in_any_letter_case(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    name = "agg-rowchecksum-deletes-4.2"
    target = sample(name, tmp_path)
    wreck.edit_offsets(target, 'rowChecksum.enabled":"true"', 'rowChecksum.enabled":"TRUE"')
    assert ttlsnap("compact", target, *wreck.compacting(name)).code == 0


def test_digits_of_other_scripts_are_not_numbers(refuses: Refuses, tmp_path: Path) -> None:
    target = sample(OLD, tmp_path)
    wreck.edit_offsets(target, 'shuffle.partitions":"2"', 'shuffle.partitions":"\u00b2"')
    assert "which is impossible" in refuses(5, target, "inspect", target)


def test_a_missing_schema_can_be_given_as_an_option(refuses: Refuses, ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    (target / SCHEMA).unlink()
    assert "--schema 0.default=" in refuses(3, target, "compact", target, *wreck.compacting(LZ4))
    schema = "0.default='key STRING | max TIMESTAMP, count BIGINT NOT NULL, sum BIGINT'"
    assert ttlsnap("compact", target, *wreck.compacting(LZ4), "--schema", schema).code == 0


def test_a_truncated_schema_v3_is_an_error(refuses: Refuses, tmp_path: Path) -> None:
    target = wreck.forget_checksums(sample(LZ4, tmp_path))
    whole = wreck.utf("v3") + struct.pack(">i", 1) + wreck.utf("default") + b"\0" * 4
    for size in range(1, len(whole)):
        (target / SCHEMA).write_bytes(whole[:size])
        told = refuses(5, target, "inspect", target)
        assert "is truncated" in told or "impossible count" in told
