"""Charts as SVG within a page: bars, parts of a whole, a line of time, a curve, and many values in their order.

Widths are percentages and heights are pixels, so that the text keeps its size on a phone and on paper. Colours are
classes of the page's style sheet. A chart has a title and a description for people who do not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from ttlsnap.amounts import quantity
from ttlsnap.printable import printable_lines

_LINE = 38
"""The most characters of a label and its number together, so that they fit on a phone."""

_LINE_HEIGHT = 17
_ROW = 36
_BAR = 10


class Markup(str):
    """A text that is HTML already. The template engine asks for ``__html__``, and does not escape it again."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Bar:
    """One bar: its label, its value, the value in words, and the class of its colour."""

    label: str
    value: float
    words: str
    colour: str = "accent"


@dataclass(frozen=True)
class CutOff:
    """A line below the bar number ``after`` (the first is 1; 0 is above all), with what it means."""

    after: int
    label: str


@dataclass(frozen=True)
class Chart:
    """A chart: its title, what it shows in words, its height in pixels, and the elements within."""

    title: str
    description: str
    height: int
    elements: Sequence[Element]

    def draw(self, name: str) -> Markup:
        """Return the chart as SVG. ``name`` is unique within the page."""
        ids = {"aria-labelledby": f"{name}-title", "aria-describedby": f"{name}-text"}
        svg = Element("svg", {"role": "img", "width": "100%", "height": str(self.height), **ids})
        SubElement(svg, "title", id=f"{name}-title").text = printable_lines(self.title)
        SubElement(svg, "desc", id=f"{name}-text").text = printable_lines(self.description)
        svg.extend(self.elements)
        return Markup(ElementTree.tostring(svg, encoding="unicode"))


def bar_chart(title: str, bars: Sequence[Bar], cut_off: CutOff | None = None) -> Chart:
    """Return a bar for each value, one below the other. With ages, this is a histogram with its ``cut_off``."""
    largest = max((bar.value for bar in bars), default=0) or 1
    elements: list[Element] = []
    top = 0
    for number, bar in enumerate(bars):
        if cut_off is not None and cut_off.after == number:
            elements += _cut_off_line(top, cut_off.label)
            top += 22
        texts = _texts(top + 14, bar.label, bar.words)
        top += _further_lines(texts)
        elements += [
            *texts,
            _rect(0, top + 20, 100, "track"),
            _rect(0, top + 20, _share(bar.value, largest), bar.colour),
        ]
        top += _ROW
    if cut_off is not None and cut_off.after >= len(bars):
        elements += _cut_off_line(top, cut_off.label)
        top += 22
    description = "; ".join(f"{bar.label}: {bar.words}" for bar in bars)
    return Chart(title, f"{description}. {cut_off.label}." if cut_off else f"{description}.", max(top - 4, 4), elements)


def parts_chart(title: str, parts: Sequence[Bar]) -> Chart:
    """Return one bar that consists of parts, with a line for each part."""
    total = sum(part.value for part in parts) or 1
    elements, left_edge, top = [_rect(0, 2, 100, "track", 22)], 0.0, 34
    for part in parts:
        if part.value:
            width = _share(part.value, total)
            elements.append(_rect(left_edge, 2, min(width, 100 - left_edge), part.colour, 22))
            left_edge += 100 * part.value / total
    for part in parts:
        mark = {"x": "0", "y": str(top + 4), "width": "11", "height": "11", "rx": "2", "class": part.colour}
        elements += [Element("rect", mark), *_texts(top + 14, part.label, part.words, left="18")]
        top += 24
    description = "; ".join(f"{part.label}: {part.words}" for part in parts)
    return Chart(title, f"{description}.", top - 4, elements)


def time_chart(title: str, oldest: float, newest: float, cut_off: float, words: tuple[str, str, str]) -> Chart:
    """Return a line from the oldest to the newest time. What is up to the cut-off has the colour of dropped entries.

    ``words`` are the oldest and the newest time, and the cut-off.
    """
    duration = newest - oldest
    cut_off_at = (
        100 * min(max((cut_off - oldest) / duration, 0), 1) if duration > 0 else 100.0 if oldest <= cut_off else 0.0
    )
    anchor = "start" if cut_off_at < 33 else "end" if cut_off_at > 67 else "middle"
    label = _text(cut_off_at, 13, f"cut-off {words[2]}", anchor, "label")
    cut_off_line = Element(
        "line", {"x1": _percent(cut_off_at), "x2": _percent(cut_off_at), "y1": "18", "y2": "54", "class": "cut-off"}
    )
    elements = [
        _rect(0, 26, 100, "accent", 20),
        *([_rect(0, 26, cut_off_at, "drop", 20)] if cut_off_at else []),
        label,
        cut_off_line,
        *_ends(70, words[0], words[1]),
    ]
    description = (
        f"The times are from {words[0]} to {words[1]}. The cut-off is {words[2]}: entries up to it have expired."
    )
    return Chart(title, description, 78, elements)


def line_chart(title: str, points: Sequence[tuple[float, float]], ends: tuple[str, str], largest_text: str) -> Chart:
    """Return a curve through points, each a place and a value.

    ``ends`` are the first and the last place in words, ``largest_text`` is the highest value.
    """
    first_place, last_place = (points[0][0], points[-1][0]) if points else (0.0, 0.0)
    highest = max((value for _, value in points), default=0) or 1
    scaled_points = [
        (_share(place - first_place, (last_place - first_place) or 1, 0), 100 - 96 * value / highest)
        for place, value in points
    ]
    description = f"From {ends[0]} to {ends[1]}; the highest value is {largest_text}."
    return Chart(
        title, description, 190, [*_curve(scaled_points), *_texts(13, f"up to {largest_text}", ""), *_ends(184, *ends)]
    )


def ranked_chart(title: str, values: Sequence[float], words: tuple[str, str]) -> Chart:
    """Return all values from the largest to the smallest, as one area. ``words`` are these two."""
    ordered_values = sorted(values, reverse=True)
    largest, count = (ordered_values[0] or 1) if ordered_values else 1, len(ordered_values)
    step = max(1, count // 400)  # no screen shows more
    tops = [(100 * number / count, 100 - 96 * ordered_values[number] / largest) for number in range(0, count, step)]
    scaled_points = [point for x, y in tops for point in ((x, y), (min(x + 100 * step / count, 100), y))]
    description = f"{quantity(count, 'value')}, from {words[0]} to {words[1]}."
    return Chart(title, description, 190, [*_curve(scaled_points), *_ends(184, *words)])


def break_label(label: str, first: int, other: int = _LINE) -> list[str]:
    """Return a label as lines: the first one of at most ``first`` characters, the others of at most ``other``.

    A line ends after a space or a slash, if there is one in its second half.
    """
    lines, limit = [], first
    while len(label) > limit:
        end = max(label.rfind(mark, limit // 2, limit) + 1 for mark in " /") or limit
        lines.append(label[:end].rstrip())
        label, limit = label[end:].lstrip(), other
    return [*lines, label]


def _share(value: float, total: float, least_share: float = 0.6) -> float:
    """Return a percentage. Something is never invisible."""
    return max(100 * value / total, least_share) if value else 0.0


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def _rect(left: float, top: float, width: float, colour: str, height: int = _BAR) -> Element:
    place = {"x": _percent(left), "y": str(top), "width": _percent(width), "height": str(height)}
    return Element("rect", {**place, "rx": "2", "class": colour})


def _text(x: float | str, y: float, text: str, anchor: str = "start", kind: str = "label") -> Element:
    place = x if isinstance(x, str) else _percent(x)
    element = Element("text", {"x": place, "y": str(y), "text-anchor": anchor, "class": kind})
    element.text = printable_lines(text)
    return element


def _texts(y: float, label: str, words: str, left: str = "0") -> list[Element]:
    """Return a text at the left, and one at the right. A long text at the left has further lines."""
    lines = break_label(printable_lines(label), _LINE - len(words))
    texts = [_text(left, y, lines[0]), *([_text("100%", y, words, "end", "value")] if words else [])]
    return [*texts, *(_text(left, y + _LINE_HEIGHT * number, line) for number, line in enumerate(lines[1:], 1))]


def _further_lines(texts: Sequence[Element]) -> int:
    """Return the height of the lines below the first one."""
    lines = {text.get("y") for text in texts}
    return _LINE_HEIGHT * (len(lines) - 1)


def _ends(y: float, first_label: str, last_label: str) -> list[Element]:
    """Return the texts at the two ends of an axis."""
    return [_text(0, y, first_label), _text(100, y, last_label, "end")]


def _cut_off_line(top: int, label: str) -> list[Element]:
    line = Element("line", {"x1": "0", "x2": "100%", "y1": str(top + 2), "y2": str(top + 2), "class": "cut-off"})
    return [line, _text("100%", top + 17, label, "end")]


def _curve(points: Sequence[tuple[float, float]]) -> list[Element]:
    """Return an area below points in percent, in a picture of its own that is stretched to the width of the chart."""
    view_box = {"x": "0", "y": "20", "width": "100%", "height": "146", "viewBox": "0 0 100 100"}
    picture = Element("svg", {**view_box, "preserveAspectRatio": "none"})
    path = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    if points:
        area = f"{points[0][0]:.2f},100 {path} {points[-1][0]:.2f},100"
        SubElement(picture, "polygon", {"points": area, "class": "area"})
        SubElement(picture, "polyline", {"points": path, "class": "curve"})
    SubElement(picture, "line", {"x1": "0", "x2": "100", "y1": "100", "y2": "100", "class": "axis"})
    return [picture]
