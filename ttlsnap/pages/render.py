"""A page as HTML, with Jinja2. Every text is escaped."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from ttlsnap.pages.check import check_page
from ttlsnap.pages.compact import compact_page
from ttlsnap.pages.doctor import doctor_page
from ttlsnap.pages.inspect import inspect_page
from ttlsnap.pages.maintain import maintain_page
from ttlsnap.pages.model import Page
from ttlsnap.printable import printable_lines

MARK = b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="generator" content="ttlsnap '
"""The beginning of every page, by which ttlsnap knows a file that it may replace."""

_PAGES: dict[str, Callable[[Any, bool], Page]] = {
    "inspect": inspect_page,
    "compact": compact_page,
    "check": check_page,
    "doctor": doctor_page,
    "maintain": maintain_page,
}


def render(command: str, document: Any, *, show_keys: bool, version: str, at: datetime) -> bytes:
    """Return the page for a document that ``command --format json`` prints, made ``at`` a time in UTC.

    ``version`` is that of ttlsnap.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = _PAGES[command](document, show_keys)
    html = environment.get_template("page.html").render(
        page=page, command=command, show_keys=show_keys, version=version, at=f"{at:%Y-%m-%d %H:%M:%S} UTC"
    )
    return html.encode(errors="backslashreplace")


def _finalize(value: Any) -> Any:
    """Escape characters that do not print. A chart is HTML already."""
    return printable_lines(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
