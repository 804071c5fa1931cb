"""The parts of a page, as data. All texts are plain; the template escapes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ttlsnap.pages.svg import Chart


class Tone(StrEnum):
    """What a result means for the reader; the names are classes of the style sheet."""

    PLAIN = "plain"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class Tile:
    """One number, with what it counts, and a note below it."""

    label: str
    value: str
    note: str = ""
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Marked:
    """A cell of a table with a tone."""

    text: str
    tone: Tone


Cell = str | Marked


@dataclass(frozen=True)
class Table:
    """A table.

    The columns in ``right`` are numbers, those in ``code`` are names from the state or paths, and the cells of those in
    ``whole`` are on one line. A ``folded`` table has nothing but the numbers of a chart, and opens with a click.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    right: Sequence[str] = ()
    code: Sequence[str] = ()
    whole: Sequence[str] = ()
    folded: bool = False


@dataclass(frozen=True)
class Card:
    """A finding, a problem or a warning: its title, its place, its text, and labelled lines."""

    tone: Tone
    mark: str
    title: str
    place: str = ""
    text: str = ""
    lines: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Section:
    """A heading with what belongs to it, in this order: texts, charts, tables, cards."""

    heading: str
    texts: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    cards: Sequence[Card] = ()


@dataclass(frozen=True)
class Page:
    """A page: the ``answer`` is one sentence about what was found or done. A ``banner`` is above everything else."""

    answer: str
    target: str
    tone: Tone = Tone.PLAIN
    banner: str = ""
    tiles: Sequence[Tile] = ()
    sections: Sequence[Section] = ()


def facts(caption: str, names_and_values: Sequence[tuple[str, str | None]]) -> Table:
    """Return a table of facts by name, without those that are unknown."""
    rows = [(name, value) for name, value in names_and_values if value]
    return Table(caption, ("fact", "value"), rows, code=("value",))
