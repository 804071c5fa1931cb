"""Assemble the sources of the documentation site in build/site-sources, for ``make docs``.

Pages keep their places in the repository, so that their links work both there and on the site. Only docs/index.md, the
landing page, moves to the top of the site, where README.md would be. The pages of commands are made from their help.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "build" / "site-sources"
GUIDES = {
    "inspect": "sizes.md", "export": "export.md", "import": "import.md", "diff": "export.md", "compact":
    "getting-started.md", "explain": "explain.md", "migrate": "migrate.md", "maintain": "maintenance.md", "rollback":
    "publishing.md", "recover": "publishing.md", "history": "publishing.md", "doctor": "doctor.md", "contract":
    "contract.md", "copy": "copy.md", "rewind": "rewind.md", "sources": "sources.md", "check":
    "check.md", "transformers": "transformers.md",
}  # fmt: skip
"""The commands, and the page of ``docs/`` about each."""


def assemble() -> None:
    """Copy the pages and what they link to, and write the landing page and those of the commands."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    patterns = ["*.md", "docs/images", "docs/site.css", "examples", "action.yml", "ttlsnap/*/*schema.json", "LICENSE"]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        # The site has no hidden files: a link to one is broken, also where MkDocs would only mention it.
        if not any(part.startswith(".") for part in Path(name).parts):
            (SOURCES / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, SOURCES / name)
    (SOURCES / "README.md").unlink()
    landing = (SOURCES / "docs" / "index.md").rename(SOURCES / "index.md")
    landing.write_text(from_top(landing.read_text()))
    (SOURCES / "docs" / "commands").mkdir()
    for command in GUIDES:
        (SOURCES / "docs" / "commands" / f"{command}.md").write_text(command_page(command))


def from_top(page: str) -> str:
    """Return a page of ``docs/`` with links that begin at the top of the site."""
    return re.sub(r"(?<=\]\()(?!https?:|#)([^)]+)", lambda link: os.path.normpath(f"docs/{link[0]}"), page)


def command_page(command: str) -> str:
    """Return the page of a command: its help, and a link to its guide."""
    guide = GUIDES[command]
    title = re.search(r"^# (.+)$", (ROOT / "docs" / guide).read_text(), re.MULTILINE)
    assert title is not None
    intro = f"`ttlsnap {command} --help` prints this. Guide: [{title[1]}](../{guide}). [Exit codes](../exit-codes.md)."
    return f"# ttlsnap {command}\n\n{intro}\n\n```text\n{help_of(command)}\n```\n"


def help_of(command: str) -> str:
    """Return what ``--help`` of a command prints, in 100 columns."""
    script = Path(sys.executable).with_name("ttlsnap")
    environment = {**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    done = subprocess.run([script, command, "--help"], env=environment, check=True, capture_output=True, text=True)
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


if __name__ == "__main__":
    assemble()
