"""The results of a policy's run for Prometheus, as a file for node exporter's textfile collector.

There are only gauges, and the last line is OpenMetrics' end mark, a comment for Prometheus. So the text is valid in
both formats.
Source: Prometheus' text format 0.0.4, and OpenMetrics 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import get_args

from ttlsnap.compaction.report import Counts
from ttlsnap.maintenance.runs import Status, TargetResult, worst_exit_code
from ttlsnap.printable import printable_label

_COUNTS: tuple[tuple[str, str, Callable[[Counts], int | None]], ...] = (
    ("entries", "Entries, or rows, that were scanned.", lambda counts: counts.entries),
    ("dropped_entries", "Entries that were dropped.", lambda counts: counts.dropped),
    ("rewritten_entries", "Entries that were rewritten.", lambda counts: counts.rewritten),
    ("before_bytes", "Bytes on disk before.", lambda counts: counts.bytes_before),
    ("after_bytes", "Bytes on disk after.", lambda counts: counts.bytes_after),
)


def metrics(results: Sequence[TargetResult], finished_s: float) -> str:
    """Return the text. ``finished_s`` is the time when the run ended, in seconds since the epoch."""
    lines = list(_gauge("run_finished_timestamp_seconds", "When the policy was last carried out.", [("", finished_s)]))
    lines += _gauge("run_exit_code", "The highest exit code of its targets.", [("", worst_exit_code(results))])
    lines += _gauge(
        "target_status",
        "1 for the status of a target, 0 for the other statuses.",
        [
            (f'{{target="{_escape(result.target)}",status="{status}"}}', int(status == result.status))
            for result in results
            for status in get_args(Status)
        ],
    )
    lines += _gauge(
        "target_exit_code",
        "A target's exit code.",
        [(_labels(target_result), target_result.exit_code) for target_result in results],
    )
    lines += _gauge(
        "target_duration_seconds",
        "How long a target took.",
        [(_labels(target_result), target_result.seconds) for target_result in results],
    )
    for name, help_text, count in _COUNTS:
        samples = [
            (_labels(target_result), count(target_result.report.totals))
            for target_result in results
            if target_result.report is not None
        ]
        lines += _gauge(
            f"target_{name}", help_text, [(labels, value) for labels, value in samples if value is not None]
        )
    return "\n".join([*lines, "# EOF"]) + "\n"


def _gauge(name: str, help_text: str, samples: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP ttlsnap_{name} {help_text}"
    yield f"# TYPE ttlsnap_{name} gauge"
    yield from (f"ttlsnap_{name}{labels} {value}" for labels, value in samples)


def _labels(result: TargetResult) -> str:
    return f'{{target="{_escape(result.target)}"}}'


def _escape(text: str) -> str:
    text = printable_label(text)
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
