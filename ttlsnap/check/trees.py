"""The expressions in a query's plan as trees.

Spark puts every operation in parentheses, apart from those with an interval. So a text is split at its parentheses,
brackets and commas, and at the few operators that can be between these. The rest stays as it is: names, literals, and
words such as ``CASE WHEN``. Nothing is lost: the texts of equal trees are equal, apart from the order of the two sides
of an equation, which has no meaning.

A contract is not trusted, and its texts can be nested to any depth. So no function here calls itself for each level.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import pairwise

QUOTED = r"'[^'\\]*(?:\\.[^'\\]*)*'?"
"""The pattern of a text in quotes. One without an end reaches to the end of the expression."""

CAST = "cast(? as ?)"
_EQUATIONS = ("(? = ?)", "(? <=> ?)")
# Operators that can be without parentheses of their own, the loosest first.
_OPERATORS = ((" as ",), (" = ", " <=> ", " < ", " <= ", " > ", " >= "), (" + ", " - "))
_EVERY_OPERATOR = [operator for operators in _OPERATORS for operator in operators]
_BETWEEN_TWO = {f"?{operator}?" for operator in _EVERY_OPERATOR}
_MOST_PIECES = 300
"""The longest sequence that is copied into another one: copying longer ones again and again would take long."""
_CLOSING = {"(": ")", "[": "]", "<": ">"}
_TOKEN = re.compile(
    rf"{QUOTED}"
    r"|, "
    rf"|{'|'.join(map(re.escape, _EVERY_OPERATOR))}"
    r"|INTERVAL '[^']*' [A-Z]+(?: TO [A-Z]+)?"
    r"|\d{1,18} (?:second|minute|hour|day|week)s?\b"
    r"|(?P<opening>[\w.$~]*\(|\[|\w+<(?=\w))"  # of a function, whose name may be empty, of an index, of a type
    r"|[\w.]+"
    r"|.",
    re.DOTALL,
)


class Tree:
    """An expression. Its ``form`` is its text with a ``?`` for each of its ``parts``: ``sum(?)``, ``(? = ?)``, ``ts``.

    A tree without parts is a name, a literal, an operator or a space. A form with nothing but ``?`` is a sequence of
    these. ``has_cast`` says that there is a cast in one of the parts. Trees are equal if their digests are.
    """

    __slots__ = ("digest", "form", "has_cast", "parts")

    def __init__(self, form: str, parts: Sequence[Tree] = ()) -> None:
        self.form = form
        self.parts: tuple[Tree, ...] = tuple(sorted(parts, key=_digest_of) if form in _EQUATIONS else parts)
        self.has_cast: bool = any(part.has_cast or part.form.startswith("cast(") for part in self.parts)
        own_content = f"{len(self.parts)} {form}".encode(errors="surrogatepass")
        content = b"".join([own_content, *(part.digest for part in self.parts)])
        self.digest: bytes = blake2b(content, digest_size=16).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def is_sequence(self) -> bool:
        """Whether this is a sequence of parts, without a function or an operator."""
        return bool(self.parts) and self.form == "?" * len(self.parts)


def _digest_of(tree: Tree) -> bytes:
    return tree.digest


def parse(text: str) -> Tree:
    """Return the tree of an expression. If its parentheses do not match, that is a tree without parts."""
    unclosed = [_Begun("")]
    for match in _TOKEN.finditer(text):
        token = match[0]
        if match["opening"]:
            unclosed.append(_Begun(token))
        elif token == unclosed[-1].closing:
            tree = unclosed.pop().close()
            unclosed[-1].arguments[-1].append(tree)
        elif token in (")", "]"):
            return Tree(text)
        elif token == ", ":
            unclosed[-1].arguments.append([])
        else:
            unclosed[-1].arguments[-1].append(Tree(token))
    return unclosed[0].close() if len(unclosed) == 1 else Tree(text)


class _Begun:
    """A part of an expression that begins with ``opening`` and has not ended: its arguments, each as its pieces."""

    def __init__(self, opening: str) -> None:
        self.opening, self.closing = opening, _CLOSING.get(opening[-1:], "")
        self.arguments: list[list[Tree]] = [[]]

    def close(self) -> Tree:
        """Return the tree of the part."""
        parts = [_join(pieces) for pieces in self.arguments] if self.arguments != [[]] else []
        if len(parts) == 1:
            (only_part,) = parts
            if not self.opening:
                return only_part
            if self.opening in ("(", "cast(") and only_part.form in _BETWEEN_TWO:
                return Tree(f"{self.opening}{only_part.form}{self.closing}", only_part.parts)
        return Tree(self.opening + ", ".join("?" * len(parts)) + self.closing, parts)


def _join(pieces: Sequence[Tree]) -> Tree:
    """Return one tree for the pieces between two commas."""
    if len(pieces) == 1:
        return pieces[0]
    for operators in _OPERATORS:
        places = [place for place, piece in enumerate(pieces) if piece.form in operators]
        if places:
            tree = _join(pieces[: places[0]])
            for place, end in pairwise([*places, len(pieces)]):
                tree = Tree(f"?{pieces[place].form}?", [tree, _join(pieces[place + 1 : end])])
            return tree
    return _make_sequence(pieces)


def _make_sequence(pieces: Sequence[Tree]) -> Tree:
    """Return one sequence of the pieces. A sequence among them becomes a part of it, unless that would take long."""
    inner = (piece.parts if piece.is_sequence and len(piece.parts) < _MOST_PIECES else (piece,) for piece in pieces)
    parts = [part for piece_parts in inner for part in piece_parts]
    return Tree("?" * len(parts), parts)


def rewrite(tree: Tree, rule: Callable[[Tree, Tree], Tree]) -> Tree:
    """Return the tree with ``rule`` applied to each part and to the whole, the inner ones first.

    The rule gets a part as it was, and the same part with its inner parts rewritten. It returns the new part.
    """
    all_parts = [tree]
    for part in all_parts:  # the loop appends to the list
        all_parts += part.parts
    rewritten: dict[int, Tree] = {}
    for part in reversed(all_parts):
        parts = [rewritten[id(inner)] for inner in part.parts]
        rewritten[id(part)] = rule(part, _make_sequence(parts) if part.is_sequence else Tree(part.form, parts))
    return rewritten[id(tree)]
