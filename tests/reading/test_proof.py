"""State of a provider that is not Spark's own: read if every file proves to have a known layout, and never changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options

from ttlsnap import export, inspect
from ttlsnap.contract import contract_of_checkpoint
from ttlsnap.errors import UnsupportedError
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores.rocksdb.archive import write
from ttlsnap.stores.rocksdb.database import assemble, database, settings_of

from ..cli.running import Ttlsnap
from ..damage import wreck
from ..judge.queries import Event, Query
from ..judge.spark import Judge
from ..matrix import narrow, rotating
from ..publishing.trees import tree
from ..samples import SAMPLES, sample
from ..stores.zips import edit_zip
from .export_tables import rows_in

DATABRICKS, OWN = "com.databricks.sql.streaming.state.RocksDBStateStoreProvider", "com.example.state.Provider"
PINNED = 'providerClass":"'
T = 1_700_006_400
BATCHES = [[Event(f"k{row % 17}", T + 60 * row, row) for row in range(start, start + 40)] for start in (0, 40)]


def renamed(folder: Path, name: str = OWN) -> Path:
    """Give all batches of a checkpoint another provider."""
    for path in sorted((folder / "offsets").glob("[0-9]*")):
        before, _, rest = path.read_text().partition(PINNED)
        path.write_text(before + PINNED + name + rest[rest.index('"') :])
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return folder


def facts(target: Path) -> Any:
    """Return what ``inspect`` says of the entries."""
    found = inspect(str(target), entries=3, sizes=True, sample=None).to_json()
    for operator in found["operators"]:
        del operator["provider"]
    return {name: found[name] for name in ("operators", "entries")}, [
        (state["state"], state["entries"], state["bytes"]) for state in found["sizes"]["states"]
    ]


QUERIES = [
    Query("agg_update", provider=OWN),
    Query("join", provider=OWN),
    Query("agg_update", provider=DATABRICKS),
    Query("sessions", provider=DATABRICKS, changelog=True),
    Query("join", provider=DATABRICKS),
]


@pytest.mark.parametrize(
    "query", narrow(QUERIES, 1, 2), ids=lambda query: f"{query.operator}-{query.provider.split('.')[1]}"
)
def test_state_of_a_subclass_is_read_and_not_changed(
    inputs: Judge, ttlsnap: Ttlsnap, tmp_path: Path, query: Query
) -> None:
    provider = query.provider
    known = {DATABRICKS: "rocksdb", OWN: "hdfs"}[provider]
    layout = "deltas" if known == "hdfs" or query.changelog else "snapshot"
    target, twin = (
        inputs.write(written, BATCHES, layout=layout).path for written in (query, replace(query, provider=known))
    )
    before = tree(target)
    for folder, name in ((target, "subclass"), (twin, "own")):
        export(str(folder), str(tmp_path / name))
    tables = sorted(path.name for path in (tmp_path / "own").iterdir())
    assert tables == sorted(path.name for path in (tmp_path / "subclass").iterdir())
    for table in tables:
        rows = [sorted(map(str, rows_in(tmp_path / name / table))) for name in ("subclass", "own")]
        assert rows[0] == rows[1] != []
    described, wanted = contract_of_checkpoint(str(target)), contract_of_checkpoint(str(twin))
    assert (described.provider, wanted.provider) == (provider, known)
    assert described.operators == wanted.operators
    assert ttlsnap("check", target, target).code == 0
    shown = ttlsnap("inspect", target, "--entries", 1).out
    assert f"provider {provider}, layout {known} as proven by all files" in " ".join(shown.split())
    assert "ttlsnap compact" not in shown
    for command in (
        ("compact", target, "--ttl", "1d", "--timestamp", "@written"),
        ("compact", target, "--ttl", "1d", "--timestamp", "@written", "--dry-run"),
        ("compact", target, "--ttl", "1d", "--timestamp", "@written", "--output", tmp_path / "copy"),
        ("migrate", target, "--partitions", 3),
        ("migrate", target, "--provider", "hdfs" if known == "rocksdb" else "rocksdb", "--output", tmp_path / "copy"),
        ("import", target, "--from", tmp_path / "own"),
    ):
        refused = ttlsnap(*command)
        assert refused.code == 3, (command, refused)
        assert f"the state store provider {provider} is not one of Spark's own" in " ".join(refused.err.split())
    assert tree(target) == before
    assert not (tmp_path / "copy").exists()


def test_doctor_repairs_nothing(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = renamed(sample("agg-deltas-lz4-4.2", tmp_path))
    (target / "offsets/7").write_bytes(b"")  # after a crash of the machine
    before = tree(target)
    found = json.loads(ttlsnap("doctor", target, "--format", "json").out)
    assert "torn-offset" in [problem["code"] for problem in found["problems"] if problem["fixable"]]
    refused = ttlsnap("doctor", target, "--fix", "torn-offset", "--stopped")
    assert (refused.code, f"provider {OWN} is not one of" in " ".join(refused.err.split())) == (3, True), refused
    assert tree(target) == before


PROVABLE = sorted(
    path.name
    for path in SAMPLES.iterdir()
    if path.is_dir() and path.name not in ("no-schema-3.0", "slow-4.2", "slow-rocksdb-4.2", "__pycache__")
)


@pytest.mark.parametrize("name", rotating(PROVABLE, 10, "proofs"))
def test_every_sample_proves_its_layout(tmp_path: Path, name: str) -> None:
    target = sample(name, tmp_path)
    wanted = facts(target)
    assert facts(renamed(target)) == wanted


def test_files_of_a_batch_in_progress_are_known(tmp_path: Path) -> None:
    """A query that crashed in batch 7 left a delta, and files that it had not renamed yet."""
    target = renamed(sample(LZ4, tmp_path))
    wanted = facts(target)
    shutil.copy(target / "offsets/6", target / "offsets/7")
    unfinished = "bcf04a89-7b03-4c2c-b33e-12a883531680"
    for path in ("0/0/8.delta", f"0/1/.8.delta.{unfinished}.TID12.tmp", f"0/_metadata/v2/.7.{unfinished}.tmp"):
        put(f"state/{path}")(target)
    assert facts(target) == wanted


def swap_partitions(target: Path) -> None:
    for source, new in (("0", "x"), ("1", "0"), ("x", "1")):
        (target / "state/0" / source).rename(target / "state/0" / new)
    for schema in (target / "state/0/1").glob("_metadata"):
        shutil.move(schema, target / "state/0/0/_metadata")


def put(path: str) -> Callable[[Path], None]:
    def do(target: Path) -> None:
        (target / path).parent.mkdir(exist_ok=True, parents=True)
        (target / path).write_bytes(b"more of the state")

    return do


def count(change: Callable[[int], int]) -> Callable[[Path], None]:
    """Return a function that changes the number of entries in the metadata of all zips."""

    def do(target: Path) -> None:
        wreck.forget_checksums(target)
        for path in target.glob("state/0/*/*.zip"):
            edit_metadata(path, lambda document: document.update(numKeys=change(document["numKeys"])))

    return do


def edit_metadata(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    def edit(members: dict[str, bytes]) -> None:
        version, _, body = members["metadata"].partition(b"\n")
        document = json.loads(body)
        change(document)
        members["metadata"] = version + b"\n" + json.dumps(document).encode()

    edit_zip(path, edit)


def schema(old: str, new: str) -> Callable[[Path], None]:
    """Return a function that changes a type in the recorded schema."""

    def do(target: Path) -> None:
        for path in target.glob("state/0/0/_metadata/schema"):
            assert len(old) == len(new)
            wreck.edit(wreck.forget_checksums(target) / path.relative_to(target), old, new)

    return do


def conf(old: str, new: str) -> Callable[[Path], None]:
    return lambda target: wreck.edit_offsets(target, old, new)


def add_column_family(target: Path) -> None:
    """Add a column family to the database of a partition. Spark has only the default one, and names its own in keys."""
    zipped, shared = wreck.forget_checksums(target) / "state/0/0/2.zip", target / "state/0/0/SSTs"
    folder = target.with_name("database")
    folder.mkdir()
    metadata = assemble(LocalDirectory(str(target)), "state/0/0/2.zip", folder, b",")
    with database(folder, settings_of(folder), "", new=False) as opened:
        family = opened.create_column_family("vendor", Options(raw_mode=True))
        family[b"key"] = b"value"
        family.flush()
        del family
    (table,) = (path for path in folder.glob("*.sst") if path.name not in metadata.tables)
    stored = f"{table.stem}-0e0deba7-de62-4a9a-b152-5d75050d2040.sst"
    shutil.copy(table, shared / stored)
    entry = {"localFileName": table.name, "dfsSstFileName": stored, "sizeBytes": table.stat().st_size}
    document = {**metadata.document, "sstFiles": [*metadata.document["sstFiles"], entry]}
    names = [path.name for kind in ("MANIFEST-*", "CURRENT", "OPTIONS-*") for path in sorted(folder.glob(kind))[-1:]]
    write(zipped, folder, names, document, metadata.version)


LZ4, ROCKSDB = "agg-deltas-lz4-4.2", "rocksdb-4.2"
OTHERS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "an unknown file": (LZ4, put("state/0/1/7.index"), "state/0/1/7.index is not a file that Spark writes"),
    "a file with more in its name": (LZ4, put("state/0/1/7.delta.2"), "7.delta.2 is not a file that Spark writes"),
    "an unknown folder": (ROCKSDB, put("state/0/1/blobs/1.sst"), "state/0/1/blobs/1.sst is not a file"),
    "an unknown table": (ROCKSDB, put("state/0/1/SSTs/1.blob"), "state/0/1/SSTs/1.blob is not a file"),
    "an unknown operator": (ROCKSDB, put("state/shared/1.sst"), "state/shared/1.sst is not a file"),
    "a folder in the metadata": (LZ4, put("state/0/_metadata/x/blob"), "state/0/_metadata/x/blob is not a file"),
    "an unknown file of the metadata": (LZ4, put("state/0/_metadata/v2/blob"), "_metadata/v2/blob is not a file"),
    "an unknown schema": (LZ4, put("state/0/_stateSchema/default/blob"), "_stateSchema/default/blob is not a file"),
    "a schema of no store": (
        ROCKSDB,
        put("state/0/_stateSchema/x/0_bcf04a89-7b03-4c2c-b33e-12a883531680"),
        "_stateSchema/x/0_bcf04a89-7b03-4c2c-b33e-12a883531680 is not a file",
    ),
    "an unknown file beside a schema": (LZ4, put("state/0/0/_metadata/blob"), "state/0/0/_metadata/blob is not a file"),
    "a later delta": (LZ4, put("state/0/0/99.delta"), "state/0/0/99.delta belongs to a batch after 6"),
    "a later zip": (ROCKSDB, put("state/0/0/99.zip"), "state/0/0/99.zip belongs to a batch after 1"),
    "later metadata": (LZ4, put("state/0/_metadata/v2/99"), "state/0/_metadata/v2/99 belongs to a batch after"),
    "files of both layouts": (ROCKSDB, put("state/0/1/1.delta"), "has files of both (delta, zip)"),
    "keys in other partitions": (LZ4, swap_partitions, "keys are not in the partition that Spark's hash gives"),
    "keys in other partitions of RocksDB": (ROCKSDB, swap_partitions, "are not in the partition"),
    "no number of entries": (ROCKSDB, count(lambda number: -1), "does not record the number of its entries"),
    "more entries": (ROCKSDB, count(lambda number: number - 1), "entries were found; its metadata says"),
    "other rows": (LZ4, schema('"timestamp"', '"binary"   '), "does not fit its schema"),
    "another codec": (LZ4, conf('codec":"lz4"', 'codec":"lzo"'), "codec 'lzo' is unknown"),
    "a column family of RocksDB's own": (ROCKSDB, add_column_family, "Column families not opened: vendor"),
    "row checksums": (ROCKSDB, conf('rowChecksum.enabled":"false"', 'rowChecksum.enabled":"true"'), "checksums"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_layout_is_refused(ttlsnap: Ttlsnap, tmp_path: Path, case: str) -> None:
    name, change, words = OTHERS[case]
    target = renamed(sample(name, tmp_path))
    change(target)
    for command in (
        ("inspect", target, "--entries", 1),
        ("export", target, "--to", tmp_path / "out"),
        ("contract", target),
        ("check", target, target),
    ):
        refused = ttlsnap(*command)
        assert refused.code == 3, (command, refused)
        told = " ".join(refused.err.split())
        assert f"the state store provider {OWN} is not one of Spark's own, and its files do not prove" in told
        assert words in told
    assert not (tmp_path / "out").exists()


def test_entries_that_the_checkpoint_does_not_describe_are_refused(tmp_path: Path) -> None:
    target = renamed(sample("lists-4.2", tmp_path))
    for path in wreck.forget_checksums(target).glob("state/0/*/*.zip"):

        def rename(document: dict[str, Any]) -> None:
            families = document["columnFamilyMapping"]
            families["hidden"] = families.pop(next(name for name in sorted(families) if not name.startswith("$")))

        edit_metadata(path, rename)
    with pytest.raises(UnsupportedError, match="has entries of the state hidden, whose rows ttlsnap cannot read"):
        inspect(str(target), entries=1)


def test_a_checkpoint_without_a_schema_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="records no schema of store default"):
        inspect(str(renamed(sample("no-schema-3.0", tmp_path))), entries=1)
