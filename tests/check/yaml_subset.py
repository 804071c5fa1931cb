"""A strict parser for the part of YAML that the examples use. Anything else is an error.

It reads mappings and lists by indentation, lines of text, quoted text, ``|`` blocks, and comments on lines of their
own. A parser of all of YAML would be a dependency for three files.
"""

from __future__ import annotations

import json
import re
from typing import Any

_PAIR = re.compile(r"([\w.-]+):(?: (.+))?")


def load(text: str) -> Any:
    if "\t" in text:
        raise ValueError("a tab")
    lines = text.split("\n")
    value, at = _node(lines, _next(lines, 0), 0)
    if _next(lines, at) != len(lines):
        raise ValueError(f"line {_next(lines, at) + 1} belongs to nothing")
    return value


def _next(lines: list[str], at: int) -> int:
    """Return the number of the next line that is neither empty nor a comment."""
    while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
        at += 1
    return at


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _node(lines: list[str], at: int, depth: int) -> tuple[Any, int]:
    return _list(lines, at, depth) if lines[at][depth:].startswith("- ") else _mapping(lines, at, depth)


def _list(lines: list[str], at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while at < len(lines) and _depth(lines[at]) == depth and lines[at][depth:].startswith("- "):
        rest = lines[at][depth + 2 :]
        if _PAIR.fullmatch(rest):
            # The mapping begins on the line of the dash, two columns deeper.
            lines[at] = " " * (depth + 2) + rest
            value, at = _mapping(lines, at, depth + 2)
        else:
            value, at = _scalar(rest), _next(lines, at + 1)
        found.append(value)
    return found, at


def _mapping(lines: list[str], at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while at < len(lines) and _depth(lines[at]) == depth:
        pair = _PAIR.fullmatch(lines[at][depth:])
        if pair is None or pair[1] in found:
            raise ValueError(f"line {at + 1} is no new key: {lines[at]}")
        if pair[2] == "|":
            found[pair[1]], at = _block(lines, at + 1, depth)
        elif pair[2] is not None:
            found[pair[1]], at = _scalar(pair[2]), _next(lines, at + 1)
        else:
            at = _next(lines, at + 1)
            if at == len(lines) or _depth(lines[at]) <= depth:
                raise ValueError(f"line {at}: nothing follows {pair[1]}")
            found[pair[1]], at = _node(lines, at, _depth(lines[at]))
    if at < len(lines) and _depth(lines[at]) > depth:
        raise ValueError(f"line {at + 1} is indented too far")
    return found, at


def _block(lines: list[str], at: int, depth: int) -> tuple[str, int]:
    inner, end = _depth(lines[at]), at
    while end < len(lines) and (not lines[end].strip() or _depth(lines[end]) > depth):
        if lines[end].strip() and _depth(lines[end]) < inner:
            raise ValueError(f"line {end + 1} is indented less than its block")
        end += 1
    return "\n".join(line[inner:] for line in lines[at:end]).rstrip("\n") + "\n", _next(lines, end)


def _scalar(text: str) -> Any:
    if text.startswith('"'):
        return json.loads(text)
    if text.startswith("'"):
        if not re.fullmatch(r"'[^']*'", text):
            raise ValueError(f"not one quoted text: {text}")
        return text[1:-1]
    if text[0] in "[]{}&*!|>%@`,?:#-" or ": " in text or " #" in text or text.endswith((":", " ")):
        raise ValueError(f"text that has to be quoted: {text}")
    if text.lower() in ("null", "~", "yes", "no", "on", "off"):
        raise ValueError(f"a word that means different things to different readers: {text}")
    return {"true": True, "false": False}.get(text, text)
