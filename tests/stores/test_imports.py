"""A worker must not import slow packages that it does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ..samples import COMPACTABLE, SAMPLES

_RUN = """
import sys
from ttlsnap import LocalEngine, compact
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

factory = TtlTransformerFactory(StateTtlConfig(parse_duration("1d")), timestamp=sys.argv[2])
report = compact(sys.argv[1], [factory], dry_run=True, engine=LocalEngine(1))
assert report.totals.entries
print([name for name in ("pandas", "pyspark") if name in sys.modules])
"""


@pytest.mark.parametrize(
    "name", ["agg-deltas-lz4-4.2", "agg-snapshot-zstd-4.1", "lzf-both-4.2", "window-append-snappy-4.0"]
)
def test_a_ttl_imports_neither_pandas_nor_pyspark(name: str) -> None:
    command = [sys.executable, "-c", _RUN, str(SAMPLES / name), COMPACTABLE[name]]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
