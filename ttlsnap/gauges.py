"""Gauges for Prometheus, as a file for node exporter's textfile collector.

There are only gauges, and the last line is OpenMetrics' end mark, a comment for Prometheus. So the text is valid in
both formats.
Source: Prometheus' text format 0.0.4, and OpenMetrics 1.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ttlsnap.printable import printable_label

Sample = tuple[Mapping[str, str], float | None]
"""The labels and the value of a sample. A sample whose value is None is unknown, and left out."""


def gauge(name: str, help_text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of the metric ``ttlsnap_<name>``."""
    yield f"# HELP ttlsnap_{name} {help_text}"
    yield f"# TYPE ttlsnap_{name} gauge"
    for labels, value in samples:
        if value is not None:
            pairs = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
            yield f"ttlsnap_{name}{{{pairs}}} {value}" if pairs else f"ttlsnap_{name} {value}"


def join_gauges(lines: Iterable[str]) -> str:
    """Return the text of a file with the lines of metrics."""
    return "\n".join([*lines, "# EOF"]) + "\n"


def _escape(text: str) -> str:
    text = printable_label(text)
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
