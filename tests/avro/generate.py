"""A program that regenerates the samples: states that real Spark wrote in Avro, and their expected content.

    TTLSNAP_VENVS=... python tests/avro/generate.py [VERSION...]

It needs what the wide tests need (``make venvs``). Each version of Spark has a file in ``samples``. Every query runs
twice: once with ``encodingFormat`` unsaferow and once with avro. The second run begins with the batch that the first
one logged. So both have the same moment in processing time, and their states differ only in their encoding. A query
whose schema evolves cannot be written with unsaferow. There, Spark's own reader gives the expected content.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# At the end of the path, where it hides no other package.
sys.path.append(str(ROOT))

from tests.judge.processes import NEWEST, interpreter  # noqa: E402  (needs the path above)
from ttlsnap.checkpoint import open_checkpoint  # noqa: E402
from ttlsnap.checkpoint.metadata import read_operator_metadata  # noqa: E402
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema, read_state_schema  # noqa: E402
from ttlsnap.schema.json import to_value  # noqa: E402
from ttlsnap.storage.open import open_directory  # noqa: E402
from ttlsnap.stores.open import lineage_of, open_state_store  # noqa: E402

VERSIONS = ("4.0", "4.1", "4.2")
_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
Entry = tuple[str, str, str]


@dataclass(frozen=True)
class Written:
    """The state of a query after a batch: its entries in hexadecimal, and the schemas of each state, oldest first."""

    entries: list[Entry]
    schemas: dict[str, list[ColumnFamilySchema]]


def main(versions: list[str]) -> None:
    """Write the samples of these versions, or of all."""
    work = Path(tempfile.gettempdir()) / "ttlsnap-avro-samples"
    for version in versions or VERSIONS:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        states = [state for query in ("values", "keys", "timers") for state in twins(work, version, query)]
        states += evolved(work, version)
        path = HERE / "samples" / f"{version}.json.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(json.dumps(states, ensure_ascii=False).encode(), mtime=0))
        print(f"{path.name}: {len(states)} states, {path.stat().st_size:,} bytes")
    shutil.rmtree(work, ignore_errors=True)


def twins(work: Path, version: str, query: str) -> list[dict[str, Any]]:
    """Return the states of a query after its first batch, in both encodings."""
    plain, avro = work / f"{query}-unsaferow", work / f"{query}-avro"
    run(version, query=query, stage=0, checkpoint=str(plain), source=str(work / query), encoding="unsaferow")
    begin_like(plain, avro)
    run(version, query=query, stage=0, checkpoint=str(avro), source=str(work / query), encoding="avro")
    batch = 0 if query == "values" else None
    ours, theirs = read(avro, batch), read(plain, batch)
    return [
        state(query, name, ours, unsaferow=[entry[1:] for entry in theirs.entries if entry[0] == name])
        for name in sorted(ours.schemas)
    ]


def evolved(work: Path, version: str) -> list[dict[str, Any]]:
    """Return the states of a query whose schema changed twice, with the entries that Spark's reader shows."""
    checkpoint = work / "evolving-avro"
    for stage in range(3):
        run(
            version,
            query="evolving",
            stage=stage,
            checkpoint=str(checkpoint),
            source=str(work / "evolving"),
            encoding="avro",
        )
    shown = work / "shown.json"
    run(version, query="show", stage=2, checkpoint=str(checkpoint), source=str(shown), encoding="avro")
    said = json.loads(shown.read_text())
    found = read(checkpoint, None)
    return [state("evolving", name, found, spark=said.get(name)) for name in sorted(found.schemas)]


def state(query: str, name: str, written: Written, **twin: Any) -> dict[str, Any]:
    """Return the sample of one state."""
    versions = written.schemas[name]
    return {
        "query": query,
        "state": name,
        "encoder": versions[-1].key_encoder,
        "key_schema": to_value(versions[-1].key),
        "value_schemas": {str(each.value_id): to_value(each.value) for each in versions},
        "avro": [entry[1:] for entry in written.entries if entry[0] == name],
        **twin,
    }


def begin_like(old: Path, new: Path) -> None:
    """Make a checkpoint whose first batch begins as in the ``old`` one, but in Avro."""
    new.mkdir()
    shutil.copy(old / "metadata", new / "metadata")
    for log in ("sources", "offsets"):
        shutil.copytree(old / log, new / log, ignore=shutil.ignore_patterns(".*", "[1-9]*"))
    head, facts, *offsets = (new / "offsets" / "0").read_text().split("\n")
    document = json.loads(facts)
    document["conf"][_ENCODING] = "avro"
    (new / "offsets" / "0").write_text("\n".join([head, json.dumps(document), *offsets]))


def read(checkpoint: Path, batch: int | None) -> Written:
    """Return what RocksDB holds after a batch (None: the last one), and the schemas of its entries."""
    opened = open_checkpoint(open_directory(str(checkpoint)), batch)
    (operator,) = opened.operators
    (store,) = operator.stores
    metadata = read_operator_metadata(opened.files, operator.id, opened.batch.id)
    assert metadata is not None
    schemas: dict[str, list[ColumnFamilySchema]] = {}
    for path in metadata.stores[0].schema_files:
        for family in read_state_schema(opened.files, path) or ():
            schemas.setdefault(family.name, []).append(family)
    state_store = open_state_store(opened)
    with state_store.open(opened.files, lineage_of(opened, state_store, store, 0), None) as partition:
        entries = [
            (batch.state, key[2:].hex(), value.hex())
            for batch in partition.batches({})
            for key, value in zip(batch.raw_keys.to_list(), batch.raw_values.to_list(), strict=True)  # type: ignore[attr-defined]
        ]
    return Written(entries, {family.name: schemas[family.name] for family in store.families})


def run(version: str, **order: Any) -> None:
    """Run a query in a process of that version of Spark."""
    python = str(interpreter(version))
    unwanted = ("PYTHONPATH", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment |= {"PYTHONSAFEPATH": "1", "TZ": "UTC", "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    program = [python, str(HERE / "queries.py"), json.dumps(order)]
    done = subprocess.run(program, env=environment, cwd=tempfile.gettempdir(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"Spark {version} failed on {order}:\n{done.stderr[-6000:]}")


if __name__ == "__main__":
    assert NEWEST in VERSIONS
    main(sys.argv[1:])
