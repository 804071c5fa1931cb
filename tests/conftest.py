"""What all tests need: no shadowed imports.

The repository's root is taken off ``sys.path``: a Spark worker that is started there would find this project's
``transformers`` folder where it wants the package of that name. ``PYTHONSAFEPATH`` keeps the current folder off the
path of every process that a test starts.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from .judge.processes import NEWEST, Server
from .judge.spark import Judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
sys.path[:] = [entry for entry in sys.path if entry and Path(entry).resolve() != ROOT]
os.environ["PYTHONSAFEPATH"] = "1"
# What a test wrote a moment ago is not a query at work; tests of that sign name their own period.
os.environ["TTLSNAP_STOPPED"] = "1"
# A shell has its background jobs ignore Ctrl-C, which would be inherited by every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A Spark that is started for a test lives for seconds: the optimising compiler would only take its cores away.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC")
# A machine that is busy with Spark is slow at making examples.
settings.register_profile("beside Spark", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("beside Spark")
_OLDER = re.compile(r"[\[-](3\.5|4\.0|4\.1)[\]-]")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Side by side, tests of a file stay together, and older versions of Spark are started by one process alone."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]  # of a package without types
        def _split_scope(self, nodeid: str) -> str:
            file, _, name = nodeid.partition("::")
            judged = file.startswith(("tests/compaction/", "tests/publishing/"))
            if "test_tables" in file or file.startswith("tests/tables/"):
                return "delta"
            return "older" if judged and ("test_older_versions" in file or _OLDER.search(name)) else file

    return Together(config, log)


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Real Spark, in as many versions as the tests ask for; one for the session, since starting Spark is what costs."""
    with Judge(tmp_path_factory.mktemp("judge")) as judge:
        yield judge


@pytest.fixture(scope="session")
def delta_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The newest Spark with Delta."""
    folder = tmp_path_factory.mktemp("delta-server")
    server = Server(NEWEST, 0, folder / "server", folder / "classes", delta=True)
    yield server
    server.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The newest Spark within this process, as in a notebook; a process has room for one."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.timeType.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
