"""What README and docs show of other things: the output of ``$ ttlsnap ...``, and files of ``examples/``.

    python -m tests.docs.transcripts    update the output and the files in the pages

A block shows a file if its title is the file's path.
Commands run in a copy of the repository's root, whose path is removed from the output. The metadata of the samples
there names the schema files of the copy, as that of a checkpoint at its first place does.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import re
import shlex
import shutil
import tempfile
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ttlsnap.cli.app import run

from ..judge.inputs import take_home

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
WIDTH, LONG = 90, 120
_BLOCK = re.compile(r"(?<=```console\n)(.*?)(?=```)", re.DOTALL)
_FILE_BLOCK = re.compile(r'(```\w+ title="(examples/[^"]+)"\n)(.*?)(?=^```)', re.DOTALL | re.MULTILINE)
_VARYING = ((re.compile(r"\d+\.\d+ s\b"), "N s"), (re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6,12}"), "RUN"))


def blocks(page: Path) -> Iterator[str]:
    """Return the console blocks of a page that contain a command."""
    return (block for block in _BLOCK.findall(page.read_text()) if re.search(r"^\$ ttlsnap", block, re.MULTILINE))


def replayed(block: str) -> str:
    """Return the block with the current output of its commands."""
    lines = []
    for line in block.splitlines():
        if line.startswith("$ ttlsnap"):
            lines += [line, *printed(line.removeprefix("$ ")).splitlines(), ""]
    return "\n".join(lines).rstrip() + "\n"


def with_files(text: str) -> str:
    """Return a page whose blocks have the current files of ``examples/``."""
    return _FILE_BLOCK.sub(lambda match: match[1] + (ROOT / match[2]).read_text(), text)


@cache
def copied_root() -> Path:
    """Return a folder with copies of the samples, and links to everything else of the repository."""
    root = Path(tempfile.mkdtemp(prefix="ttlsnap-transcripts-")).resolve()
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for path in ROOT.iterdir():
        if path.name != "sample_checkpoints":
            (root / path.name).symlink_to(path)
    for path in (ROOT / "sample_checkpoints").iterdir():
        if path.is_dir():
            take_home(Path(shutil.copytree(path, root / "sample_checkpoints" / path.name)))
    return root


def printed(command: str) -> str:
    """Run a command. Return its output on both streams, without the path of the repository."""
    root = copied_root()
    _, *arguments = shlex.split(command, comments=True)
    told = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with contextlib.chdir(root), contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        run(arguments)
    told.seek(0)
    lines = (line.rstrip() for line in told.read().replace(f"{root}/", "").splitlines())
    return "\n".join(part for line in lines for part in folded(line))


def folded(line: str) -> list[str]:
    """Return a long sentence as several lines, as a terminal shows it. Rows of tables have several spaces, and stay."""
    is_sentence = len(line) > LONG and "  " not in line and not line.startswith(("{", "Next: "))
    return textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False) if is_sentence else [line]


def settled(text: str) -> str:
    """Return a transcript without the parts that differ from run to run."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    # The width of a column depends on the path of the repository, which is removed.
    return "\n".join(re.sub(" {2,}", "  ", line.rstrip()) for line in text.strip().splitlines() if line.strip())


if __name__ == "__main__":
    os.environ.setdefault("TTLSNAP_STOPPED", "1")  # a fresh clone has young files
    for page in PAGES:
        old = page.read_text()
        new = _BLOCK.sub(lambda match: replayed(match[1]) if "$ ttlsnap" in match[1] else match[1], old)
        new = with_files(new)
        if new != old:
            page.write_text(new)
            print(page.relative_to(ROOT))
