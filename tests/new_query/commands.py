"""Commands of ttlsnap within the process with Spark and Delta."""

from __future__ import annotations

import contextlib
import io
from typing import Any
from unittest import mock


def run(spark: Any, words: list[str], meanwhile: str | None = None) -> tuple[int, str, str]:
    """Run a command: its exit code, and what it prints on stdout and stderr.

    With ``meanwhile``, a person at a terminal agrees, after this statement of another writer.
    """
    from ttlsnap.cli.app import run as run_command

    def agree(*_: Any, **__: Any) -> bool:
        spark.sql(meanwhile)
        return True

    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        if meanwhile is not None:
            stack.enter_context(mock.patch("sys.stdin", mock.Mock(isatty=lambda: True)))
            stack.enter_context(mock.patch("typer.confirm", agree))
        code = run_command(words)
    return code, out.getvalue(), err.getvalue()


vars(run)["alone"] = True  # because the streams belong to the whole process
