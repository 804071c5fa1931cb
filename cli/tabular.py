"""Tables of text: columns are as wide as their cells, which are never wrapped or truncated."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from ttlsnap.printable import printable

_GAP = "  "


class TextTable:
    """A header and rows of cells; the columns ``right`` are aligned to the right. Rich can print it."""

    def __init__(self, columns: Sequence[str], right: Sequence[str] = (), indent: str = "") -> None:
        self._columns, self._right, self._indent = list(columns), set(right), indent
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row with one cell for each column; a cell that is a ``Text`` keeps its style."""
        assert len(cells) == len(self._columns)
        self._rows.append([cell if isinstance(cell, Text) else Text(printable(cell)) for cell in cells])

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
