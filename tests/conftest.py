"""Settings and fixtures for all tests.

The repository's root is removed from ``sys.path``. Otherwise a Spark worker that starts there imports this project's
``transformers`` folder in place of the package of that name. ``PYTHONSAFEPATH`` keeps the current folder off the path
of every process that a test starts.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from .cli.running import Ttlsnap, runner
from .judge import processes
from .judge.processes import Server
from .judge.spark import Judge
from .matrix import FULL
from .summary import (  # noqa: F401  hooks of pytest
    pytest_report_header,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
sys.path[:] = [entry for entry in sys.path if entry and Path(entry).resolve() != ROOT]
os.environ["PYTHONSAFEPATH"] = "1"
# A recently written file would look like a running query. Tests of that check set a period of their own.
os.environ["TTLSNAP_STOPPED"] = "1"
# State of tests is small, and would not be worth loading the RocksDB that PySpark brings.
os.environ.setdefault("TTLSNAP_NATIVE", "1")
# Background jobs of a shell ignore Ctrl-C, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A Spark that a test starts lives for seconds, so the optimizing compiler would only cost CPU time, and so would the
# verification of classes.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
_UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{_JAVA} {_UNVERIFIED}")
# Generating examples is slow while Spark keeps the machine busy.
settings.register_profile("beside Spark", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("beside Spark")
_STARTS_SPARK = {"judge", "theirs", "spark", "delta_server"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start Spark, and those that start an HDFS as ``wide``."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("engine") == "spark" or _STARTS_SPARK & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
        # These fixtures start an HDFS for one of their parameters.
        if "hdfs" in (parameters.get("place"), parameters.get("files"), *getattr(item, "fixturenames", ())):
            item.add_marker("wide")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give other versions of Spark only to the tests that ``make test-sparks`` runs."""
    free = FULL or item.get_closest_marker("wide") or os.environ.get("TTLSNAP_STORE")
    processes.reserved = "" if free else item.nodeid


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the servers of real Spark, which all workers of pytest share."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "servers"


@pytest.fixture(scope="session")
def judge_of_session(tmp_path_factory: pytest.TempPathFactory, servers: Path) -> Iterator[Judge]:
    """Yield a judge. It starts Spark when a test asks for more than stored checkpoints."""
    with Judge(tmp_path_factory.mktemp("judge"), servers=servers) as judge:
        yield judge


@pytest.fixture(scope="session")
def judge(judge_of_session: Judge) -> Judge:
    """Return real Spark in all versions that the tests ask for."""
    return judge_of_session


@pytest.fixture(scope="session")
def inputs(judge_of_session: Judge) -> Judge:
    """Return a judge for tests that only need stored checkpoints, and start no Spark."""
    return judge_of_session.of_inputs()


@pytest.fixture(scope="session")
def delta_server(judge: Judge) -> Server:
    """Return the newest Spark that Delta supports, with Delta."""
    return judge.with_delta()


@pytest.fixture
def ttlsnap(capsys: pytest.CaptureFixture[str]) -> Ttlsnap:
    """Return a function that runs one command line in this process."""
    return runner(capsys)


@pytest.fixture(autouse=True)
def hidden_session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the session of ``spark`` from tests that do not use it, so that the engine does not depend on the order."""
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    if "spark" in request.fixturenames or parameters.get("engine") == "spark":
        session = request.getfixturevalue("spark")
        type(session)._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    elif (sql := sys.modules.get("pyspark.sql")) is not None:
        monkeypatch.setattr(sql.SparkSession, "_instantiatedSession", None)
        monkeypatch.setattr(sys.modules["pyspark"].SparkContext, "_active_spark_context", None)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield the newest Spark within this process, as in a notebook. A process can have only one."""
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
