"""The import of a checkpoint's own export, after its state was emptied.

As a program, it imports a folder on one thread, and prints its cost as JSON: the number of rows, and the process's
largest resident size in bytes: ``python import_work.py CHECKPOINT FOLDER``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from worker import peak

from ttlsnap import import_state


def importing(source: Path, target: Path, exported: Path) -> Callable[[], Any]:
    """Copy a checkpoint, and empty its state. Return a function that fills the copy on one thread."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    _empty(target, exported)
    return lambda: import_state(str(target), str(exported), stopped=True, parallelism=1)


def peak_of_import(checkpoint: Path, exported: Path) -> int:
    """Return the largest resident size, in bytes, of a process that imports into a checkpoint on one thread."""
    _empty(checkpoint, exported)
    words = [sys.executable, __file__, str(checkpoint), str(exported)]
    found: int = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    return found


def _empty(checkpoint: Path, exported: Path) -> None:
    """Remove all state, with tables that have no rows."""
    with tempfile.TemporaryDirectory(dir=checkpoint.parent) as folder:
        for table in exported.iterdir():
            Path(folder, table.name).mkdir()
            schema = pq.read_schema(next(table.glob("*.parquet")))
            pq.write_table(schema.empty_table(), f"{folder}/{table.name}/none.parquet")
        import_state(str(checkpoint), folder, mode="replace", stopped=True)


def main() -> None:
    checkpoint, folder = sys.argv[1:]
    import_state(checkpoint, folder, stopped=True, parallelism=1)
    print(json.dumps(peak()))


if __name__ == "__main__":
    main()
