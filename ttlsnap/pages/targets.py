"""The results of many targets: what was done in each, and why something was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ttlsnap.amounts import number, quantity, share, size
from ttlsnap.pages.ages import age_histograms
from ttlsnap.pages.model import Card, Marked, Page, Section, Table, Tile, Tone
from ttlsnap.pages.privacy import tell, tell_error
from ttlsnap.pages.svg import Bar, Chart, bar_chart, ranked_chart
from ttlsnap.pages.words import (
    DRY_RUN,
    after_publishing,
    describe_history,
    describe_left_alone,
    describe_published,
    for_policy,
    known_totals,
    place,
)

Document = Mapping[str, Any]

MOST = 20
"""The most bars of a chart. Of more values, a chart shows the largest ones, and another one all of them."""

_TONES = {
    "done": Tone.GOOD,
    "planned": Tone.GOOD,
    "nothing": Tone.PLAIN,
    "skipped": Tone.WARNING,
    "refused": Tone.WARNING,
    "undecided": Tone.WARNING,
    "stopped": Tone.WARNING,
    "failed": Tone.BAD,
}
_COUNTS = ("entries", "dropped", "rewritten", "bytes_before", "bytes_after")


def targets_page(targets: Sequence[Document], name: str, show_keys: bool, banner: str = "") -> Page:
    """Return the page of several targets. ``name`` is that of the policy, or says how many there are."""
    sums = {key: sum(target["totals"][key] or 0 for target in targets if "totals" in target) for key in _COUNTS}
    statuses = Counter(status_of(target) for target in targets)
    is_dry = any(target.get("dry_run") for target in targets)
    refused_count = sum(bool(target.get("refused")) for target in targets)
    without_rule = sum(_is_without_rule(target) for target in targets)
    worst = _worst(statuses)
    return Page(
        answer=_answer(statuses, sums, len(targets), is_dry, refused_count, without_rule),
        target=name,
        tone=Tone.WARNING if (refused_count or without_rule) and worst is not Tone.BAD else worst,
        banner=banner or (DRY_RUN if is_dry else ""),
        tiles=_tiles(statuses, sums, len(targets), is_dry),
        sections=[
            *_problems(targets, show_keys),
            Section(
                "Targets",
                list(filter(None, [after_publishing(targets)])),
                charts=list(_charts(targets, sums)),
                tables=[_table(targets)],
            ),
            *_ages(targets),
            *_notes(targets, show_keys),
        ],
    )


def status_of(target: Document) -> str:
    """Return the status of a target; ``compact`` records none."""
    if "status" in target:
        return str(target["status"])
    if "error" in target:
        return {3: "undecided", 4: "refused"}.get(target["exit_code"], "failed")
    changed_entries = target["totals"]["dropped"] or target["totals"]["rewritten"]
    return ("planned" if target["dry_run"] else "done") if changed_entries else "nothing"


def _is_without_rule(target: Document) -> bool:
    """Return whether no rule applies to any state of a target, so that no run can drop anything from it."""
    return "totals" in target and known_totals(target)["entries"] is None and target["kind"] == "checkpoint"


def _words(status: str) -> str:
    return "nothing to do" if status == "nothing" else status


def _worst(statuses: Counter[str]) -> Tone:
    tones = {_TONES.get(status, Tone.PLAIN) for status in statuses}
    return next((tone for tone in (Tone.BAD, Tone.WARNING, Tone.GOOD) if tone in tones), Tone.PLAIN)


def _answer(
    statuses: Counter[str], sums: Mapping[str, int], targets: int, is_dry: bool, refused_count: int, without_rule: int
) -> str:
    exceptions = [
        f"{count_of_status} {status}"
        for status, count_of_status in statuses.items()
        if _TONES.get(status) in (Tone.BAD, Tone.WARNING)
    ]
    exceptions += [f"{refused_count} would be refused now"] if refused_count else []
    exceptions += [f"{without_rule} without a rule that applies"] if without_rule else []
    if exceptions:
        targets_text = f"Of {quantity(targets, 'target')}, {' and '.join(exceptions)}"
    else:
        targets_text = "The target is in order" if targets == 1 else f"All {targets:,} targets are in order"
    entries, dropped, rewritten = (sums[name] for name in ("entries", "dropped", "rewritten"))
    changes = []
    if dropped:
        share_text, counted_noun = share(dropped, entries), "counted entries" if without_rule else "entries"
        changes.append(
            f"{'drop' if is_dry else 'dropped'} {number(dropped)} of {number(entries)} {counted_noun} ({share_text})"
        )
    if rewritten:
        changes.append(f"{'rewrite' if is_dry else 'rewrote'} {number(rewritten)}")
    if not changes:
        return f"{targets_text}; {'a run would drop nothing' if is_dry else 'nothing was dropped'}."
    return f"{targets_text}; {'a run would' if is_dry else 'the run'} {' and '.join(changes)}."


def _tiles(statuses: Counter[str], sums: Mapping[str, int], targets: int, is_dry: bool) -> list[Tile]:
    statuses_text = ", ".join(f"{count_of_status} {_words(status)}" for status, count_of_status in statuses.items())
    bytes_before, bytes_after = sums["bytes_before"], sums["bytes_after"]
    failed_count = statuses["failed"]
    return [
        Tile("targets", number(targets), statuses_text, Tone.BAD if failed_count else Tone.PLAIN),
        Tile(
            "would be dropped" if is_dry else "dropped",
            number(sums["dropped"]),
            f"{share(sums['dropped'], sums['entries'])} of the entries",
        ),
        Tile("entries before", number(sums["entries"])),
        Tile("size before", size(bytes_before)),
        Tile("size after", size(bytes_after), f"{share(max(bytes_before - bytes_after, 0), bytes_before)} saved"),
    ]


def _problems(targets: Sequence[Document], show_keys: bool) -> Iterator[Section]:
    cards = [
        Card(
            _TONES.get(status_of(target), Tone.BAD),
            status_of(target),
            _tell(target, tell_error(target, show_keys)),
            target["target"],
        )
        for target in targets
        if target.get("error")
    ]
    if cards:
        yield Section("Targets that were not processed", cards=cards)


def _tell(target: Document, text: str) -> str:
    """Return an error or a warning; of ``maintain``, as advice about the policy."""
    return for_policy(text, target["target"]) if "status" in target else text


def _charts(targets: Sequence[Document], sums: Mapping[str, int]) -> Iterator[Chart]:
    if sums["bytes_before"]:
        bars = [Bar("before", sums["bytes_before"], size(sums["bytes_before"]), "second")]
        yield bar_chart("Size of all targets", [*bars, Bar("after", sums["bytes_after"], size(sums["bytes_after"]))])
    dropped = {target["target"]: target["totals"]["dropped"] for target in targets if "totals" in target}
    if len(targets) > 1 and any(dropped.values()):
        yield from largest(
            "Dropped entries by target", {name: value for name, value in dropped.items() if value}, number, "drop"
        )


def largest(
    title: str, values: Mapping[str, int], describe_value: Callable[[int], str], colour: str = "accent"
) -> Iterator[Chart]:
    """Yield a bar for each value; of many, all values as one area, and a bar for each of the largest ones."""
    ordered_values = sorted(values.items(), key=lambda item: -item[1])
    if len(ordered_values) > MOST:
        yield ranked_chart(
            f"{title}: all, the largest first",
            list(values.values()),
            (describe_value(ordered_values[0][1]), describe_value(ordered_values[-1][1])),
        )
        title = f"{title}: the largest {MOST} of {len(ordered_values):,}"
    yield bar_chart(title, [Bar(name, value, describe_value(value), colour) for name, value in ordered_values[:MOST]])


def _table(targets: Sequence[Document]) -> Table:
    rows = []
    for target in targets:
        status, totals = status_of(target), known_totals(target) if "totals" in target else {}
        rows.append(
            (
                target["target"],
                Marked(_words(status), _TONES.get(status, Tone.BAD)),
                *(number(totals.get(name)) for name in ("entries", "dropped", "rewritten")),
                *(size(totals.get(name)) for name in ("bytes_before", "bytes_after")),
                f"{target['seconds']:.1f} s" if "seconds" in target else "-",
            )
        )
    numbers = ("entries", "dropped", "rewritten", "before", "after", "time")
    return Table("Every target", ("target", "status", *numbers), rows, numbers, ("target",))


def _ages(targets: Sequence[Document]) -> Iterator[Section]:
    """Yield the histograms of the targets from which most is dropped."""
    counted = [target for target in targets if any("ages" in state for state in target.get("stores", ()))]
    counted.sort(key=lambda target: -target["totals"]["dropped"])
    histograms = [pair for target in counted for pair in age_histograms(target, target["target"])]
    if histograms:
        texts = ["Entries beyond the cut-off have expired."]
        if len(histograms) > MOST:
            texts.append(f"These are {MOST} of {len(histograms):,} states, those of the targets that lose most first.")
        charts, tables = zip(*histograms[:MOST], strict=True)
        yield Section("Ages and cut-off", texts, charts, tables)


def _notes(targets: Sequence[Document], show_keys: bool) -> Iterator[Section]:
    cards = []
    for target in targets:
        name = target["target"]
        if target.get("recovered"):
            cards.append(
                Card(Tone.PLAIN, "recovered", f"The interrupted run {target['recovered']} was recovered first.", name)
            )
        if target.get("kind") == "migrate" and target["stores"]:
            changed_settings = [f"{setting} = {value}" for setting, value in target["settings"].items()]
            cards.append(
                Card(
                    Tone.PLAIN,
                    "migration",
                    ", ".join(changed_settings) or "The state is migrated.",
                    name,
                    lines=[
                        ("the query's session must have", f"{key}={value}")
                        for key, value in target["session_settings"].items()
                    ],
                )
            )
        for note in describe_left_alone(target):
            cards.append(
                Card(Tone.WARNING if _is_without_rule(target) else Tone.PLAIN, "not changed", f"{note}.", name)
            )
        for state in target.get("stores", ()):
            if "written_before" in state:
                note = f"{place(state)}: {describe_history(state['written_before'])}."
                cards.append(Card(Tone.PLAIN, "history", note, name))
        for text in target.get("warnings", ()):
            cards.append(Card(Tone.WARNING, "warning", _tell(target, tell(text, show_keys)), name))
        if note := " ".join(describe_published(target)):
            cards.append(Card(Tone.PLAIN, "published", note, name))
    if cards:
        yield Section("Notes", cards=cards)
