"""Damaged rows give an error that names the row, or a result from that row's bytes alone."""

from __future__ import annotations

import struct
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.check import check_rows
from ttlsnap.unsaferow.decode import decode, decode_column
from ttlsnap.unsaferow.encode import encode

from ..matrix import FULL, narrow

SCHEMA = parse_ddl(
    "i INT, s STRING, b BINARY, d DECIMAL(30,2), e DECIMAL(9,2), a ARRAY<STRING>, p ARRAY<SMALLINT>, "
    "m MAP<STRING, BIGINT>, t STRUCT<x: INT, y: STRUCT<z: STRING, w: ARRAY<INT>>>, v VARIANT, n VOID, "
    "c INTERVAL, aa ARRAY<ARRAY<STRUCT<q: STRING, r: DOUBLE>>>, ad ARRAY<DECIMAL(25,0)>, h TIME, "
    "ms MAP<INT, STRUCT<k: STRING>>"
)
VALUES: list[dict[str, Any]] = [
    {
        "i": i, "s": "text é" * i, "b": b"\xff" * i, "d": Decimal(-(7**i)), "e": Decimal(i),
        "a": ["a", None, "b" * i], "p": [1, None, i], "m": [("k", i), ("l", None)],
        "t": {"x": i, "y": {"z": "deep", "w": [i, 2, None]}}, "v": {"value": b"v" * i, "metadata": b"m"},
        "n": None, "c": (i, -i, i * 1_000_000),
        "aa": [[{"q": "Q" * i, "r": 1.5}, None], [], None], "ad": [Decimal(10**20 + i), None], "h": None,
        "ms": [(i, {"k": "K"}), (i + 1, None)],
    }
    for i in range(6)
]  # fmt: skip
VALUES[4] = dict.fromkeys(VALUES[0])
GOOD = [bytes(v) for v in encode(pa.array(VALUES, arrow_type(SCHEMA)), SCHEMA).to_arrow().to_pylist()]


def outcome(rows: Any, schema: StructType = SCHEMA) -> str:
    """Return the decoded rows or the error as text. UnsupportedError is for intervals beyond Arrow's nanoseconds."""
    try:
        check_rows(rows, schema)
        decoded = decode(rows, schema)
    except (CorruptionError, UnsupportedError) as e:
        return f"{type(e).__name__}: {e}"
    decoded.validate(full=True)
    return decoded.to_string() if len(decoded) < 3 else str(decoded.nbytes)


@settings(max_examples=600 if FULL else 150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, len(GOOD) - 1),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), min_size=1, max_size=4),
)
def test_flipped_bits_give_a_result_from_the_row_alone(lay_out: Any, which: int, flips: list[tuple[int, int]]) -> None:
    payload = bytearray(GOOD[which])
    for position, bit in flips:
        payload[position % len(payload)] ^= 1 << bit
    # The result must not depend on the bytes around the row.
    results = {outcome(lay_out([bytes(payload)], gap=64, filler=filler)) for filler in (0x00, 0xEE)}
    assert len(results) == 1


@settings(max_examples=400 if FULL else 100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, len(GOOD) - 1),
    st.integers(0, 10_000),
    st.sampled_from([0, 1, 7, 8, 16, 24, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]),
)
def test_odd_numbers_anywhere_give_a_result_from_the_row_alone(
    lay_out: Any, which: int, position: int, number: int
) -> None:
    payload = bytearray(GOOD[which])
    position = position % (len(payload) // 4) * 4
    payload[position : position + 8] = struct.pack("<Q", number)[: len(payload) - position]
    results = {outcome(lay_out([bytes(payload)], gap=64, filler=filler)) for filler in (0x00, 0xEE)}
    assert len(results) == 1


@pytest.mark.slow
@pytest.mark.parametrize("which", narrow(range(len(GOOD)), 0, 3))
def test_errors_for_truncated_rows_name_the_row(which: int, lay_out: Any) -> None:
    for length in range(len(GOOD[which])):
        rows = lay_out([GOOD[0], GOOD[which][:length]], gap=64)
        if length % 8:
            with pytest.raises(CorruptionError, match="row 1"):
                check_rows(rows, SCHEMA)
        for ordinal in range(len(SCHEMA)):
            try:
                decode_column(rows, SCHEMA, [ordinal]).validate(full=True)
            except CorruptionError as e:
                assert str(e).startswith("row 1")


def row(words: list[int], tail: bytes = b"", nulls: int = 0) -> bytes:
    return struct.pack(f"<{len(words) + 1}Q", nulls, *words) + tail


def word(offset: int, size: int) -> int:
    return offset << 32 | size


def array(count: int, body: bytes, bits: int = 0) -> bytes:
    return struct.pack("<qQ", count, bits) + body


FINE = {
    "s STRING": row([word(16, 4)], b"fine\0\0\0\0"),
    "a ARRAY<BIGINT>": row([word(16, 24)], array(1, bytes(8))),
}
DAMAGED = [
    ("s STRING", row([word(16, 9)], bytes(8)), "field s: the value's 9 bytes at offset 16 do not lie within"),
    ("s STRING", row([word(8, 1)], bytes(8)), "field s: the value's 1 bytes at offset 8 do not"),
    ("s STRING", row([word(2**31, 1)], bytes(8)), "field s: the value's 1 bytes at offset -2147483648"),
    ("s STRING", row([word(16, 2**32 - 1)], bytes(8)), "field s: the value's 4294967295 bytes"),
    ("s STRING", row([word(16, 3)], b"a\xffb" + bytes(5)), "field s: the string is not UTF-8"),
    ("d DECIMAL(30,2)", row([word(16, 0)], bytes(16)), "field d: a decimal of 0 bytes"),
    ("d DECIMAL(30,2)", row([word(16, 17)], bytes(24)), "field d: a decimal of 17 bytes"),
    ("d DECIMAL(30,2)", row([word(16, 13)], b"\x7f" * 13 + bytes(3)), "field d: a decimal of unscaled value"),
    ("d DECIMAL(5,2)", row([100_000]), "field d: a decimal of unscaled value 100000, more than 5 digits"),
    ("d DECIMAL(5,2)", row([2**64 - 100_000]), "field d: a decimal of unscaled value -100000, more than 5"),
    ("c INTERVAL", row([word(16, 8)], bytes(16)), "field c: an interval of 8 bytes"),
    ("t TIME", row([86_400_000_000_000]), "field t: 86400000000000 nanoseconds is not a time of day"),
    ("v VARIANT", row([word(16, 3)], bytes(8)), "field v: a variant of 3 bytes"),
    ("v VARIANT", row([word(16, 8)], b"\x05" + bytes(7)), "field v: a variant's value of 5 bytes in 8"),
    ("v VARIANT", row([word(16, 8)], b"\xff" * 8), "field v: a variant's value of -1 bytes in 8"),
    ("t STRUCT<x: INT>", row([word(16, 8)], bytes(8)), "field t: 8 bytes have no room"),
    ("a ARRAY<BIGINT>", row([word(16, 4)], bytes(8)), "field a.element: an array of 4 bytes"),
    (
        "a ARRAY<BIGINT>",
        row([word(16, 24)], array(2, bytes(8))),
        "field a.element: an array of 2 elements in 24",
    ),
    ("a ARRAY<BIGINT>", row([word(16, 24)], array(-1, bytes(8))), "field a.element: an array of -1 elements"),
    (
        "a ARRAY<BIGINT>",
        row([word(16, 24)], array(2**63 - 1, bytes(8))),
        "field a.element: an array of 92233",
    ),
    (
        "a ARRAY<BOOLEAN>",
        row([word(16, 24)], array(2**31, bytes(8))),
        "field a.element: an array of 2147483648",
    ),
    (
        "a ARRAY<STRING>",
        row([word(16, 32)], array(1, struct.pack("<Q", word(24, 9)) + bytes(8))),
        "field a.element: the value's 9 bytes at offset 24 do not lie within the bytes 24 to 32",
    ),
    (
        "a ARRAY<STRING>",
        row([word(16, 40)], array(2, struct.pack("<QQ", word(32, 8), word(32, 8)) + bytes(8))),
        "field a.element: elements of 16 bytes in an array of 40",
    ),
    ("m MAP<INT, INT>", row([word(16, 4)], bytes(8)), "field m: a map of 4 bytes"),
    (
        "m MAP<INT, INT>",
        row([word(16, 16)], struct.pack("<qq", 9, 0)),
        "field m: a map's key array of 9 bytes",
    ),
    ("m MAP<INT, INT>", row([word(16, 16)], struct.pack("<qq", -8, 0)), "field m: a map's key array of -8"),
    (
        "m MAP<INT, INT>",
        row([word(16, 40)], struct.pack("<q", 24) + array(1, bytes(8)) + bytes(8)),
        "field m: a map of 1 keys and 0 values",
    ),
    (
        "m MAP<INT, INT>",
        row([word(16, 56)], struct.pack("<q", 24) + array(1, bytes(8), bits=1) + array(1, bytes(8))),
        "field m: a key of a map is null",
    ),
]


@pytest.mark.parametrize(("ddl", "payload", "message"), DAMAGED, ids=[message for _, _, message in DAMAGED])
def test_the_error_names_row_field_and_fault(ddl: str, payload: bytes, message: str, lay_out: Any) -> None:
    schema = parse_ddl(ddl)
    null = row([0], nulls=1)
    # With the nulls in front, the number of the row differs from the number of the value.
    with pytest.raises(CorruptionError) as caught:
        decode(lay_out([null, null, payload, null]), schema)
    assert str(caught.value).startswith(f"row 2, {message}")


@pytest.mark.parametrize("ddl", FINE)
def test_undamaged_rows_are_decoded(ddl: str, lay_out: Any) -> None:
    assert decode(lay_out([FINE[ddl]]), parse_ddl(ddl)).null_count == 0


def test_errors_in_nested_fields_name_the_row(lay_out: Any) -> None:
    schema = parse_ddl("a ARRAY<STRUCT<s: STRING>>")
    values = [{"a": None}, {"a": [None, {"s": "x"}]}, {"a": [{"s": "y"}, {"s": "\x00bad"}]}]
    payloads = [bytes(v) for v in encode(pa.array(values, arrow_type(schema)), schema).to_arrow().to_pylist()]
    payloads[2] = payloads[2].replace(b"\x00bad", b"\xffbad")
    with pytest.raises(CorruptionError, match=r"row 2, field a\.element\.s: the string is not UTF-8"):
        decode(lay_out(payloads), schema)


def test_null_bits_beyond_the_fields_are_ignored(lay_out: Any) -> None:
    schema = parse_ddl("a BIGINT, b ARRAY<INT>")
    payload = row([7, word(24, 24)], array(1, struct.pack("<ii", 5, 0), bits=2**64 - 2), nulls=2**64 - 4)
    assert decode(lay_out([payload]), schema).to_pylist() == [{"a": 7, "b": [5]}]


def test_every_byte_except_zero_is_true(lay_out: Any) -> None:
    assert decode_column(lay_out([row([2]), row([256])]), parse_ddl("a BOOLEAN"), [0]).to_pylist() == [True, False]


def test_a_null_in_a_field_that_is_not_nullable_is_read_as_null(lay_out: Any) -> None:
    assert decode(lay_out([row([0], nulls=1)]), parse_ddl("a BIGINT NOT NULL")).to_pylist() == [{"a": None}]


@pytest.mark.parametrize("ddl", ["a ARRAY<STRING>", "a ARRAY<ARRAY<STRING>>", "a ARRAY<BINARY>"])
def test_elements_that_all_claim_the_whole_array_allocate_nothing(ddl: str, lay_out: Any) -> None:
    count = 20_000
    header = 8 + (count + 63) // 64 * 8
    size = header + 8 * count + 80_000
    words = np.full(count, word(header + 8 * count, 80_000), "<u8").tobytes()
    body = struct.pack("<q", count) + bytes(header - 8) + words + bytes(80_000)
    rows = lay_out([row([word(16, size)], body)])
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    message = r"row 0, field a\.element: elements of 1600000000 bytes"
    with pytest.raises(CorruptionError, match=message):  # the first call imports what it needs
        decode(rows, parse_ddl(ddl))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError, match=message):
            decode(rows, parse_ddl(ddl))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50 * size
    assert pool.bytes_allocated() - before < size
