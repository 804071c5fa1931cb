"""The option OLD=NEW of ``check`` and ``migrate``, whose names can be expressions that have equations themselves."""

from __future__ import annotations

import re

from ttlsnap.errors import UsageError


def parse_rename(option: str, text: str) -> tuple[str, str]:
    """Return the old and the new name. Raise UsageError if there are not two.

    The sides of an equation in an expression have spaces around them, and those of the option need none.
    """
    from ttlsnap.check.trees import QUOTED

    separators = (match for match in re.finditer(rf"{QUOTED}|(?<=[^\s<>=!])=(?=[^\s>=])", text) if match[0] == "=")
    place = next((match.start() for match in separators), text.find("="))
    old, new = text[: max(place, 0)].strip(), text[place + 1 :].strip()
    if not old or not new:
        raise UsageError(f"{option} is OLD=NEW, the two names of a column or two expressions, not {text!r}")
    return old, new
