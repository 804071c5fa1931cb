"""``check``: can a new query restore from the state of an old one? See ``docs/checks.md``.

It compares two contracts by the rules of ``ttlsnap.check.rules``, and searches for a migration that repairs what it
finds. The verdict is the worst of the findings. The report lists what could not be compared.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ttlsnap.check.commands import add_ignores, checkpoint_of, find_next, migrate_command, name_checkpoint, turn_renames
from ttlsnap.check.comparison import Comparison, parse_version
from ttlsnap.check.findings import CheckReport, Finding, Ignored, StateFindings, Verdict, worst
from ttlsnap.check.ignores import Ignore, apply
from ttlsnap.check.key_order import NORMALIZED_SINCE, with_keys_for
from ttlsnap.check.operators import compare_operators
from ttlsnap.check.outcomes import KEY_FLOATS_FOUND
from ttlsnap.check.settings import compare_settings
from ttlsnap.check.tables import TableComparison, compare_tables
from ttlsnap.contract import Contract, TableContract
from ttlsnap.contract.given import require_contract
from ttlsnap.entries.place import Place
from ttlsnap.errors import UsageError
from ttlsnap.keywords import name_parameters

__all__ = ["CheckReport", "Finding", "Ignored", "Place", "StateFindings", "Verdict", "check", "compare", "worst"]

DIRECTIONS = ("backward", "forward", "full")
_NOT_EXAMINED = StateFindings()
FindRepairs = Callable[[Contract, Contract, Mapping[str, str], Iterable[Finding], str], list[Finding]]
"""Marks the findings that a migration repairs; the text is the command of that migration, without further options."""
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


@name_parameters()
def check(
    old: Contract | TableContract,
    new: Contract | TableContract,
    *,
    direction: str = "backward",
    renamed: Mapping[str, str] = _NO_NAMES,
    names: tuple[str, str] = ("old", "new"),
    state: StateFindings = _NOT_EXAMINED,
    ignores: Iterable[Ignore] = (),
    old_command: str | None = None,
) -> CheckReport:
    """Return whether the query of ``new`` can restore from the state of ``old``, as the command ``ttlsnap check`` does.

    ``direction`` is ``backward``, ``forward`` (can ``old`` restore from the state of ``new``, to undo the deployment?)
    or ``full`` for both. ``renamed`` maps old names of columns and variables to new ones, and
    expressions of keys and aggregates to those with the same values. ``names`` are the names of
    the two contracts in the report and its commands. ``old_command`` prints ``old`` if no file has it.
    ``state`` is what the state of ``old`` itself shows (``ttlsnap.check.state.examine_state``).
    ``ignores`` are accepted findings (``ttlsnap.check.ignores.parse_ignore``). They do not count for the verdict.

    A finding that a migration repairs has the verdict ``after_migration``, and its command as ``fix``. ``next`` of the
    report is the command for all findings together.

    Raise UsageError for a query and a Delta table, for what is not a contract, and for another direction.
    """
    # The search compares contracts, too, so its layer is above this one.
    find_repairs: FindRepairs = importlib.import_module("ttlsnap.new_query.findings").find_repairs
    report = compare(
        old,
        new,
        direction=direction,
        renamed=renamed,
        names=names,
        state=state,
        find_repairs=find_repairs,
        old_command=old_command,
    )
    report = apply(report, ignores)
    for way in _find_ways(old, new, direction, renamed, names, old_command):
        command = find_next(report, way.command, back=way.back)
        report = replace(report, next_back=command) if way.back else replace(report, next=command)
        report = add_ignores(report, way.command, back=way.back)
    return report


def compare(
    old: Contract | TableContract,
    new: Contract | TableContract,
    *,
    direction: str = "backward",
    renamed: Mapping[str, str] = _NO_NAMES,
    names: tuple[str, str] = ("old", "new"),
    state: StateFindings = _NOT_EXAMINED,
    find_repairs: FindRepairs | None = None,
    old_command: str | None = None,
) -> CheckReport:
    """Compare two contracts as ``check`` does, without a search for migrations unless there is ``find_repairs``."""
    if direction not in DIRECTIONS:
        raise UsageError(f"unknown --direction {direction!r}; use one of {', '.join(DIRECTIONS)}")
    for name, contract in (("old", old), ("new", new)):
        require_contract(contract, name)
    if len(set(renamed.values())) != len(renamed):
        raise UsageError("--renamed maps two columns to one name, so one of them would be lost")
    findings: list[Finding] = []
    unseen: list[str] = []
    for way in _find_ways(old, new, direction, renamed, names, old_command):
        compared = _compare(way, find_repairs)
        if way.back:
            findings += [
                replace(finding, message=f"going back: {finding.message}", back=True) for finding in compared.findings
            ]
            unseen += [line for line in compared.unseen if line not in unseen]
        else:
            findings += [*_decide(compared.findings, state), *state.findings]
            unseen += [*compared.unseen, *state.unseen]
    for old_name, new_name in renamed.items():
        if not all(_mentions(side, name) for side, name in ((old, old_name), (new, new_name))):
            unseen.append(
                f"--renamed {old_name}={new_name}: "
                f"the old contract does not have {old_name}, or the new one does not have {new_name}"
            )
    findings.sort(key=lambda finding: (-finding.verdict.rank, str(finding.place), finding.code))
    return CheckReport(*names, direction, tuple(findings), tuple(unseen))


@dataclass(frozen=True)
class _Way:
    """One way of a comparison: ``new`` reads the state of ``old``. On the way ``back``, they have changed places.

    ``command`` migrates the state. Options of single findings may follow it. ``checkpoint`` is its checkpoint, as a
    word of a command, if it is known.
    """

    old: Contract | TableContract
    new: Contract | TableContract
    renamed: Mapping[str, str]
    command: str
    checkpoint: str | None
    back: bool


def _find_ways(
    old: Contract | TableContract,
    new: Contract | TableContract,
    direction: str,
    renamed: Mapping[str, str],
    names: tuple[str, str],
    old_command: str | None,
) -> Iterator[_Way]:
    commands = (old_command, None)
    if direction in ("backward", "full"):
        checkpoint = checkpoint_of(old, names[0], old_command)
        yield _Way(old, new, renamed, migrate_command(checkpoint, names, commands, renamed), checkpoint, back=False)
    if direction in ("forward", "full"):
        names_back = {new_name: old_name for old_name, new_name in renamed.items()}
        checkpoint = checkpoint_of(new, names[1], None)
        command = migrate_command(checkpoint, names[::-1], commands[::-1], names_back)
        yield _Way(new, old, names_back, command, checkpoint, back=True)


def _decide(findings: Iterable[Finding], state: StateFindings) -> Iterator[Finding]:
    """Yield the findings, those that the state decides with its answer, or not at all."""
    for finding in findings:
        float_keys = state.floats.get(finding.place.operator if finding.place.operator is not None else -1)
        # Back from 4.2, the rows to come decide, and not the state.
        is_open = finding.code == "key-floats" and parse_version(str(finding.old)) < NORMALIZED_SINCE
        if not is_open or float_keys is None:
            yield finding
        elif float_keys.keys:
            words = {"old": finding.old, "new": finding.new, "keys": f"{float_keys.keys:,}", "both": float_keys}
            row = KEY_FLOATS_FOUND.fill(words)
            step = {
                "change": "normalize",
                **finding.place.to_json(),
                "old": "-0.0 and NaNs as they came",
                "new": "0.0 and one NaN",
            }
            yield replace(
                finding, verdict=row.verdict, message=row.message, spark=row.spark, fix=row.fix, migration=step
            )


def _mentions(contract: Contract | TableContract, name: str) -> bool:
    text = json.dumps(name, ensure_ascii=False)[1:-1]  # a text in quotes is different in JSON
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", contract.dumps()) is not None


def _compare(way: _Way, find_repairs: FindRepairs | None) -> Comparison | TableComparison:
    old, new, renamed = way.old, way.new, way.renamed
    if isinstance(old, TableContract) and isinstance(new, TableContract):
        return compare_tables(old, new, renamed)
    if isinstance(old, TableContract) or isinstance(new, TableContract):
        raise UsageError("a Delta table and the state of a query cannot be compared")
    comparison = Comparison(old=old, new=with_keys_for(old, new), renamed=renamed)
    for old_name, new_name in renamed.items():
        if old_name in comparison.computed_names or old_name not in comparison.source_names[1]:
            continue
        comparison.cannot_compare(
            f"--renamed {old_name}={new_name}: the source still has {old_name}, and does not have {new_name}. What the "
            "query computes was compared without this option"
        )
    compare_settings(comparison)
    compare_operators(comparison)
    if find_repairs is not None:
        comparison.findings = find_repairs(old, new, renamed, comparison.findings, way.command)
    if way.back:
        comparison.findings = turn_renames(comparison.findings)
    if way.checkpoint is not None:
        comparison.findings = name_checkpoint(comparison.findings, way.checkpoint)
    return comparison
