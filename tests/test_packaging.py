"""No package is forgotten, the links are links, and the layers point one way."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_package_is_named() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {"ttlsnap" if path.parent == ROOT / "ttlsnap" else _name(path) for path in _inits()}
    assert set(setuptools["packages"]) == found
    assert setuptools["package-dir"] == {"ttlsnap.cli": "cli", "ttlsnap.transformers": "transformers"}


def _inits() -> list[Path]:
    folders = ("ttlsnap", "cli", "transformers")
    return [path for folder in folders for path in (ROOT / folder).rglob("__init__.py")]


def _name(init: Path) -> str:
    parts = init.parent.relative_to(ROOT).parts
    return ".".join(parts if parts[0] == "ttlsnap" else ("ttlsnap", *parts))


@pytest.mark.parametrize("name", ["cli", "transformers"])
def test_static_checkers_see_the_linked_folders(name: str) -> None:
    link = ROOT / "ttlsnap" / name
    assert link.is_symlink()
    assert link.resolve() == ROOT / name


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("ttlsnap", "from ttlsnap.transformers import expired"),
        ("ttlsnap", "import ttlsnap.cli"),
        ("transformers", "from ttlsnap.cli import app"),
    ],
)
def test_a_layer_that_looks_up_is_an_error(folder: str, line: str) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename", f"{folder}/wrong.py", "-"]
    done = subprocess.run(ruff, cwd=ROOT, input=f"{line}\n", capture_output=True, text=True, check=False)
    assert (done.returncode, "TID251" in done.stdout) == (1, True), done.stdout + done.stderr


def test_inspect_loads_neither_arrow_nor_spark() -> None:
    """Half a second is not enough for them."""
    sample = ROOT / "sample_checkpoints" / "agg-deltas-lz4-4.2"
    code = (
        "import sys; from ttlsnap.cli.app import run; code = run(['inspect', sys.argv[1]]); "
        "print(code, [name for name in ('pyarrow', 'numpy', 'pyspark') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, sample], capture_output=True, text=True, check=True)
    assert done.stderr == "0 []\n"
