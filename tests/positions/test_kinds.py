"""The kind of a source, and what its offset means. The offsets are as Spark and the connectors write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ttlsnap.checkpoint.logs import parse_offset
from ttlsnap.positions.kinds import describe, find_kind

DELTA = {"sourceVersion": 1, "reservoirId": "3bffe7c2", "reservoirVersion": 4, "index": 8, "isStartingVersion": False}
KNOWN = [
    ('{"logOffset":12}', "files", ["entry 12 of its log"]),
    ('{"visits":{"1":4,"0":17}}', "kafka", ["visits: next offset 17 of partition 0, 4 of partition 1"]),
    (
        '{"a":{"0":1},"b":{"0":2}}',
        "kafka",
        ["a: next offset 1 of partition 0", "b: next offset 2 of partition 0"],
    ),
    (
        json.dumps({"many": {str(number): 100 - number for number in range(12)}}),
        "kafka",
        ["many: 12 partitions, next offsets from 89 to 100"],
    ),
    (json.dumps(DELTA), "delta", ["version 4: 9 files are read", "table id 3bffe7c2"]),
    (
        json.dumps(DELTA | {"index": -1}),
        "delta",
        ["version 4: nothing of it is read yet", "table id 3bffe7c2"],
    ),
    (
        json.dumps(DELTA | {"sourceVersion": 3, "index": -20}),
        "delta",
        ["version 4: it changes the schema of the table", "table id 3bffe7c2"],
    ),
    (
        json.dumps(DELTA | {"index": 0, "isStartingVersion": True}),
        "delta",
        ["the whole table as of version 4: 1 file is read", "table id 3bffe7c2"],
    ),
    (
        '{"metadata":{"batchId":"0","streamName":"music"},'
        '"shardId-000000000000":{"iteratorType":"TRIM_HORIZON","iteratorPosition":""},'
        '"shardId-000000000001":{"iteratorType":"AFTER_SEQUENCE_NUMBER","iteratorPosition":"4963"}}',
        "kinesis",
        ["music, shardId-000000000000: TRIM_HORIZON", "music, shardId-000000000001: AFTER_SEQUENCE_NUMBER 4963"],
    ),
    (
        '{"version":1,"snapshot_id":5179299526185056830,"position":2,"scan_all_files":false}',
        "iceberg",
        ["snapshot 5179299526185056830: position 2 of its files"],
    ),
    (
        '{"version":1,"snapshot_id":64,"index":1,"scan_all_files":true,"snapshot_fully_processed":false}',
        "iceberg",
        ["the whole table as of snapshot 64: position 1 of its files"],
    ),
    (
        '{"persistent://public/default/visits":[8,16,-1]}',
        "pulsar",
        ["persistent://public/default/visits: message 0810ff"],
    ),
    ('{"offset":20,"timestamp":2000}', "rate-micro-batch", ["20 rows until 1970-01-01T00:00:02.000Z"]),
    ("17", "number", ["17"]),
]
UNKNOWN: list[Any] = [
    None,
    "text",
    True,
    1.5,
    [],
    {},
    {"logOffset": "5"},
    {"logOffset": True},
    {"topic": {}},
    {"topic": {"x": 1}},
    {"topic": {"0": None}},
    {"topic": {"01": 1}},
    {"topic": {"9" * 5000: 1}},
    {"offset": 1, "timestamp": None},
    DELTA | {"index": None},
    {"metadata": {"streamName": "music"}, "shardId-0": 5},
]


@pytest.mark.parametrize(("offset", "kind", "lines"), KNOWN, ids=[offset[:30] for offset, _, _ in KNOWN])
def test_a_known_offset_is_described(offset: str, kind: str, lines: list[str]) -> None:
    position = json.loads(offset)
    assert find_kind(position) == kind
    assert describe(position) == lines


@pytest.mark.parametrize("position", UNKNOWN, ids=[repr(position)[:40] for position in UNKNOWN])
def test_any_other_offset_is_of_an_unknown_kind(position: Any) -> None:
    assert find_kind(position) == "other"
    assert describe(position) == []


def test_an_offset_that_is_very_long_stays_a_text() -> None:
    text = f"[{'1,' * 2_100_000}1]"
    assert parse_offset(text) is text
    assert parse_offset("[1,1]") == [1, 1]
