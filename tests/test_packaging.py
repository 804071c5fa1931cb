"""The packaging lists every package, the links are links, and each layer imports only lower ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ttlsnap

ROOT = Path(__file__).parents[1]


def test_pyproject_lists_every_package() -> None:
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
def test_linked_folders_lead_to_their_packages(name: str) -> None:
    link = ROOT / "ttlsnap" / name
    assert link.is_symlink()
    assert link.resolve() == ROOT / name


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("transformers/keep.py", "from ttlsnap.cli import app"),
        ("ttlsnap/compaction/run.py", "from ttlsnap.transformers import expired"),
        ("ttlsnap/compaction/run.py", "from ttlsnap.publishing.swap import swap"),
        ("ttlsnap/storage/directory.py", "from ttlsnap.storage.local import LocalDirectory"),
    ],
)
def test_imports_of_higher_layers_and_circular_imports_fail_the_linter(module: str, line: str, tmp_path: Path) -> None:
    for folder in ("ttlsnap", "cli", "transformers"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert _lint_imports(tmp_path).returncode == 0
    with (tmp_path / module).open("a") as file:
        file.write(f"{line}\n")
    done = _lint_imports(tmp_path)
    assert (done.returncode, "BROKEN" in done.stdout) == (1, True), done.stdout + done.stderr


def _lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


_IMPORTS = """
import importlib, pkgutil, sys, types
import ttlsnap

def import_names():
    return {name: getattr(ttlsnap, name) for name in ttlsnap.__all__}

def import_modules():
    for found in pkgutil.walk_packages(ttlsnap.__path__, "ttlsnap."):
        if found.name != "ttlsnap.__main__":
            importlib.import_module(found.name)

if sys.argv[1] == "names first":
    names = import_names()
    import_modules()
else:
    import_modules()
    names = import_names()
modules = [name for name, value in names.items() if isinstance(value, types.ModuleType)]
changed = [name for name, value in import_names().items() if value is not names[name]]
print(len(names), modules, changed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", ["names first", "modules first"])
def test_no_module_replaces_a_public_name(order: str) -> None:
    done = subprocess.run([sys.executable, "-c", _IMPORTS, order], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(ttlsnap.__all__)} [] []\n"


def test_inspect_loads_neither_arrow_nor_spark() -> None:
    """Loading them takes longer than the rest of ``inspect``, which opens no file of a large state."""
    sample = ROOT / "sample_checkpoints" / "agg-deltas-lz4-4.2"
    code = (
        "import sys; from ttlsnap.cli.app import run; import ttlsnap.reading.inspect as reading; reading.CHEAP = 0; "
        "code = run(['inspect', sys.argv[1]]); "
        "print(code, [name for name in ('pyarrow', 'numpy', 'pyspark') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, sample], capture_output=True, text=True, check=True)
    assert done.stderr == "0 []\n"
