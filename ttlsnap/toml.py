"""TOML files that users write, with errors that name the line and show what to write instead."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from typing import Any

from ttlsnap.errors import UsageError

_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_UNQUOTED = re.compile(r"\s*([\w.\"-]+)\s*=\s*([^\s\[{\"'#][^\"'#]*?)\s*(?:#.*)?")
_OF_VALUES = ("Invalid value", "Expected newline")
_BOOLEANS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
_MOST_SHOWN = 12
"""The longest value that a message repeats. A longer one can be a secret, such as the address of a webhook."""


def parse_toml(data: bytes, path: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the document in ``data``, the content of the file ``path``. Raise UsageError if it is not TOML."""
    text = ""
    try:
        text = data.decode()
        return tomllib.loads(text, parse_float=parse_float)
    except (ValueError, RecursionError) as error:  # not UTF-8, or not TOML
        found = _LINE.search(str(error))
        if found is None:
            raise UsageError(f"{path} is not TOML: {error}") from error
        number, mistake = int(found[1]), _LINE.sub("", str(error))
        if mistake.startswith(_OF_VALUES):
            mistake = _unquoted(text.split("\n")[number - 1]) or mistake
        raise UsageError(f"{path}:{number}: {mistake}") from error


def _unquoted(line: str) -> str | None:
    """Return what to write instead of a value that lacks its quotes; None if the line has another mistake."""
    found = _UNQUOTED.fullmatch(line)
    if found is None:
        return None
    name, value = found.groups()
    instead = _BOOLEANS.get(value.lower())
    shown = value if len(value) <= _MOST_SHOWN else "..."
    mended = f"write {name} = {instead}" if instead else f'a text needs quotes: {name} = "{shown}"'
    return f"{name} = {shown}: {mended}"
