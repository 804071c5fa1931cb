"""Settings and fixtures for all tests.

The repository's root is removed from ``sys.path``. Otherwise a Spark worker that starts there imports this project's
``transformers`` folder in place of the package of that name. ``PYTHONSAFEPATH`` keeps the current folder off the path
of every process that a test starts.
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

from . import support
from .cli.running import Ttlsnap, runner
from .judge.processes import WITH_DELTA, Server
from .judge.spark import Judge

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
settings.register_profile("beside Spark", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("beside Spark")
_OTHER = re.compile(r"[\[-](3\.5|4\.0|4\.1|4\.3)[\]-]")
_JUDGED = tuple(f"tests/{name}/" for name in ("compaction", "exports", "imports", "migration", "publishing"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that keeps the tests of a file in one process, and other versions of Spark in another."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]  # of a package without types
        def _split_scope(self, nodeid: str) -> str:
            file, _, name = nodeid.partition("::")
            if "test_tables" in file or file.startswith("tests/delta/"):
                return "delta"
            other = file.startswith(_JUDGED) and ("test_older_versions" in file or _OTHER.search(name))
            return "others" if other else file

    return Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Keep what a passed test adds to the support table."""
    report = yield
    if report.when == "call":
        support.settle(passed=report.passed)
    return report


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Yield real Spark in all versions that the tests ask for, once for the session because its start is slow."""
    with Judge(tmp_path_factory.mktemp("judge")) as judge:
        yield judge


@pytest.fixture(scope="session")
def delta_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield the newest Spark that Delta supports, with Delta."""
    folder = tmp_path_factory.mktemp("delta-server")
    server = Server(WITH_DELTA, 0, folder / "server", folder / "classes", delta=True)
    yield server
    server.close()


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
