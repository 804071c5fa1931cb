"""Workers can get ttlsnap as a zip, with ``--py-files`` or as an artifact of Spark Connect, but not its C library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ttlsnap

from ..samples import sample

pytestmark = [pytest.mark.wide, pytest.mark.spark]

SCRIPT = """
import json, os, sys
from pyspark.sql import SparkSession
import ttlsnap
from ttlsnap import SparkEngine, compact
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

checkpoint, zipped = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
if "SPARK_REMOTE" in os.environ:
    spark.addArtifacts(zipped, pyfile=True)

def look(batches):
    import pyarrow as pa, ttlsnap, ttlsnap.native
    for batch in batches:
        yield pa.record_batch({"place": [ttlsnap.__file__], "native": [ttlsnap.native.is_available()]})

(place, native), = spark.range(0, 1, 1, 1).mapInArrow(look, "place string, native boolean").collect()
factory = TtlTransformerFactory(StateTtlConfig.of("7d"), "value.max")
report = compact(checkpoint, [factory], engine=SparkEngine(session=spark), stopped=True, now="2026-11-21")
facts = {"place": place, "native": native, "dropped": report.totals.dropped}
print("FACTS", json.dumps(facts))
"""


@pytest.mark.parametrize("way", ["py-files", "connect"])
def test_workers_run_ttlsnap_from_a_zip(tmp_path: Path, way: str) -> None:
    target, script = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "job.py"
    script.write_text(SCRIPT)
    whole = shutil.copytree(Path(ttlsnap.__file__).parent, tmp_path / "whole/ttlsnap")
    zipped = shutil.make_archive(str(tmp_path / "packed"), "zip", whole.parent, "ttlsnap")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable]
    if way == "connect":
        environment["SPARK_REMOTE"] = "local[2]"
    else:
        submit = str(Path(sys.executable).with_name("spark-submit"))
        command = [submit, "--master", "local[2]", "--py-files", zipped]
    done = subprocess.run(
        [*command, str(script), str(target), zipped],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=180,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FACTS")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    facts = json.loads(lines[0].removeprefix("FACTS "))
    assert facts["place"].endswith("packed.zip/ttlsnap/__init__.py")
    assert (facts["native"], facts["dropped"]) == (False, 358)
