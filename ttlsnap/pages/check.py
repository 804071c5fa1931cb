"""The page of ``check``. It quotes both queries, and never entries: the document has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ttlsnap.amounts import quantity
from ttlsnap.pages.model import Card, Page, Section, Table, Tile, Tone
from ttlsnap.pages.privacy import tell
from ttlsnap.pages.svg import Bar, bar_chart

Document = Mapping[str, Any]

_VERDICTS = ("incompatible", "unknown", "after_migration", "reconfiguration", "as_is")
_TONES = {"incompatible": Tone.BAD, "as_is": Tone.GOOD}
_COLOURS = {Tone.BAD: "bad", Tone.GOOD: "good"}
_ANSWERS = {
    "as_is": "The new query can continue with the old state.",
    "reconfiguration": "The new query can continue with the old state after a change of a setting.",
    "after_migration": "The new query can continue after the state has been migrated.",
    "unknown": "It is unknown whether the new query can continue with the old state.",
    "incompatible": "The new query cannot continue with the old state.",
}


def check_page(document: Document, show_keys: bool) -> Page:
    """Return the page of a check: its verdict, and each finding, the worst first."""
    findings = sorted(document["findings"], key=lambda finding: _VERDICTS.index(finding["verdict"]))
    counts = Counter(finding["verdict"] for finding in findings)
    verdict = document["verdict"]
    tone = _TONES.get(verdict, Tone.WARNING)
    return Page(
        answer=_ANSWERS[verdict],
        target=f"{document['old']} → {document['new']}",
        tone=tone,
        tiles=[
            Tile("verdict", verdict, document["direction"], tone),
            Tile("findings", str(len(findings))),
            Tile("not compared", str(len(document["unseen"]))),
            Tile("ignored", str(len(document["ignored"]))),
        ],
        sections=[*_findings(findings, counts), *_next(document), *_rest(document, show_keys)],
    )


def _findings(findings: list[Document], counts: Counter[str]) -> Iterator[Section]:
    if not findings:
        return
    present_verdicts = [verdict for verdict in _VERDICTS if counts[verdict]]
    bars = [
        Bar(verdict, counts[verdict], str(counts[verdict]), _COLOURS.get(_TONES.get(verdict, Tone.WARNING), "warning"))
        for verdict in present_verdicts
    ]
    charts = [bar_chart("Findings by verdict", bars)] if len(findings) > 1 else []
    rows = [(verdict, str(counts[verdict])) for verdict in present_verdicts]
    tables = [Table("Findings by verdict", ("verdict", "findings"), rows, ("findings",), folded=True)] if charts else []
    yield Section("Findings", charts=charts, tables=tables, cards=[_card(finding) for finding in findings])


def _card(finding: Document, reason: str = "") -> Card:
    is_silent = finding["spark"] == "silent"
    lines = [
        ("old", finding["old"]),
        ("new", finding["new"]),
        ("Spark", "starts without a message" if is_silent else finding["spark"]),
        ("what to do", finding["fix"]),
        ("ignored because", reason),
    ]
    tone = _TONES.get(finding["verdict"], Tone.WARNING)
    filled_lines = [(label, text) for label, text in lines if text]
    return Card(tone, finding["verdict"], finding["code"], _place(finding), finding["message"], filled_lines)


def _place(finding: Document) -> str:
    names = [(name, finding[name]) for name in ("operator", "store", "state", "field") if finding[name] is not None]
    return ", ".join(f"{name} {value}" for name, value in names) or "the query"


def _next(document: Document) -> Iterator[Section]:
    cards = [
        Card(Tone.PLAIN, "next", message, text=document[key])
        for key, message in (
            ("next", "This command makes the state fit:"),
            ("next_back", "This command makes the state fit the old query again:"),
        )
        if document[key] is not None
    ]
    if cards:
        yield Section("Next", cards=cards)


def _rest(document: Document, show_keys: bool) -> Iterator[Section]:
    if document["unseen"]:
        rows = [(tell(line, show_keys),) for line in document["unseen"]]
        table = Table("Not compared", ("what, and why",), rows)
        yield Section("Not compared", tables=[table])
    if document["ignored"]:
        count_text = (
            f"{quantity(len(document['ignored']), 'finding')} is accepted and does"
            if len(document["ignored"]) == 1
            else f"{quantity(len(document['ignored']), 'finding')} are accepted and do"
        )
        yield Section(
            "Ignored findings",
            [f"{count_text} not count for the verdict."],
            cards=[_card(finding, finding["reason"]) for finding in document["ignored"]],
        )
    if document["unused_ignores"]:
        table = Table("Unused ignores", ("ignore",), [(line,) for line in document["unused_ignores"]])
        yield Section("Unused ignores", tables=[table])
