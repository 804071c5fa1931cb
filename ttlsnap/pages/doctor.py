"""The page of ``doctor``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ttlsnap.amounts import MISSING, number, quantity
from ttlsnap.pages.model import Card, Marked, Page, Section, Table, Tile, Tone, facts
from ttlsnap.pages.privacy import tell_problem, tell_reasons
from ttlsnap.pages.svg import Bar, parts_chart

Document = Mapping[str, Any]

_TONES = {"error": Tone.BAD, "warning": Tone.WARNING, "unknown": Tone.WARNING, "note": Tone.PLAIN}
_STATES = {"yes": Tone.GOOD, "no": Tone.BAD, "unknown": Tone.WARNING, "cleaned up": Tone.PLAIN}
_COLOURS = {"yes": "good", "no": "bad", "unknown": "warning", "cleaned up": "second"}


def doctor_page(document: Document, show_keys: bool) -> Page:
    """Return the page of an examination: the problems, the worst first, and the versions."""
    severities = Counter(problem["severity"] for problem in document["problems"])
    worst = next((severity for severity in _TONES if severities[severity]), None)
    versions = document["versions"]
    restorable_count = sum(version["state"] == "yes" for version in versions)
    problem_count = sum(severities[name] for name in ("error", "warning", "unknown"))
    tone = Tone.GOOD if not problem_count else _TONES[worst or "note"]
    return Page(
        answer=_answer(document, severities),
        target=document["target"],
        tone=tone,
        tiles=[
            Tile("problems", str(problem_count), _describe(severities), tone),
            Tile("restorable versions", f"{number(restorable_count)} of {number(len(versions))}"),
            Tile("entries", number(document["entries"]), counted_in(versions)),
            Tile("committed batch", number(document["batch"])),
        ],
        sections=[
            *_repairs(document),
            *_problems(document, show_keys),
            *_versions(versions, show_keys),
            _details(document),
        ],
    )


def _answer(document: Document, severities: Counter[str]) -> str:
    versions = document["versions"]
    newest = versions[0]["state"] if versions else "unknown"
    state = {
        "yes": "the newest version can be restored",
        "no": "the newest version cannot be restored",
    }.get(newest, "it is unknown whether the newest version can be restored")
    if not any(severities[name] for name in ("error", "warning", "unknown")):
        return f"Nothing is wrong: {state}."
    return f"ttlsnap found {_describe(severities)}; {state}."


def counted_in(versions: Sequence[Document]) -> str:
    """Return where the entries were counted."""
    is_whole = not versions or versions[0]["state"] == "yes"
    return "in the newest version" if is_whole else "in the partitions that can be read"


def _describe(severities: Counter[str]) -> str:
    nouns = {"error": "error", "warning": "warning", "unknown": "unknown thing", "note": "note"}
    return ", ".join(quantity(severities[name], noun) for name, noun in nouns.items() if severities[name])


def _repairs(document: Document) -> Iterator[Section]:
    if document["fixed"]:
        names = ", ".join(document["fixed"])
        text = (
            f"Run {document['run']} repaired: {names}. Before a newer batch is committed, ttlsnap rollback undoes it."
        )
        yield Section("Repairs", [text])


def _problems(document: Document, show_keys: bool) -> Iterator[Section]:
    order = list(_TONES)
    problems = sorted(document["problems"], key=lambda problem: order.index(problem["severity"]))
    cards = [
        Card(
            _TONES[problem["severity"]],
            problem["severity"],
            problem["code"],
            problem["where"],
            tell_problem(problem, show_keys),
            [("what to do", problem["fix"]), *([("repair", f"--fix {problem['code']}")] if problem["fixable"] else [])],
        )
        for problem in problems
    ]
    if cards:
        yield Section("Problems", cards=cards)


def _versions(versions: Sequence[Document], show_keys: bool) -> Iterator[Section]:
    if not versions:
        return
    states = Counter(version["state"] for version in versions)
    parts = [
        Bar(_word(state), states[state], number(states[state]), _COLOURS[state]) for state in _STATES if states[state]
    ]
    rows = [
        (
            span([version["version"] for version in run]),
            span([version["batch"] for version in run]),
            Marked(run[0]["state"], _STATES[run[0]["state"]]),
            _reasons([problem for version in run for problem in version["problems"]], show_keys),
        )
        for run in version_runs(versions)
    ]
    columns = ("versions", "batches", "restorable", "problems")
    table = Table("Retained versions, newest first", columns, rows, whole=columns[:2])
    yield Section("Versions", charts=[parts_chart("Can the retained versions be restored?", parts)], tables=[table])


def _reasons(problems: Sequence[str], show_keys: bool) -> str:
    return tell_reasons(problems, show_keys) or ("see the problems above" if problems else MISSING)


def _word(state: str) -> str:
    return {"yes": "restorable", "no": "not restorable"}.get(state, state)


def version_runs(versions: Sequence[Document]) -> list[list[Document]]:
    """Return groups of consecutive versions with the same result."""
    runs: list[list[Document]] = []
    for version in versions:
        last_version = runs[-1][-1] if runs else None
        if (
            last_version is not None
            and last_version["state"] == version["state"]
            and last_version["version"] - 1 == version["version"]
        ):
            runs[-1].append(version)
        else:
            runs.append([version])
    return runs


def span(numbers: Sequence[int]) -> str:
    """Return the first and the last of these numbers, which descend."""
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[-1]} to {numbers[0]}"


def _details(document: Document) -> Section:
    facts_of_checkpoint = [("query", document["query_id"] or "unknown"), ("run of the repair", document["run"])]
    return Section("Details", tables=[facts("Facts about the checkpoint", facts_of_checkpoint)])
