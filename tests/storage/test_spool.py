"""Large files on their way to a store, if the local disk has no room for them."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from ..samples import sample

_LIMIT = 70 << 20


def test_a_full_disk_is_named(bucket: str, tmp_path: Path) -> None:
    source = sample("agg-deltas-lz4-4.2", tmp_path)
    with (source / "large").open("wb") as file:
        file.truncate(_LIMIT + 1)
    done = subprocess.run(
        [sys.executable, "-m", "ttlsnap", "copy", str(source), f"{bucket}/copy"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT, _LIMIT)),
    )
    assert done.returncode == 5, done.stderr
    assert f"cannot write {bucket}/copy/large" in done.stderr
    assert f"first goes to {tempfile.gettempdir()}: File too large. Set the variable TMPDIR" in done.stderr
