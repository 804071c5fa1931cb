"""``ttlsnap explain``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttlsnap.amounts import UNITS, quantity
from ttlsnap.cli.dropping import (
    DropUnmatchedOption,
    FollowPolicyName,
    OperatorOptions,
    OrderedOptions,
    RuleOptions,
    TimersOption,
    VariablesOption,
)
from ttlsnap.cli.groups import given, separate
from ttlsnap.cli.options import Checkpoint, Format, FormatOption, NowOption, ParallelismOption, StateOptions
from ttlsnap.cli.output import console, number, print_json, print_warning
from ttlsnap.cli.places import look_beside
from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.reading.explain import ExplainReport, Looked
    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

    _Rules = tuple[Sequence[StateSnapshotTransformerFactory], CompactOptions]

_CHECKPOINT = "checkpoint"

EXAMPLES = """
Examples:
  # would this key survive?
  ttlsnap explain ck --key '{"user": "u1"}' --ttl 7d --timestamp value.max

  # a key with one column
  ttlsnap explain ck --key '"u1"' --ttl 7d --timestamp value.max

  # what does my own rule do with all keys of a shop?
  ttlsnap explain ck --key '{"shop": 7}' --transformer mymodule:keep_vip

  # what does the policy of maintain do with it?
  ttlsnap explain ck --key '"u1"' --policy policy.toml
"""


def register(app: typer.Typer) -> None:
    app.command("explain", cls=OrderedOptions, epilog=EXAMPLES)(separate(explain))


def explain(
    target: Checkpoint,
    *,
    key: Annotated[
        list[str],
        typer.Option(
            "--key",
            metavar="JSON",
            help="The key, as inspect and export print it: an object, or some of its columns. For a key with one "
            "column, its value is enough.",
            show_default=False,
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="A policy of maintain. Its rules for this checkpoint, and their options, apply instead of those here, "
            "also instead of --operator, --store and --state: all states are searched.",
        ),
    ] = None,
    rules: RuleOptions,
    now: NowOption = _CHECKPOINT,
    timers: TimersOption = FollowPolicyName.KEEP,
    variables: VariablesOption = FollowPolicyName.KEEP,
    drop_unmatched: DropUnmatchedOption = False,
    states: StateOptions,
    show: Annotated[int, typer.Option("--show", metavar="N", min=0, help="Show the first N entries.")] = 100,
    parallelism: ParallelismOption = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Say why compact, with the same rules, would keep, drop or rewrite the entries of a key.

    explain changes nothing, and the query may be running. It ends with exit code 1 if no entry has the key.
    """
    from ttlsnap.cli.progress import ReadingProgress
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.reading.explain import explain as run

    operators = OperatorOptions(drop_unmatched, timers, variables)
    factories: Sequence[StateSnapshotTransformerFactory]
    if len(key) > 1:
        raise UsageError("--key is given twice, and explain looks for one key. Repeat the command for the other one")
    if policy is None:
        options = CompactOptions(now=now, **states.arguments(), **operators.arguments())
        factories = rules.make_factories()
    else:
        for option in (*given(rules), *(["--now"] if now != _CHECKPOINT else []), *given(states), *given(operators)):
            raise UsageError(f"{option} cannot be used with --policy, which has the rules")
        factories, options = _rules_of(policy, target)
    with ReadingProgress("reading") as progress:
        report = run(
            target,
            key[0],
            factories,
            now=options.now,
            selection=options.selection,
            schemas=options.schemas,
            timers=options.timers,
            variables=options.variables,
            drop_unmatched=options.drop_unmatched,
            show=show,
            parallelism=parallelism,
            listener=progress,
        )
    for reason in report.left_out:
        print_warning(f"not looked at: {reason}")
    if output_format is Format.JSON:
        print_json(report.to_json())
    else:
        _show(report)
    if not report.found:
        raise typer.Exit(1)


def _rules_of(policy: str, target: str) -> _Rules:
    """Return the transformers and the options of a policy's target."""
    from ttlsnap.maintenance.policy import read_policy
    from ttlsnap.maintenance.rules import options_of, rule_factories
    from ttlsnap.maintenance.targets import target_at

    look_beside(policy)
    target_policy = target_at(read_policy(policy), target).policy
    if not target_policy.rules:
        raise UsageError(f"{target_policy.name} of {policy} has no rules")
    return rule_factories(target_policy.rules), options_of(target_policy)


def _show(report: ExplainReport) -> None:
    out = console()
    for entry in report.entries:
        out.print(*_lines(entry), sep="\n")
    partitions_read = "; ".join(map(_describe, report.looked)) or "nothing"
    if not report.found:
        console(always=True).print(
            f"No entry has the key {report.key}. Read {partitions_read}, after batch {report.batch}."
        )
        return
    shown_text = f", {number(len(report.entries))} of them shown" if len(report.entries) < report.found else ""
    entries = quantity(report.found, "entry", "entries")
    decisions = Counter(entry["decision"] for entry in report.entries) if not shown_text else Counter()
    counts = ", ".join(f"{number(count)} {decision}" for decision, count in decisions.items())
    out.print(f"Found {entries}{shown_text or f': {counts}'}. Read {partitions_read}, after batch {report.batch}.")


def _describe(looked: Looked) -> str:
    if looked.of == 1:
        return f"the only partition of operator {looked.operator}"
    if len(looked.partitions) == looked.of:
        return f"all {number(looked.of)} partitions of operator {looked.operator}"
    partition_numbers = ", ".join(map(str, looked.partitions))
    return f"partition {partition_numbers} of {number(looked.of)} of operator {looked.operator}"


def _lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about an entry."""
    from ttlsnap.pages.words import readable

    name = f" ({entry['operator_name']})" if entry["operator_name"] else ""
    places = [f"{kind} {entry[kind]}" for kind in ("store", "state") if entry[kind] != "default"]
    place = ", ".join([f"operator {entry['operator']}{name}", *places, f"partition {entry['partition']}"])
    yield f"{place}: {entry['decision']}"
    for part in ("key", "map_key", "value", "matched", "time", "new_value"):
        if entry.get(part) not in (None, {}):
            yield f"  {part.replace('_', ' ')}: {_text(entry[part])}"
    for rule in entry["rules"]:
        yield f"  rule: {rule['rule']}: {rule['decision'] if rule.get('applies', True) else 'not for this key'}"
        if rule.get("time") is not None:
            clock = f" ({rule['clock']} time)" if rule.get("clock") else ""
            yield f"    time: {readable(rule['time'])}{_age(rule)}{clock}"
        if rule.get("cutoff") is not None:
            rotates = " by the rotation of" if rule.get("rotation_seconds") else ""
            expires = f"; expires{rotates} {readable(rule['expires'])}" if rule.get("expires") else ""
            yield f"    cut-off: {rule['cutoff']}{expires}"
    for reason in entry["reasons"]:
        yield f"  {reason}"


def _age(rule: Mapping[str, Any]) -> str:
    age = rule.get("age_seconds")
    if age is None:
        return ""
    now = f"the last rotation, {rule['now']}" if rule.get("rotation_seconds") else rule["now"]
    return f", {_duration(abs(age))} {'after' if age < 0 else 'before'} {now}"


def _duration(seconds: int) -> str:
    """Return a duration in its two largest units: ``28d 9h``."""
    parts = []
    for unit, size in UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
