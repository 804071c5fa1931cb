"""Strict JSON for checkpoints. Spark writes plain JSON, so anything that could be read in two ways is an error.

Text must be UTF-8. No name occurs twice in one object, because parsers disagree on which one counts. Half of a
surrogate pair is refused, because no file and no terminal accepts it. Nesting beyond ``MAX_DEPTH`` is refused, so that
code that uses the value does not exhaust the stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

MAX_DEPTH = 400
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def parse_json(text: str | bytes, *, any_text: bool = False) -> Any:
    """Return the value of a JSON text; raises ValueError for any other text.

    ``any_text`` allows halves of surrogate pairs. They represent bytes of a path that is not UTF-8.
    """
    json_text = text if isinstance(text, str) else text.decode("utf-8")
    try:
        value = json.loads(json_text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    _check(value, 0, any_text)
    return value


def require_type(value: Any, kind: type) -> Any:
    """Return ``value`` if it is a ``kind``; raises TypeError otherwise, also for a boolean in place of a number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{repr(value)[:80]} is not a {kind.__name__}")
    return value


def require_keys(document: Any, names: Collection[str], where: str) -> None:
    """Raise TypeError or ValueError unless ``document`` is an object without other keys than ``names``."""
    unknown = sorted(require_type(document, dict).keys() - set(names))
    if unknown:
        raise ValueError(f"{where} has the unknown key {unknown[0][:80]!r}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the name {next(text for text in names if names.count(text) > 1)[:80]!r} occurs twice in an object"
        )
    return result


def _constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _check(value: Any, depth: int, any_text: bool) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        if not any_text and _HALF_PAIR.search(value):
            raise ValueError(f"{value[:80]!r} is not Unicode text")
    elif isinstance(value, dict):
        for name, inner_value in value.items():
            _check(name, depth + 1, any_text)
            _check(inner_value, depth + 1, any_text)
    elif isinstance(value, list):
        for inner_value in value:
            _check(inner_value, depth + 1, any_text)
