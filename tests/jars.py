"""Java packages that tests need beside PySpark's own jars. Spark downloads them from Maven once."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from pathlib import Path

# Java takes the home folder from the list of users, and not from HOME.
IVY = Path.home() / ".ivy2.5.2"
_FETCH = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.jars.packages", sys.argv[1]).config("spark.jars.ivy", sys.argv[2])
with builder.getOrCreate() as spark:
    print(spark.sparkContext.getConf().get("spark.jars"))
"""


def jars_of(package: str) -> list[Path]:
    """Return the jars of a package, as ``group:artifact:version``, and of what it needs. The first is its own."""
    IVY.mkdir(exist_ok=True)
    known = IVY / f"ttlsnap-{re.sub('[^A-Za-z0-9.-]', '_', package)}.txt"
    with (IVY / "ttlsnap.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two downloads at the same time disturb each other
        jars = [Path(line) for line in known.read_text().splitlines()] if known.exists() else []
        if not jars or not all(jar.exists() for jar in jars):
            fetch = [sys.executable, "-c", _FETCH, package, str(IVY)]
            found = subprocess.run(fetch, check=True, capture_output=True, text=True).stdout
            jars = [Path(uri.removeprefix("file://")) for uri in found.strip().split(",")]
            known.write_text("\n".join(map(str, jars)))
    return jars
