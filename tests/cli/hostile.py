"""Names that harm who prints them: a colour, lines, a command to a build server, a change of direction."""

from __future__ import annotations

import subprocess
import unicodedata

EVIL = "a\x1b[31m\r\n::error::b\u202e\x9b ##[group]c"
"""A name that a folder and a column can have."""
GOOD = "Größe 東京 👨‍👩‍👧"
"""An unusual name that stays readable."""


def require_harmless(text: str, *, is_log: bool = True) -> None:
    """Assert that a terminal obeys nothing in this text, nor a build server if it ``is_log``."""
    found = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\u200d"}
    assert not found, (found, text)
    for line in text.splitlines() if is_log else ():
        assert not line.lstrip().startswith("::"), text
        assert "##[" not in line, text


def words_of(command: str) -> list[str]:
    """Return the words of a command, as bash reads them."""
    told = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True)
    return told.stdout.decode().split("\0")[:-1]
