"""``docs/json.md`` has every key of the documents that the commands print, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import Replace
from ttlsnap.cli.app import run

from ..samples import SAMPLES, sample

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
# The samples have no Delta table, and no policy of incremental cleanup.
ELSEWHERE = {
    "visited", "overtaken", "logically_gone", "physically_gone_by", "erased", "purged", "retention_ms", "left",
    "versions", "files", "opened", "decided", "all", "partition_columns", "protocol", "reader", "writer", "features",
    "deleted_rows_in_files", "undoes", "written_before", "written_before_history", "runs", "version",
}  # fmt: skip
# Of these, Spark decides on the keys; the last one maps the columns of an entry.
FOREIGN = {
    "new_value", "key_schema", "value_schema", "key", "value", "settings", "session_settings", "old", "new", "sources",
}  # fmt: skip
RULE = ["--ttl", "7d", "--timestamp", "value.max", "--now", "2026-11-21T09:00:00Z"]
LOCAL = ["--engine", "local"]
POLICY = '[[target]]\npath = "hdfs"\n[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\n'


def same(key: dict[str, Any], value: dict[str, Any]) -> Replace:
    """Rewrite every value as it is."""
    return Replace(value)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the keys of the documents of each command, on an HDFS-backed and on a RocksDB sample."""
    folder = tmp_path_factory.mktemp("json")
    for name, link in (("agg-deltas-lz4-4.2", "hdfs"), ("rocksdb-4.2", "rocksdb")):
        sample(name, folder).rename(folder / link)
    (folder / "policy.toml").write_text(POLICY)
    hdfs, rocksdb = str(folder / "hdfs"), str(folder / "rocksdb")
    commands = [
        ["inspect", hdfs, "--entries", "1", "--age", "--timestamp", "value.max"],
        ["inspect", rocksdb, "--sizes", "--ttl", "7d", "--timestamp", "value.max"],
        ["inspect", str(folder)],
        ["inspect", str(SAMPLES / "removed-4.2")],
        ["compact", rocksdb, *RULE, "--dry-run", *LOCAL],
        ["migrate", rocksdb, "--partitions", "3", "--dry-run", *RULE, *LOCAL],
        ["maintain", str(folder / "policy.toml"), "--plan", *LOCAL],
        ["compact", hdfs, *RULE, "--yes", "--stopped", "--show", "1", *LOCAL],
        ["export", hdfs, "--to", str(folder / "exported")],
        ["import", hdfs, "--from", str(folder / "exported"), "--mode", "replace", "--dry-run"],
        ["diff", hdfs, "--old-batch", "3"],
        ["explain", rocksdb, "--key", "{}", *RULE, "--transformer", "tests.docs.test_json:same"],
        ["doctor", hdfs],
        ["history", hdfs],
        ["rollback", hdfs, "--stopped"],
        ["recover", hdfs],
        ["transformers"],
    ]
    found: dict[str, list[str]] = {}
    with pytest.MonkeyPatch.context() as patch:
        for command in commands:
            printed: list[str] = []
            patch.setattr("sys.stdout.write", printed.append)
            assert run([*command, "--format", "json"]) in (0, 1)
            found.setdefault(command[0], []).extend(_keys(json.loads("".join(printed))))
    return found


def _keys(document: Any) -> Iterator[str]:
    if isinstance(document, list):
        for item in document:
            yield from _keys(item)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key not in FOREIGN:
                yield from _keys(value)


def test_every_key_is_documented(documents: dict[str, list[str]]) -> None:
    words = set(re.findall(r"`([a-z0-9_]+)`", PAGE))
    for command, keys in documents.items():
        assert set(keys) <= words, command


def test_every_documented_key_exists(documents: dict[str, list[str]]) -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.M)
    documented = {word for row in rows for word in re.findall(r"`([a-z0-9_]+)`", row)}
    printed = {key for keys in documents.values() for key in keys}
    assert documented - printed <= ELSEWHERE
    assert not ELSEWHERE & printed - {"versions", "version", "runs", "files"}
