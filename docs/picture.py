"""Draw the picture in the README: what ttlsnap prints for a sample checkpoint, as SVG.

python docs/picture.py      writes docs/images/compact.svg
"""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from ttlsnap import compact, inspect
from ttlsnap.cli.compact_report import show_report
from ttlsnap.cli.inspection import show_inspection
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "compact.svg"
WIDTH = 100
SAMPLE = "agg-deltas-lz4-4.2"
FIELD = "value.max"
NOW = "2026-11-21T09:00:00Z"
# Rich's own template loads fonts from the web.
_TEMPLATE = """<svg class="rich-terminal" role="img" viewBox="0 0 {width} {height}"
    xmlns="http://www.w3.org/2000/svg" xml:space="preserve">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def draw() -> str:
    """Return the picture of a look at the sample, and of a dry run."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard")
    options: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}
    folder = os.path.relpath(ROOT / "sample_checkpoints")
    shown = _Without(console, f"{ROOT / 'sample_checkpoints'}/", options)
    target = f"{folder}/{SAMPLE}"
    console.print(Text(f"$ ttlsnap inspect {SAMPLE} --age --timestamp {FIELD} --now {NOW}", "bold green"), **options)
    show_inspection(shown, inspect(target, age=True, timestamp=FIELD, now=NOW))
    console.print()
    console.print(
        Text(f"$ ttlsnap compact {SAMPLE} --ttl 7d --timestamp {FIELD} --now {NOW} --dry-run", "bold green"), **options
    )
    week = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), FIELD)
    report = compact(target, [week], now=NOW, dry_run=True, stopped=True)  # a fresh clone has young files
    show_report(shown, replace(report, seconds=0.1))
    return console.export_svg(title="ttlsnap", theme=SVG_EXPORT_THEME, code_format=_TEMPLATE, unique_id="ttlsnap")


class _Without(Console):
    """Prints on another console, without a beginning that paths have."""

    def __init__(self, console: Console, beginning: str, options: dict[str, Any]) -> None:
        super().__init__(width=WIDTH)
        self._console, self._beginning, self._options = console, beginning, options

    def print(self, *objects: Any, **options: Any) -> None:
        """Print text without the beginning, and anything else as it is."""
        shown = [o.replace(self._beginning, "") if isinstance(o, str) else o for o in objects]
        self._console.print(*shown, **{**options, **self._options})


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw())
