"""The functions that Spark's workers run. Each worker first compares its code with that of this process.

A worker imports ttlsnap, and the modules that the user named, from its own installation. An older one may have other
rules, which nobody would notice.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from ttlsnap.user_code import Found, find_again, list_found, list_named

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_PACKAGE = "ttlsnap"
ADVICE = (
    "Install there what you have here, or set PYSPARK_PYTHON (or spark.pyspark.python) to a Python that has it before "
    "Spark starts"
)


def on_workers(frame: DataFrame, work: Work, schema: str | StructType) -> DataFrame:
    """Return the frame of ``mapInArrow`` with ``work``. It fails before it reads a row on a worker with other code."""
    from pyspark import cloudpickle

    pickled, found_modules, advice = cloudpickle.dumps(work), list_found(), ADVICE
    expected = {name: code_digest(name) for name in (_PACKAGE, *list_named())}

    # Spark sends this function by value, so it also runs where ttlsnap is missing, or older than this module.
    def work_if_same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            from ttlsnap.engines.workers import require_same_code
        except ImportError:
            import socket
            import sys

            raise RuntimeError(
                f"{sys.executable} on {socket.gethostname()} has no ttlsnap, or an older one. {advice}"
            ) from None
        require_same_code(expected, found_modules)
        yield from pickle.loads(pickled)(batches)

    return frame.mapInArrow(work_if_same, schema)


def require_same_code(expected: Mapping[str, str | None], found_modules: Found) -> None:
    """Find the user's modules as another process does. Raise RuntimeError if a module's code is not as ``expected``.

    A missing one may not be needed here. If it is, Python says so.
    """
    find_again(found_modules)
    for name, digest in expected.items():
        if code_digest(name) not in (digest, None):
            raise RuntimeError(f"{sys.executable} on {socket.gethostname()} has another {name}. {ADVICE}")


@cache
def code_digest(name: str) -> str | None:
    """Return a digest of a module's source files, for ttlsnap of the whole package; None if it has none."""
    if name == _PACKAGE:
        content = sha256()
        for path, file in _sources(importlib.resources.files(name), ""):
            code = file.read_bytes()
            content.update(f"{path} {len(code)}\n".encode() + code)
        return content.hexdigest()
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:  # of the package that it is in
        return None
    loader = spec.loader if spec is not None else None
    # Some loaders, such as the one of pytest, have this function and not the class ``ResourceLoader``.
    get_data = getattr(loader, "get_data", None)
    if get_data is None or spec is None or spec.origin is None:
        return None
    try:
        return sha256(get_data(spec.origin)).hexdigest()
    except OSError:  # a loaded module, whose file was removed since
        return None


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_dir():
            yield from _sources(file, f"{path}{file.name}/")
        elif file.name.endswith(".py"):
            yield path + file.name, file
