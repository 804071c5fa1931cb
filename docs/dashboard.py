"""Draw the dashboard of examples/grafana, as SVG, with the answers of a real Prometheus.

python docs/dashboard.py    writes docs/images/dashboard.svg

The metrics are those of `tests/maintenance/prometheus.py`: ttlsnap writes them on 14 nights.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from tests.maintenance.prometheus import (  # noqa: E402
    DAY,
    NIGHTS,
    Panel,
    Prometheus,
    nights,
    panels,
    prometheus,
    write_history,
)

PICTURE = ROOT / "docs/images/dashboard.svg"
END = int(datetime(2026, 11, 28, 6, tzinfo=UTC).timestamp())
COLUMN, ROW, GAP = 40, 30, 8
COLORS = {"clicks": "#3274d9", "sessions": "#56a64b", "orders": "#e0752d", "carts": "#8f3bb8"}
LIMITS = {"red": "#c4162a", "orange": "#d9730d"}
_STYLE = """text { font: 12px system-ui, sans-serif; fill: #3b3f45 }
.title { font-weight: 600 } .small { font-size: 10px }
.value { font-size: 26px; font-weight: 600 } .card { fill: #fff; stroke: #d5d9de } .grid { stroke: #e8eaed }"""
Points = Sequence[tuple[float, float]]


def draw() -> str:
    """Return the picture."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        write_history(folder / "history", list(nights(folder)), END, folder)
        with prometheus(folder, folder / "history") as server:
            drawn = [line for panel in panels() for line in _panel(server, panel)]
    width = 24 * COLUMN + GAP
    height = max(panel.place["y"] + panel.place["h"] for panel in panels()) * ROW + GAP
    return "\n".join(
        [
            f'<svg role="img" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">',
            f"<title>The dashboard after {NIGHTS} nights</title><style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" fill="#f4f5f6" />',
            *drawn,
            "</svg>\n",
        ]
    )


def _panel(server: Prometheus, panel: Panel) -> Iterator[str]:
    x, y = panel.place["x"] * COLUMN + GAP, panel.place["y"] * ROW + GAP
    width, height = panel.place["w"] * COLUMN - GAP, panel.place["h"] * ROW - GAP
    yield f'<g transform="translate({x} {y})"><rect class="card" width="{width}" height="{height}" rx="3" />'
    yield _text(10, 20, panel.title, "title")
    if panel.kind == "timeseries":
        found = server.query_range(panel.expression, END - NIGHTS * DAY, END)
        yield from _lines([(_name(labels), points) for labels, points in found], panel, width, height)
    elif panel.kind == "table":
        for number, (labels, _) in enumerate(
            sorted(server.query(panel.expression, END), key=lambda one: _name(one[0]))
        ):
            yield _text(10, 50 + number * 22, f"/checkpoints/{_name(labels)}")
            yield _text(width / 2, 50 + number * 22, labels["status"])
    else:
        ((_, value),) = server.query(panel.expression, END)
        color = next((LIMITS[name] for limit, name in reversed(panel.limits) if value >= limit), "#37872d")
        yield _text(10, 66, _show(value, panel.unit), "value", f' style="fill: {color}"')
    yield "</g>"


def _lines(series: Sequence[tuple[str, Points]], panel: Panel, width: int, height: int) -> Iterator[str]:
    """Yield a chart with a line for each series."""
    left, top, right, bottom = 60, 34, width - 10, height - 44
    values = [value for _, points in series for _, value in points]
    low, high = min(0, *values), max(values) or 1
    start = END - NIGHTS * DAY

    def place(moment: float, value: float) -> tuple[float, float]:
        across, up = (moment - start) / (END - start), (value - low) / (high - low)
        return left + across * (right - left), bottom - up * (bottom - top)

    for number in range(5):
        value = low + (high - low) * number / 4
        _, y = place(start, value)
        yield f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" />'
        yield _text(left - 6, y + 4, _show(value, panel.unit), "small", ' text-anchor="end"')
    for night in range(2, NIGHTS, 3):
        moment = END - (NIGHTS - night) * DAY
        yield _text(place(moment, 0)[0], bottom + 16, f"{datetime.fromtimestamp(moment, UTC):%d %b}", "small")
    for number, (name, points) in enumerate(sorted(series)):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in _corners(points)))
        yield f'<polyline points="{path}" fill="none" stroke="{COLORS[name]}" stroke-width="1.8" />'
        yield f'<rect x="{12 + number * 150}" y="{height - 18}" width="12" height="4" fill="{COLORS[name]}" />'
        yield _text(30 + number * 150, height - 12, f"/checkpoints/{name}", "small")


def _corners(points: Points) -> Points:
    """Return the points without those whose neighbours have the same value."""
    return [
        point
        for before, point, after in zip([None, *points], points, [*points[1:], None], strict=False)
        if before is None or after is None or not before[1] == point[1] == after[1]
    ]


def _name(labels: dict[str, Any]) -> str:
    return str(labels["target"]).rpartition("/")[2]


def _text(x: float, y: float, text: str, kind: str = "", more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}"{f" class={kind!r}" if kind else ""}{more}>{escape(text)}</text>'


def _show(value: float, unit: str) -> str:
    match unit:
        case "percentunit":
            return f"{value:.0%}"
        case "bytes":
            return f"{value / 1000:.1f} kB"
        case "s":
            return f"{value / 3600:.1f} hours"
    return f"{value:g}"


if __name__ == "__main__":
    PICTURE.write_text(draw())
