"""The JSON documents of all commands, from copies of the samples. Fixed values replace those that differ each time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ttlsnap import Replace
from ttlsnap.cli.app import run

from ..judge.inputs import take_home
from ..samples import sample

STORED = Path(__file__).with_name("documents.json")
"""The documents as they were when they were stored. ``TTLSNAP_STORE=1`` stores them again."""

RULE = ["--ttl", "7d", "--timestamp", "value.max", "--now", "2026-11-21T09:00:00Z"]
LOCAL = ["--engine", "local"]
_POLICIES = {
    "policy": '[[target]]\npath = "hdfs"\n[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\n'
    '[target.backup]\nto = "backups/{batch}"\n',
    "several": """
[[target]]
path = "slow"
[[target.rule]]
ttl = "7d"
timestamp = "value.max"
strategy = "incremental"
max_partitions = 1

[[target]]
path = "rocksdb"
partitions = 3

[[target]]
path = "missing"
""",
}
_RUN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}")
_EACH_TIME = {"ttlsnap": "VERSION", "seconds": 0, "bytes_after": 0, "fingerprint": "DIGEST"}
_OF_NEW_FILES: dict[str, Any] = {"bytes": 0, "batch_timestamp_ms": 0}
_MORE: dict[str, dict[str, Any]] = {
    "inspect a table": _OF_NEW_FILES,
    "compact a table": _OF_NEW_FILES,
    "migrate": _OF_NEW_FILES,
    "migrate unused variables": _OF_NEW_FILES,
    "maintain": _OF_NEW_FILES,
    "maintain several": _OF_NEW_FILES,
    "history of backups": {**_OF_NEW_FILES, "made_at": "TIME"},
    "inspect growth": {"at": "TIME"},
    "journals": {"size": 0, "mtime_ns": 0, "digest": "DIGEST"},
}
"""The values, by their keys, that differ each time only in these documents."""


def same(key: dict[str, Any], value: dict[str, Any]) -> Replace:
    """Rewrite every value as it is."""
    return Replace(value)


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the command of each document, in the order in which they run, after making their targets in ``folder``."""
    samples = {
        "hdfs": "agg-deltas-lz4-4.2",
        "rocksdb": "rocksdb-4.2",
        "join": "join-4.2",
        "lists": "lists-4.2",
        "slow": "agg-snapshot-zstd-4.1",
        "damaged": "agg-rowchecksum-deletes-4.2",
    }
    for name, source in samples.items():
        take_home(sample(source, folder).rename(folder / name))
    for name, text in _POLICIES.items():
        (folder / f"{name}.toml").write_text(text)
    (folder / "damaged/state/0/0/5.delta").write_bytes(b"x")
    times = pa.array([datetime(2026, month, 1, tzinfo=UTC) for month in (1, 10, 11)], pa.timestamp("us", "UTC"))
    write_deltalake(folder / "table", pa.table({"user": ["user-a", "user-b", "user-c"], "at": times}))
    wide = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC")), ("visits", pa.int64())])
    write_deltalake(folder / "wide", wide.empty_table())
    sample("removed-4.2", folder)
    hdfs, rocksdb, join, lists, damaged, removed, table, wider, missing, exported = (
        str(folder / name)
        for name in (
            "hdfs",
            "rocksdb",
            "join",
            "lists",
            "damaged",
            "removed-4.2",
            "table",
            "wide",
            "missing",
            "exported",
        )
    )
    of_table = ["--key", "user", "--ttl", "30d", "--timestamp", "at", "--now", "2026-11-21T09:00:00Z"]
    of_writing = ["--ttl", "1ms", "--timestamp", "@written"]
    same_values = ["--transformer", "tests.docs.documents:same"]
    return {
        "inspect": ["inspect", hdfs, "--entries", "1", "--age", "--timestamp", "value.max"],
        "inspect sizes": ["inspect", rocksdb, "--sizes", "--ttl", "7d", "--timestamp", "value.max"],
        "inspect sizes of a sample": ["inspect", hdfs, "--sizes", "--sample", "1KB"],
        "inspect sizes of lists": ["inspect", lists, "--sizes"],
        "inspect times of writing": ["inspect", rocksdb, "--age", "--timestamp", "@written"],
        "inspect a folder": ["inspect", str(folder)],
        "inspect unused variables": ["inspect", removed],
        "inspect a table": ["inspect", table, "--entries", "1", "--age", *of_table[4:]],
        "contract": ["contract", hdfs],
        "contract of unused variables": ["contract", removed],
        "contract of a table": ["contract", table],
        "check": ["check", hdfs, rocksdb],
        "check without an answer": ["check", hdfs, join],
        "check tables": ["check", table, wider],
        "compact several": ["compact", rocksdb, join, missing, *RULE, "--dry-run", *LOCAL],
        "compact times of writing": ["compact", rocksdb, *of_writing, "--dry-run", *LOCAL],
        "compact a table": ["compact", table, *of_table, "--dry-run"],
        "migrate": ["migrate", rocksdb, "--partitions", "3", "--dry-run", *RULE, *LOCAL],
        "migrate unused variables": ["migrate", removed, "--drop", "recent", "--dry-run", *LOCAL],
        "migrate a table": ["migrate", table, "--to", wider, "--dry-run"],
        "maintain": ["maintain", str(folder / "policy.toml"), "--plan", *LOCAL],
        "maintain several": ["maintain", str(folder / "several.toml"), "--plan", *LOCAL],
        "compact": ["compact", hdfs, *RULE, "--yes", "--stopped", "--show", "1", *LOCAL],
        "inspect growth": ["inspect", hdfs, "--sizes"],
        "copy": ["copy", rocksdb, str(folder / "copied"), "--verify"],
        "sources": ["sources", hdfs],
        "sources that are set": ["sources", hdfs, "--set", "0", "--to", '{"logOffset":2}', "--dry-run"],
        "sources whose files are forgotten": ["sources", hdfs, "--forget", "0", "--files", "/tmp/**", "--dry-run"],
        "sources that list files": ["sources", hdfs, "--recorded", "0"],
        "sources with names": ["sources", hdfs, "--rename", "0=visits", "--dry-run"],
        "rewind": ["rewind", hdfs, "--batch", "4", "--dry-run"],
        "rewind without a batch": ["rewind", hdfs],
        "history of backups": ["history", rocksdb, "--backups", str(folder)],
        "export": ["export", hdfs, "--to", exported],
        "import": ["import", hdfs, "--from", exported, "--mode", "replace", "--dry-run", *LOCAL],
        "diff": ["diff", hdfs, "--old-batch", "3"],
        "diff of two": ["diff", hdfs, join],
        "explain": ["explain", rocksdb, "--key", "{}", *RULE, *same_values],
        "doctor": ["doctor", hdfs],
        "doctor of damage": ["doctor", damaged],
        "history": ["history", hdfs],
        "history of a table": ["history", table],
        "history before a removal": ["history", hdfs, "--prune", "--dry-run"],
        "rollback": ["rollback", hdfs, "--stopped"],
        "history after a rollback": ["history", hdfs],
        "history after a removal": ["history", hdfs, "--prune", "--yes"],
        "recover": ["recover", hdfs],
        "transformers": ["transformers"],
    }


def make_documents(folder: Path) -> dict[str, Any]:
    """Return the documents by their names, and the journals. Targets and results are in ``folder``, which is empty."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, command in commands(folder).items():
            printed: list[str] = []
            patch.setattr("sys.stdout.write", printed.append)
            code = run([*command, *([] if command[0] == "contract" else ["--format", "json"])])
            assert printed, (name, code)
            found[name] = json.loads("".join(printed))
    journals = [json.loads(path.read_text()) for path in (folder / "hdfs/_ttlsnap/runs").glob("*/journal.json")]
    found["journals"] = sorted(journals, key=lambda journal: int(journal["number"]))
    return {name: with_fixed(document, str(folder), _MORE.get(name)) for name, document in found.items()}


def with_fixed(document: Any, folder: str, more: Mapping[str, Any] | None = None) -> Any:
    """Return a document with fixed values in place of those that differ each time, and of ``more``, by their keys."""
    fixed = {**_EACH_TIME, **(more or {})}

    def fix(value: Any) -> Any:
        match value:
            case str():
                return _RUN.sub("RUN", value.replace(folder, "FOLDER"))
            case list():
                return [fix(item) for item in value]
            case dict():
                known = {name for name in fixed if value.get(name) is not None}
                return {name: fixed[name] if name in known else fix(inner) for name, inner in value.items()}
        return value

    return fix(document)


def as_text(document: Any) -> str:
    """Return a document as text, in which the order of keys counts."""
    return json.dumps(document, indent=1, ensure_ascii=False)
