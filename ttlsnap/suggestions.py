"""Suggestions for names that are mistyped."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_ENOUGH = 0.6
_MOST = 3


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return `` (did you mean X or Y?)`` with the names that are most like ``word``; "" if none is."""
    words = list(words)
    if word in words:
        return ""
    likeness = {name: _likeness(word, name) for name in words}
    names = sorted((name for name in likeness if likeness[name] >= _ENOUGH), key=lambda name: -likeness[name])
    return f" (did you mean {' or '.join(names[:_MOST])}?)" if names else ""


def _likeness(word: str, name: str) -> float:
    """Return a number from 0 to 1. ``count`` is as much like ``value.count`` as like ``count``."""
    word_parts, name_parts = word.lower().split("."), name.lower().split(".")
    while len(word_parts) > 1 and len(name_parts) > 1 and word_parts[0] == name_parts[0]:
        word_parts, name_parts = word_parts[1:], name_parts[1:]  # otherwise value.a would be like value.b
    candidates = [".".join(name_parts), name_parts[-1]] if len(word_parts) == 1 else [".".join(name_parts)]
    return max(SequenceMatcher(None, ".".join(word_parts), candidate).ratio() for candidate in candidates)
