"""Tables of text: columns are as wide as their cells, which are never wrapped.

On a narrow terminal a table has fewer columns. If that is not enough, texts lose their middle. Numbers stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ttlsnap.printable import printable

_GAP = "  "
_ELLIPSIS = "..."
_SHORTEST = 12
"""The width below which no text is shortened."""


class TextTable:
    """A header and rows of cells; the columns ``right`` are aligned to the right. Rich can print it.

    ``spare`` are the columns that a narrow table leaves out, first to last.
    """

    def __init__(
        self, columns: Sequence[str], right: Sequence[str] = (), spare: Sequence[str] = (), indent: str = ""
    ) -> None:
        self._columns, self._right, self._spare, self._indent = list(columns), set(right), spare, indent
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row with one cell for each column; a cell that is a ``Text`` keeps its style."""
        assert len(cells) == len(self._columns)
        self._rows.append([cell if isinstance(cell, Text) else Text(printable(cell)) for cell in cells])

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""
        return self._columns

    def fitted(self, width: int) -> TextTable:
        """Return the table itself, or one that is not wider than ``width``, if possible."""
        fitted = self
        for name in self._spare:
            if fitted.width <= width:
                break
            fitted = fitted._without(name)
        return fitted if fitted.width <= width else fitted._shortened(width)

    def _without(self, name: str) -> TextTable:
        places = [place for place, column in enumerate(self._columns) if column != name]
        made = TextTable([self._columns[place] for place in places], tuple(self._right), indent=self._indent)
        made._rows = [[row[place] for place in places] for row in self._rows]
        return made

    def _shortened(self, width: int) -> TextTable:
        """Return the table with less of the widest columns of texts."""
        widths = self._widths
        texts = [place for place, name in enumerate(self._columns) if name not in self._right]
        while len(self._indent) + sum(widths) + len(_GAP) * (len(widths) - 1) > width and texts:
            widest = max(texts, key=lambda place: widths[place])
            if widths[widest] <= _SHORTEST:
                break
            widths[widest] -= 1
        made = TextTable(self._columns, tuple(self._right), indent=self._indent)
        made._rows = [[_shorten(cell, most) for cell, most in zip(row, widths, strict=True)] for row in self._rows]
        return made

    @property
    def width(self) -> int:
        """The width of a line in characters."""
        return len(self._indent) + sum(self._widths) + len(_GAP) * (len(self._columns) - 1)

    @property
    def _widths(self) -> list[int]:
        cells = [[Text(name), *(row[number] for row in self._rows)] for number, name in enumerate(self._columns)]
        return [max(cell_len(cell.plain) for cell in column) for column in cells]

    def __rich__(self) -> Text:
        header = self._line([Text(name, "bold") for name in self._columns])
        return Text("\n").join([header, *map(self._line, self._rows)])

    def _line(self, cells: Sequence[Text]) -> Text:
        line = Text(self._indent)
        for number, (name, cell, width) in enumerate(zip(self._columns, cells, self._widths, strict=True)):
            space = " " * (width - cell_len(cell.plain))
            line.append(_GAP if number else "")
            line.append_text(Text(space) + cell if name in self._right else cell + Text(space))
        line.rstrip()
        return line


def _shorten(cell: Text, width: int) -> Text:
    """Return a cell without its middle if it is wider than ``width``. Its end says more than its beginning."""
    text = cell.plain
    if cell_len(text) <= width:
        return cell
    start = (width - len(_ELLIPSIS)) // 3
    return Text(set_cell_size(text, start) + _ELLIPSIS + text[-(width - start - len(_ELLIPSIS)) :], cell.style)
