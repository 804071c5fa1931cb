"""Messages quote damaged text, but shorten a very long one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..samples import sample
from . import wreck
from .conftest import Ttlsnap

LZ4, CHANGELOGS, VISITS = "agg-deltas-lz4-4.2", "rocksdb-changelog-3.5", "visits-4.2"
LONG = "x" * 600_000
TEXT = json.dumps(LONG)
MOST = 4000  # characters of a message
METADATA = "state/0/_metadata/metadata"
EDITS = {
    "a text for a number": (LZ4, METADATA, '"numPartitions":2', f'"numPartitions":{TEXT}'),
    "a text for a list": (LZ4, METADATA, '"stateStoreInfo":[', f'"stateStoreInfo":{TEXT},"x":['),
    "a store's name": (LZ4, METADATA, '"storeName":"default"', f'"storeName":"/{LONG}"'),
    "a number of digits": (LZ4, METADATA, '"numColsPrefixKey":0', f'"numColsPrefixKey":{"9" * 4000}'),
    "a pinned setting": (LZ4, "offsets/6", 'codec":"lz4"', f'codec":{TEXT}'),
    "a pinned partition count": (LZ4, "offsets/6", 'shuffle.partitions":"2"', f'shuffle.partitions":"{"9" * 9000}"'),
    "a log version": (LZ4, "offsets/6", "v1", LONG),
    "an id of the query": (LZ4, "metadata", '"id":"', f'"id":{{{TEXT}:1}},"x":"'),
    "ids of files": (LZ4, "commits/6", '"nextBatch', f'"stateUniqueIds":{{{TEXT}:[["a"]]}},"nextBatch'),
    "an id of a file": (LZ4, "commits/6", '"nextBatch', f'"stateUniqueIds":{{"0":[[{TEXT}]]}},"nextBatch'),
    "a schema file": (VISITS, "state/0/_metadata/v2/0", "/state/0/_stateSchema", f"/{LONG}/_stateSchema"),
}


@pytest.mark.parametrize("case", EDITS)
def test_a_message_does_not_repeat_a_long_text(
    ttlsnap: Ttlsnap, capsys: pytest.CaptureFixture[str], tmp_path: Path, case: str
) -> None:
    name, file, old, new = EDITS[case]
    target = sample(name, tmp_path)
    wreck.edit(target / file, old, new)
    for command in (("inspect",), ("compact", *wreck.compacting(name)), ("contract",), ("check", target)):
        outcome = ttlsnap(command[0], target, *command[1:])
        assert len(outcome.err) < MOST + 500, command
        assert file.split("/")[0] in outcome.err or outcome.code == 0, command
    assert run(["doctor", str(target), "--format", "json"]) in (0, 1, 3)
    told = json.loads(capsys.readouterr().out)
    assert all(len(problem["message"]) < MOST for problem in told["problems"])


@pytest.mark.parametrize("part", ["status", "moves", "report"])
def test_a_message_does_not_repeat_a_long_text_from_a_journal(ttlsnap: Ttlsnap, tmp_path: Path, part: str) -> None:
    target = sample(LZ4, tmp_path)
    assert ttlsnap("compact", target, *wreck.compacting(LZ4)).code == 0
    (journal,) = target.glob("_ttlsnap/runs/*/journal.json")
    document = json.loads(journal.read_text())
    if part == "report":
        journal.with_name("report.json").write_text(json.dumps({LONG: LONG}))
    else:
        document[part] = LONG if part == "status" else [{"source": LONG, "target": LONG}]
        journal.write_text(json.dumps(document))
    for command in ("history", "rollback", "recover", "inspect"):
        assert len(ttlsnap(command, target).err) < MOST + 500
