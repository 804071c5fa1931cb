"""Draw the picture in the README: what ttlsnap prints for a sample checkpoint, as SVG.

python docs/picture.py      writes docs/images/compact.svg
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "compact.svg"
WIDTH = 100
SAMPLE = "agg-deltas-lz4-4.2"
_TIMES = "--timestamp value.max --now 2026-11-21T09:00:00Z"
COMMANDS = (f"ttlsnap inspect {SAMPLE} --age {_TIMES}", f"ttlsnap compact {SAMPLE} --ttl 7d {_TIMES} --dry-run")
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
    """Return the picture of a look at the sample, and of a dry run, as a terminal shows them."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard")
    with TemporaryDirectory() as folder:
        target = Path(shutil.copytree(ROOT / "sample_checkpoints" / SAMPLE, Path(folder) / SAMPLE))
        for path in target.rglob("*"):
            os.utime(path, (0, 0))  # the query is not running
        for command in COMMANDS:
            console.print(Text(f"$ {command}", "bold green"))
            shown = re.sub(r"\d\.\d s$", "0.1 s", run(command, folder), flags=re.MULTILINE)
            console.print(Text.from_ansi(shown.replace(f"{target.parent}/", "")), soft_wrap=True)
    return console.export_svg(title="ttlsnap", theme=SVG_EXPORT_THEME, code_format=_TEMPLATE, unique_id="ttlsnap")


def run(command: str, folder: str) -> str:
    """Return what a command prints on a terminal. Raise CalledProcessError if it fails."""
    main, terminal = pty.openpty()
    words = [sys.executable, "-m", *command.split()]
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    with os.fdopen(main, "rb", 0) as shown:
        with os.fdopen(terminal, "wb", 0) as out:
            done = subprocess.run(words, cwd=folder, env=environment, stdout=out, stderr=subprocess.PIPE, check=True)
            assert not done.stderr, done.stderr
        return _read(shown)


def _read(terminal: io.FileIO) -> str:
    pieces = []
    with contextlib.suppress(OSError):  # the end
        while piece := terminal.read(1 << 16):
            pieces.append(piece)
    return b"".join(pieces).decode().replace("\r\n", "\n")


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw())
