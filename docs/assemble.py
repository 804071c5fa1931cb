"""Assemble the sources of the documentation site in build/site-sources, for ``make docs``.

Pages keep their places in the repository, so that their links work both there and on the site. The page of commands is
made from their own help.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "build" / "site-sources"
COMMANDS = (
    "inspect", "export", "import", "diff", "compact", "explain", "migrate", "maintain", "rollback", "recover",
    "history", "doctor", "contract", "check", "transformers",
)  # fmt: skip


def assemble() -> None:
    """Copy the pages and what they link to, and write the page of commands."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    patterns = ["*.md", "docs/images", "examples", "ttlsnap/contract/*.json", "LICENSE"]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if not name.startswith("."):
            (SOURCES / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, SOURCES / name)
    (SOURCES / "docs" / "commands.md").write_text(commands_page())


def commands_page() -> str:
    """Return the page with the help of every command."""
    parts = ["# Commands\n\nThis page shows the help of each command, as `ttlsnap COMMAND --help` prints it.\n"]
    for command in COMMANDS:
        parts.append(f"## {command}\n\n```text\n{help_of(command)}\n```\n")
    return "\n".join(parts)


def help_of(command: str) -> str:
    """Return what ``--help`` of a command prints, in 100 columns."""
    script = Path(sys.executable).with_name("ttlsnap")
    environment = {**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    done = subprocess.run([script, command, "--help"], env=environment, check=True, capture_output=True, text=True)
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


if __name__ == "__main__":
    assemble()
