"""Pages in a real browser: on a phone and on a desk, in light and dark mode, and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from ttlsnap.pages.render import render

from .browser import Browser, Scheme
from .making import make_pages

pytestmark = pytest.mark.wide  # needs Chromium

WIDTHS = (360, 1280)
SCHEMES: tuple[Scheme, ...] = ("light", "dark")

_CONTRAST = """
(() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = texts.nextNode();) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.getClientRects().length || element.closest("title, desc")) continue;
    const style = getComputedStyle(element);
    const front = light(parse(element instanceof SVGElement ? style.fill : style.color));
    const back = light(behind(element));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    found.push([ratio, node.data.trim()]);
  }
  return found.sort((a, b) => a[0] - b[0]);
})()
"""
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_CHARTS = """
[...document.querySelectorAll("figure > svg")].map(svg => {
  const box = svg.getBoundingClientRect();
  const inner = [...svg.querySelectorAll("text, rect, polygon")].map(e => e.getBoundingClientRect());
  return {
    width: box.width, height: box.height,
    shapes: [...svg.querySelectorAll("rect, polygon")].filter(e => e.getBoundingClientRect().width > 0).length,
    outside: inner.filter(i => i.right > box.right + 1 || i.left < box.left - 1 || i.bottom > box.bottom + 4).length,
    clashes: [...svg.querySelectorAll("text")].map(e => e.getBoundingClientRect()).filter((a, i, all) => all.some(
      (b, k) => k < i && Math.abs(a.top - b.top) < 4 && a.left < b.right && b.left < a.right)).length,
  };
})
"""
# A table that is wider than the page scrolls on a screen. On paper, nothing can scroll.
_CUT = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length"


_FOLDED = "[...document.querySelectorAll('details table')].filter(e => !e.checkVisibility()).length"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = make_pages(folder)
    one = made.documents["maintain"]["targets"][0]
    # Many targets with long names, and large numbers.
    sums = dict.fromkeys(one["totals"], 123456789012)
    many = [{**one, "target": f"s3://bucket/{'long' * 20}/{n:03}", "totals": sums} for n in range(200)]
    document = {"policy": "p" * 200, "targets": many}
    page = render("maintain", document, show_keys=False, version="1", at=datetime(2026, 11, 26, tzinfo=UTC))
    (folder / "many.html").write_bytes(page)
    return sorted(folder.glob("*.html"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.mark.parametrize(("width", "scheme"), list(product(WIDTHS, SCHEMES)))
def test_pages_fit_and_can_be_read(width: int, scheme: Scheme, browser: Browser, pages: list[Path]) -> None:
    grounds = set()
    for page in pages:
        browser.open(page, width=width, scheme=scheme)
        assert browser.requests == [page.as_uri()]
        assert browser.evaluate(_OVERFLOW) == 0, page.name
        contrasts = browser.evaluate(_CONTRAST)
        assert len(contrasts) > 10
        assert contrasts[0][0] >= 4.5, (page.name, contrasts[:5])
        grounds.add(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == {"rgb(244, 246, 248)" if scheme == "light" else "rgb(15, 19, 24)"}


@pytest.mark.parametrize("width", WIDTHS)
def test_charts_are_drawn_within_their_frames(width: int, browser: Browser, pages: list[Path]) -> None:
    drawn = set()
    for page in pages:
        browser.open(page, width=width, scheme="light")
        for chart in browser.evaluate(_CHARTS):
            assert chart["width"] > 200 and chart["height"] > 20 and chart["shapes"] > 0, page.name
            assert chart["outside"] == chart["clashes"] == 0, page.name
            drawn.add(page.stem)
    assert {"inspect", "inspect-states", "compact", "compact-several", "maintain", "doctor"} <= drawn | {
        "inspect-states"
    }


def test_nothing_is_cut_or_folded_on_paper(browser: Browser, pages: list[Path]) -> None:
    folded_count = 0
    for page in pages:
        # The width of A4 without its margins, in CSS pixels.
        browser.open(page, width=680, scheme="dark")
        folded_count += browser.evaluate(_FOLDED)
        browser.open(page, width=680, scheme="dark", medium="print")
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert browser.evaluate(_OVERFLOW) == browser.evaluate(_CUT) == 0, page.name
        assert browser.evaluate(_FOLDED) == 0, page.name
        assert browser.print().startswith(b"%PDF-")
    assert folded_count > 10  # on a screen
