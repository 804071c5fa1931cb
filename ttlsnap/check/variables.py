"""State variables of transformWithState, old against new: Spark identifies them by name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ttlsnap.check.comparison import Comparison
from ttlsnap.check.findings import Finding, Verdict, worst
from ttlsnap.check.outcomes import (
    TTL_LONGER,
    TTL_OFF,
    TTL_ON,
    TTL_SHORTER,
    VARIABLE_ADDED,
    VARIABLE_ADDED_EMPTY,
    VARIABLE_KIND,
    VARIABLE_MAYBE_RENAMED,
    VARIABLE_REMOVED,
    VARIABLE_RENAMED,
    VARIABLE_RENAMED_SAME_CODE,
    VARIABLE_RETURNED,
    VARIABLE_RETURNED_EMPTY,
    VARIABLE_RETURNED_MISREAD,
    VARIABLE_RETURNED_OTHER_KEY,
    VARIABLE_RETURNED_RETYPED,
    VARIABLES_SWAPPED,
)
from ttlsnap.contract import StateContract
from ttlsnap.entries.place import Place
from ttlsnap.schema.units import format_duration

States = dict[str, StateContract]


def compare_variables(
    comparison: Comparison,
    place: Place,
    before: States,
    after: States,
    *,
    unused: States | None,
    same_code: bool,
    names_changed: bool,
) -> None:
    """Report variables that were added, removed or renamed. Those that return have findings of their own.

    ``unused`` are the variables that earlier queries had; None if these are not known. ``same_code``: the user's code
    is the same apart from names of variables, and ``names_changed`` if those are not.
    """
    variable_names = [
        [state_name for state_name, state in states.items() if state.role == "primary" and state.kind != "timer"]
        for states in (before, after)
    ]
    removed = [name for name in variable_names[0] if name not in after and comparison.renamed.get(name) not in after]
    added = [name for name in variable_names[1] if name not in before and name not in comparison.renamed.values()]
    for name in variable_names[0]:
        if name not in after and comparison.renamed.get(name) in after:
            new_name = comparison.renamed[name]
            comparison.add(VARIABLE_RENAMED, place.at(state=new_name), name, new_name)
    for removed_name, added_name in zip(removed, added, strict=False):
        outcome = VARIABLE_RENAMED_SAME_CODE if same_code else VARIABLE_MAYBE_RENAMED
        comparison.add(outcome, place.at(state=added_name), removed_name, added_name)
    is_unchanged = (
        not removed and not added and not any(comparison.renamed.get(name) in after for name in variable_names[0])
    )
    if (same_code and names_changed and is_unchanged) or _have_swapped_names(before, after, variable_names):
        comparison.add(VARIABLES_SWAPPED, place, ", ".join(variable_names[0]), ", ".join(variable_names[1]))
    for name in removed[len(added) :]:
        comparison.add(VARIABLE_REMOVED, place.at(state=name), name, None)
    for name in added[len(removed) :]:
        if unused is None:
            comparison.add(VARIABLE_ADDED, place.at(state=name), None, name)
        elif name not in unused:
            comparison.add(VARIABLE_ADDED_EMPTY, place.at(state=name), None, name)


def _have_swapped_names(before: States, after: States, variable_names: list[list[str]]) -> bool:
    """Return whether one variable has the kind and the schema that another one had, and the reverse."""
    return any(
        before[first].value != before[second].value
        and (before[first].kind, before[first].value) == (after[second].kind, after[second].value)
        and (before[second].kind, before[second].value) == (after[first].kind, after[first].value)
        for first, second in combinations(sorted(set(variable_names[0]) & set(variable_names[1])), 2)
    )


def is_other_variable(comparison: Comparison, place: Place, old: StateContract, new: StateContract) -> bool:
    """Report another kind, and a TTL that was switched on or off. Return whether the layouts differ by that."""
    if old.kind != new.kind:
        comparison.add(VARIABLE_KIND, place, old.kind, new.kind, name=new.name)
        return True
    if None not in (old.ttl, new.ttl) and old.ttl != new.ttl:
        texts = ("ttl" if state.ttl else "no ttl" for state in (old, new))
        comparison.add(TTL_ON if new.ttl else TTL_OFF, place, *texts, name=new.name)
        return True
    return False


def compare_ttl(comparison: Comparison, place: Place, old: StateContract, new: StateContract) -> None:
    """Report a TTL that is shorter or longer. Spark stores the expiry time with each value."""
    if old.ttl and new.ttl and (old.ttl_ms is None) != (new.ttl_ms is None):
        comparison.cannot_compare(f"the TTLs of {new.name}: only one of the two contracts has its length")
    if old.ttl_ms is None or new.ttl_ms is None or old.ttl_ms == new.ttl_ms:
        return
    texts = (format_duration(ttl * 1000) for ttl in (old.ttl_ms, new.ttl_ms))
    comparison.add(TTL_SHORTER if new.ttl_ms < old.ttl_ms else TTL_LONGER, place, *texts, name=new.name)


def report_returned(
    comparison: Comparison, place: Place, old: StateContract, new: StateContract, findings: Sequence[Finding]
) -> None:
    """Report a variable that an earlier query had, and the new one has again. ``findings`` are their differences.

    Spark compares it as it compares a variable that was never gone, except for lists and values, whose keys are alike.
    """
    verdict = worst(finding.verdict for finding in findings)
    if "map" in (old.kind, new.kind) and old.kind != new.kind:
        comparison.add(VARIABLE_RETURNED_OTHER_KEY, place, new.name, new.name, was=old.kind, now=new.kind)
    elif old.kind != new.kind and old.kept:
        comparison.add(VARIABLE_RETURNED_MISREAD, place, new.name, new.name, was=old.kind, now=new.kind)
    elif verdict is Verdict.INCOMPATIBLE:
        comparison.add(VARIABLE_RETURNED_RETYPED, place, new.name, new.name, was=_describe(old), now=_describe(new))
    else:
        comparison.findings += [finding for finding in findings if finding.verdict is Verdict.RECONFIGURATION]
        comparison.add(VARIABLE_RETURNED if old.kept else VARIABLE_RETURNED_EMPTY, place, new.name, new.name)


def _describe(state: StateContract) -> str:
    """Return the type of a variable's values in words."""
    schema = state.value.fields[0].type if state.ttl else state.value
    return f"{schema.simple_string} and {'a' if state.ttl else 'no'} TTL"
