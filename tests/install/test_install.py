"""The wheel and the sdist, installed beside each Spark from 3.5 to 4.3, as a user would do it.

Each environment has its own PySpark, and nothing of this repository but the package. Its ``ttlsnap`` inspects, compacts
on both engines, checks, and makes contracts, and its own Spark restarts the queries.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ttlsnap import native
from ttlsnap.extras import PACKAGES

from ..compaction.stories import BATCHES, FIELDS, MORE, H, digest, limit_of, settled, unwanted
from ..contract import every_kind
from ..judge.processes import interpreter
from ..judge.queries import Query, stamp
from ..judge.spark import Judge
from ..matrix import FULL
from ..samples import SAMPLES
from . import jobs

pytestmark = pytest.mark.wide  # builds packages and installs them beside other versions of Spark

ROOT = Path(__file__).parents[2]
VERSIONS = ["3.5", "4.3"]
if FULL:  # also with other versions of Python, and with the oldest release of each dependency
    VERSIONS += ["4.0", "4.1", "4.2.1", "4.0-python3.12", "4.3-python3.13", "3.5.0-lowest"]
FROM_SDIST = "4.3"
SAMPLE = "agg-deltas-lz4-4.2"
LIBRARY = "ttlsnap/native/kernels.so.1"
WEEK = ("--ttl", "7d", "--timestamp", "value.max", "--now", "2026-11-21T09:00:00Z", "--stopped")
OURS = Path(sys.executable).with_name("ttlsnap")
QUERIES = ("sessions", "distinct", "running") if FULL else ("running",)
# Another test shows that both engines write the same bytes.
CONTINUED = list(product(("hdfs", "rocksdb"), ("local", "spark"))) if FULL else [("rocksdb", "local")]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> dict[str, Path]:
    """Build the sdist, and the wheel from it, once for all workers. Return their paths by the ends of their names."""
    folder = tmp_path_factory.getbasetemp().parent / f"packages-{testrun_uid}"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            build = tmp_path_factory.mktemp("packages")
            subprocess.run([sys.executable, "-m", "build", "--outdir", build, ROOT], check=True, capture_output=True)
            build.rename(folder)
    return {"".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix: path for path in folder.iterdir()}


@dataclass(frozen=True)
class Installed:
    """The package beside one version of Spark."""

    version: str
    python: Path

    def run(self, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run the installed command, without any setting that leads to another Spark or to this repository."""
        unwanted = ("PYTHONPATH", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON")
        environment = {name: value for name, value in os.environ.items() if name not in unwanted}
        words = [str(self.python.with_name("ttlsnap")), *map(str, arguments)]
        return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def run_well(self, *arguments: str | Path, cwd: Path) -> str:
        """Run the installed command. Return its output; it must succeed."""
        done = self.run(*arguments, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=VERSIONS)
def installed(
    request: pytest.FixtureRequest, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """Install the package in an environment of its own, on top of the environment that has this version of Spark."""
    spark = interpreter(request.param)
    folder = tmp_path_factory.mktemp(f"installed-{request.param}")
    subprocess.run([spark, "-m", "venv", folder], check=True, capture_output=True)
    python = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    below, above = (
        subprocess.run([each, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        for each in (spark, python)
    )
    Path(above, "spark.pth").write_text(f"{below}\n")
    package = packages[".tar.gz" if request.param == FROM_SDIST else ".whl"]
    subprocess.run([python, "-m", "pip", "--quiet", "install", str(package)], check=True, capture_output=True)
    return Installed(request.param, python)


def test_an_environment_keeps_its_spark(installed: Installed) -> None:
    python = installed.python
    subprocess.run([python, "-m", "pip", "check"], check=True, capture_output=True)
    code = "import pyspark, ttlsnap; print(pyspark.__version__, ttlsnap.__file__)"
    words = [str(python), "-P", "-c", code]
    spark, file = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert f"{spark}.".startswith(f"{installed.version.partition('-')[0]}.")
    assert Path(file).is_relative_to(python.parents[1])


def test_both_engines_write_what_the_tested_environment_writes(installed: Installed, tmp_path: Path) -> None:
    for name in ("local", "spark", "here"):
        shutil.copytree(SAMPLES / SAMPLE, tmp_path / name)
    found = json.loads(installed.run_well("inspect", "local", "--format", "json", cwd=tmp_path))
    assert found["batch"] == 6
    for engine in ("local", "spark"):
        installed.run_well("compact", engine, *WEEK, "--engine", engine, cwd=tmp_path)
    subprocess.run([OURS, "compact", "here", *WEEK], cwd=tmp_path, check=True, capture_output=True)
    assert digest(tmp_path / "here") != digest(SAMPLES / SAMPLE)
    assert digest(tmp_path / "local") == digest(tmp_path / "spark") == digest(tmp_path / "here")
    installed.run_well("check", SAMPLES / SAMPLE, "local", cwd=tmp_path)


@pytest.mark.parametrize(("provider", "engine"), CONTINUED)
def test_the_spark_of_the_environment_restarts_the_result(
    judge: Judge, installed: Installed, provider: str, engine: str, tmp_path: Path
) -> None:
    query = Query("agg_update", provider=provider)
    written = judge.write(query, BATCHES, layout="snapshot", version=installed.version)
    settled(written.path)
    words = ("--timestamp", FIELDS["agg_update"], "--ttl", "2h", "--now", f"{stamp(limit_of(query) + 2 * H)}Z")
    options = ("--engine", engine, "--format", "json", "--stopped", "--yes")
    report = json.loads(installed.run_well("compact", written.path, *words, *options, cwd=tmp_path))
    model = written.expected
    assert report["totals"]["dropped"] == model.drop(unwanted(query)) > 0
    assert report["totals"]["kept"] == len(model.state()) > 0
    assert judge.restart(written, MORE) == model.run(MORE)


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the queries, and with the contracts that the tested environment makes of them."""
    folder = tmp_path_factory.mktemp("contracts")
    shutil.copy(Path(jobs.__file__), folder / "jobs.py")
    for name in QUERIES:
        words = ["contract", f"jobs:{name}", "--schema", jobs.SCHEMA, "--output", f"{name}.json"]
        subprocess.run([OURS, *words], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("name", QUERIES)
def test_contracts_differ_only_in_what_depends_on_the_version(installed: Installed, name: str, contracts: Path) -> None:
    new = f"{name}-{installed.version}.json"
    installed.run_well("contract", f"jobs:{name}", "--schema", jobs.SCHEMA, "--output", new, cwd=contracts)
    theirs, ours = (json.loads((contracts / file).read_text()) for file in (new, f"{name}.json"))
    for operator in (*theirs["operators"], *ours["operators"]):
        assert operator.pop("plan"), "Spark's text of a plan depends on the version"
        if installed.version < "4.0":  # which does not record it
            for store in operator["stores"]:
                del store["prefix_key_columns"]
    assert {key for key in ours if ours[key] != theirs[key]} <= {"spark", "planned_by", "conf"}
    for pair in ((new, f"{name}.json"), (f"{name}.json", new)):
        assert "verdict: as_is" in installed.run_well("check", *pair, cwd=contracts)


def test_digests_of_functions_do_not_depend_on_the_version_of_python(installed: Installed) -> None:
    words = [str(installed.python), "-P", every_kind.__file__]
    made = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert made == json.loads(Path(every_kind.__file__).with_name("digests.json").read_text())


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("inspect s3://bucket/checkpoint", "objects"),
        ("compact gs://bucket/checkpoint --ttl 1d", "objects"),
        ("inspect hdfs://namenode:8020/checkpoint", "hdfs"),
        ("compact checkpoint --ttl 7d --timestamp value.max --stopped --expired-to delta:dropped", "delta"),
        ("compact table --ttl 1d --timestamp at --key user", "delta"),
        ("compact table --ttl 1d --timestamp at --key user --dry-run", "delta"),
        ("inspect table --entries 1", "delta"),
        ("rollback table", "delta"),
        ("compact checkpoint --ttl 7d --timestamp value.max --stopped --report html=a.html", "html"),
    ],
)
@pytest.mark.parametrize("installed", [FROM_SDIST], indirect=True)
def test_a_missing_extra_is_named_before_any_work(
    installed: Installed, command: str, extra: str, tmp_path: Path
) -> None:
    shutil.copytree(SAMPLES / SAMPLE, tmp_path / "checkpoint")
    write_deltalake(tmp_path / "table", pa.table({"user": ["a"], "at": pa.array([0], pa.timestamp("us", "UTC"))}))
    before = digest(tmp_path)
    done = installed.run(*command.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith(f"Install it with: pip install 'ttlsnap[{extra}]'\n"), done.stderr
    assert digest(tmp_path) == before


def test_requirements_of_packages_are_those_of_the_packaging() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {
        re.split("[>=<]", line)[0]: f"ttlsnap[{extra}]"
        for extra in ("delta", "objects", "hdfs", "html", "kafka")
        for line in project["optional-dependencies"][extra]
    }
    named["pyspark"] = next(line for line in project["dependencies"] if line.startswith("pyspark"))
    assert named == {name: package.requirement for name, package in PACKAGES.items()}


def test_the_wheel_has_the_package_alone_and_the_sdist_also_the_tests(packages: dict[str, Path]) -> None:
    with zipfile.ZipFile(packages[".whl"]) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}
        modules = {name for name in wheel.namelist() if name.endswith(".py")}
        libraries = {name for name in wheel.namelist() if name.endswith(".so.1")}
    assert tops == {"ttlsnap", next(top for top in tops if top.endswith(".dist-info"))}
    tracked = subprocess.run(
        ["git", "ls-files", "ttlsnap/*.py", "cli/*.py", "transformers/*.py"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    assert modules == {name if name.startswith("ttlsnap/") else f"ttlsnap/{name}" for name in tracked}
    with tarfile.open(packages[".tar.gz"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"tests/conftest.py", f"sample_checkpoints/{SAMPLE}/metadata", "README.md", "pyproject.toml"} <= names
    assert {"setup.py", "ttlsnap/native/kernels.c"} <= names
    assert libraries == ({LIBRARY} if native.is_available() else set())


def test_without_a_compiler_the_library_is_left_out(packages: dict[str, Path], tmp_path: Path) -> None:
    words = ["wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(packages[".tar.gz"])]
    command = [sys.executable, "-m", "pip", "--quiet", *words]
    subprocess.run(command, env={**os.environ, "CC": "false"}, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        assert "ttlsnap/native/__init__.py" in wheel.namelist()
        assert LIBRARY not in wheel.namelist()
