"""The progress bar is on stderr, and never between data on the same terminal."""

from __future__ import annotations

from ..samples import SAMPLES
from .terminal import run_on_terminal

EXPORT = ("export", str(SAMPLES / "agg-deltas-lz4-4.2"), "--to", "-")


def test_data_on_a_terminal_has_no_progress_between_it() -> None:
    written = run_on_terminal(*EXPORT, streams=("stdout", "stderr"))
    assert written.count("\n") == 480 and "\x1b" not in written and "exporting" not in written


def test_progress_is_on_a_terminal_that_gets_no_data() -> None:
    assert "exporting" in run_on_terminal(*EXPORT, streams=("stderr",))
