"""Starting a Spark session of our own, quietly."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def quiet_launch() -> Iterator[None]:
    """While a JVM starts, let it have a log file as its standard error for good.

    What Spark prints is for its developers: warnings at every start, stack traces of what we report in a sentence.
    TTLSNAP_SPARK_LOG names the file; by default it is a temporary one, removed with the JVM's last hold on it.
    """
    named = os.environ.get("TTLSNAP_SPARK_LOG")
    with Path(named).open("ab") if named else tempfile.TemporaryFile() as log:
        sys.stderr.flush()
        saved = os.dup(2)
        try:
            os.dup2(log.fileno(), 2)
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def first_lines(error: BaseException, lines: int = 3) -> str:
    """What an error of Spark's says, without the JVM's stack."""
    told = [line for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(told[:lines]) or type(error).__name__
