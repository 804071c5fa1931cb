"""Texts that quote keys or values of entries. What prints such a text decides whether it shows them.

    raise RefusedError(f"{target}: several rows have the key " + quote(key) + ". Nothing was changed")
    warning = "the next run will archive them: " + error.text

``str`` is the whole text, and ``without_keys`` the same without what it quotes. Put such texts together with ``+``: an
f-string only takes the whole text.
"""

from __future__ import annotations

NOT_SHOWN = "[not shown]"


class Quoting(str):
    """A text that quotes keys or values of entries, and the same text ``without_keys``."""

    without_keys: str

    def __new__(cls, text: str, without_keys: str = NOT_SHOWN) -> Quoting:
        made = super().__new__(cls, text)
        made.without_keys = without_keys
        return made

    def __add__(self, other: str) -> Quoting:
        return Quoting(str.__add__(self, other), self.without_keys + without_keys(other))

    def __radd__(self, other: str) -> Quoting:
        return Quoting(str.__add__(other, self), without_keys(other) + self.without_keys)

    def __reduce__(self) -> tuple[type[Quoting], tuple[str, str]]:
        return Quoting, (str(self), self.without_keys)


def quote(entry: object) -> Quoting:
    """Return a key or a value of an entry, or a text that may contain some, as a part of a text."""
    return Quoting(str(entry))


def quotes_nothing(text: str) -> Quoting:
    """Return a text that is known to quote no entry, for an error of a class whose messages may."""
    return Quoting(text, text)


def without_keys(text: str) -> str:
    """Return a text without the keys and values that it quotes."""
    return text.without_keys if isinstance(text, Quoting) else text
