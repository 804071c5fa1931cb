"""Damaged Avro bytes give an error that names the row, or a valid value. They never cause a large allocation."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.avro.decode import decode
from ttlsnap.avro.keys import decode_keys, encode_keys
from ttlsnap.avro.values import decode_values, encode_values
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.unsaferow.rows import Rows

from ..matrix import rotating
from . import plain
from .recorded import VERSIONS, Sample, samples

FOUND = [each for each in samples(VERSIONS[-1]) if each.keys]
MOST = 16
"""The places in each piece that a slice of the matrix damages."""
NANS = (struct.pack("<f", float("nan")), struct.pack("<d", float("nan")))
"""The only NaNs that the encoder writes. A damaged NaN is therefore not written back unchanged."""
BOTH_WAYS = pytest.mark.usefixtures("walking")


def lay_out(piece: bytes, filler: int) -> Rows:
    """Return a row twice, with filler bytes around each."""
    around = bytes([filler]) * 20
    size = np.full(2, len(piece), np.int64)
    start = np.arange(2, dtype=np.int64) * (len(piece) + 20) + 20
    return Rows(np.frombuffer((around + piece) * 2 + around, np.uint8), start, size)


def outcome(found: Sample, piece: bytes, is_key: bool) -> str:
    """Return the error or the decoded value as text. Require that a decoded value is written back unchanged."""
    told = set()
    for filler in (0x00, 0xFF):
        rows = lay_out(piece, filler)
        try:
            array = decode_keys(rows, found.layout) if is_key else decode_values(rows, found.schemas)
        except CorruptionError as error:
            told.add(str(error))
            continue
        array.validate(full=True)
        told.add(array.slice(0, 1).to_string())
        if len(found.schemas.by_id) == 1:
            again = encode_keys(array, found.layout) if is_key else encode_values(array, found.schemas)
            (written,) = set(again.to_arrow().to_pylist())
            assert written == piece or any(nan in written for nan in NANS)
    assert len(told) == 1
    return told.pop()


def pieces_of(found: Sample) -> list[tuple[bytes, bool]]:
    """Return a key of medium length, a value of medium length, and the shortest value. Mark which one is a key."""
    rows = sorted(set(found.rows), key=len)
    return [(sorted(found.keys, key=len)[len(found.keys) // 2], True), (rows[len(rows) // 2], False), (rows[0], False)]


@BOTH_WAYS
@pytest.mark.parametrize("found", FOUND, ids=str)
def test_a_truncated_row_is_an_error(found: Sample) -> None:
    for piece, is_key in pieces_of(found):
        for size in rotating(range(len(piece)), MOST, f"{found} cut {len(piece)}"):
            assert outcome(found, piece[:size], is_key).startswith("row ")


@BOTH_WAYS
@pytest.mark.parametrize("found", FOUND, ids=str)
def test_changed_bytes_are_an_error_or_a_valid_value(found: Sample) -> None:
    for piece, is_key in pieces_of(found):
        for place in rotating(range(len(piece)), MOST, f"{found} changed {len(piece)}"):
            for change in (0x01, 0x02, 0x80, 0xFF) if len(piece) < 30 else (1 << place % 8,):
                damaged = bytearray(piece)
                damaged[place] ^= change
                outcome(found, bytes(damaged), is_key)


@BOTH_WAYS
@pytest.mark.parametrize("found", FOUND, ids=str)
def test_an_extra_byte_is_an_error(found: Sample) -> None:
    for piece, is_key in pieces_of(found):
        for more in (b"\x00", b"\x02"):
            assert outcome(found, piece + more, is_key).startswith("row ")


LONG = plain.number(2**62)
DAMAGED = [
    ("n BIGINT", b"\x01\x00", "field n: the byte 01 is neither null nor a value"),
    ("n BIGINT", b"\x04\x00", "field n: the byte 04 is neither null nor a value"),
    ("n BIGINT", b"\x82\x00\x00", "field n: the byte 82 is neither null nor a value"),
    ("n BIGINT", b"\x02\x00\x00", "1 bytes follow its last field"),
    ("n INT", b"\x02" + plain.number(2**31), "field n: 2147483648 is no 32-bit number"),
    ("b BOOLEAN", b"\x02\x02", "field b: the byte 02 is neither true nor false"),
    ("s STRING", b"\x02\x01", "field s: -1 bytes of text or binary, where 0 are left"),
    ("s STRING", b"\x02\x04a", "field s: 2 bytes of text or binary, where 1 are left"),
    ("s STRING", b"\x02" + LONG, f"field s: {2**62} bytes of text or binary, where 0 are left"),
    ("s STRING", b"\x02\x02\xff", "field s: the string is not UTF-8"),
    ("d DECIMAL(5,2)", b"\x02\x7f\xff\xff", "field d: a decimal of unscaled value 8388607, more than 5 digits"),
    ("d DECIMAL(20,0)", b"\x02" + b"\x80" + bytes(8), "field d: a decimal of unscaled value -2361183241434822606848"),
    ("d DOUBLE", b"\x02" + bytes(7), "field d: it is truncated: 8 bytes should follow, but 7 do"),
    ("a ARRAY<STRING>", b"\x02\x01", "field a: -1 elements, where 0 bytes are left"),
    ("a ARRAY<STRING>", b"\x02" + LONG, f"field a: {2**62} elements, where 0 bytes are left"),
    ("a ARRAY<DOUBLE>", b"\x02\x04" + bytes(15), "field a: 2 elements, where 15 bytes are left"),
    ("a ARRAY<BIGINT>", b"\x02\x04\x80\x80", "field a: 2 numbers are truncated"),
    ("a ARRAY<BIGINT>", b"\x02\x02\x80\x00\x00", "field a.element: a number of 2 bytes that needs fewer"),
    ("a ARRAY<BIGINT>", b"\x02\x02\x02\x02", "field a: an array or a map does not end where it should"),
    ("a ARRAY<BIGINT>", b"\x02\x02\x02", "field a: it is truncated: 1 bytes should follow, but 0 do"),
    ("a ARRAY<STRING>", b"\x02\x04\x00\x06", "field a: its elements are truncated or damaged"),
    ("a ARRAY<ARRAY<INT>>", b"\x02\x02\x04\x00", "field a: its elements are truncated or damaged"),
    ("a ARRAY<STRUCT<s: STRING>>", b"\x02\x02\x02\x02\x02\xff\x00", "field a.element.s: the string is not UTF-8"),
    ("m MAP<STRING, INT>", b"\x02\x02\x02\xff\x02\x00", "field m.key: the string is not UTF-8"),
    ("m MAP<STRING, INT>", b"\x02\x02\x00" + plain.number(2**31) + b"\x00", "field m.value: 2147483648 is no 32-bit"),
]


@pytest.mark.parametrize(("ddl", "piece", "message"), DAMAGED, ids=[f"{ddl}-{said}" for ddl, _, said in DAMAGED])
def test_the_error_names_row_field_and_fault(ddl: str, piece: bytes, message: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        # Nulls in front, so that the row's number differs from the value's.
        decode(Rows.of([b"\x00", b"\x00", piece, b"\x00"]), parse_ddl(ddl))
    comma = "," if message.startswith("field") else ":"
    assert str(caught.value).startswith(f"row 2{comma} {message}")


@BOTH_WAYS
@pytest.mark.parametrize(
    ("ddl", "piece"),
    [
        ("a ARRAY<STRING>", b"\x02\x04\x00\x06"),
        ("a ARRAY<STRING>", b"\x02\x04\x00\x01"),
        ("a ARRAY<STRING>", b"\x02\x04\x00" + b"\xff" * 11),
        ("a ARRAY<ARRAY<INT>>", b"\x02\x02\x04\x00"),
        ("a ARRAY<ARRAY<INT>>", b"\x02\x02\x02\x01\x00"),
        ("a ARRAY<ARRAY<INT>>", b"\x02\x02\x02\x02\x00\x01\x00"),
        ("a ARRAY<ARRAY<DOUBLE>>", b"\x02\x02\x02\x02\x00\x00\x00"),
        # A huge count that only the end of the row can stop.
        ("a ARRAY<ARRAY<DOUBLE>>", b"\x02\x02\x02" + plain.number(2**60) + b"\x00"),
        ("a ARRAY<ARRAY<STRUCT<>>>", b"\x02\x02\x02" + plain.number(2**60) + b"\x00"),
        ("a ARRAY<ARRAY<BOOLEAN>>", b"\x02\x02\x02" + plain.number(2**60) + b"\x00"),
        ("a ARRAY<STRUCT<n: INT>>", b"\x02\x02\x04\x00"),
        ("a ARRAY<STRUCT<n: INT>>", b"\x02\x02\x02\x03\x00"),
        ("a MAP<STRING, ARRAY<INT>>", b"\x02\x02\x00\x03\x00"),
        ("a MAP<STRING, MAP<STRING, INT>>", b"\x02\x02\x00\x02\x02\x00\x00\x07\x00"),
    ],
)
def test_an_error_in_damaged_elements_names_row_and_field(ddl: str, piece: bytes) -> None:
    with pytest.raises(CorruptionError, match="row 2, field a"):
        decode(Rows.of([b"\x00", b"\x00", piece, b"\x00"]), parse_ddl(ddl))


@pytest.mark.parametrize("ddl", ["a ARRAY<VOID>", "m MAP<STRING, VOID>", "a TINYINT", "a ARRAY<INTERVAL DAY>"])
def test_unsupported_types_are_refused_by_name(ddl: str) -> None:
    with pytest.raises(UnsupportedError, match="is unknown in Avro"):
        decode(Rows.of([b"\x02\x02\x00"]), parse_ddl(ddl))


@pytest.mark.parametrize("ddl", ["a ARRAY<STRUCT<>>", "a ARRAY<ARRAY<STRING>>", "a ARRAY<STRING>", "a ARRAY<BOOLEAN>"])
def test_a_huge_element_count_allocates_little(ddl: str) -> None:
    schema = parse_ddl(ddl)
    rows = Rows.of([b"\x02" + plain.number(2**40) + b"\x00" * 1000] * 40)
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError, match=r"row 0, field a: 1099511627776 elements"):
            decode(rows, schema)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert pool.bytes_allocated() - before < 1_000_000
