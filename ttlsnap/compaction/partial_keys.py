"""The variables of ``transformWithState`` that stay when a run drops another variable of the same keys."""

from __future__ import annotations

from collections.abc import Sequence

from ttlsnap.amounts import quantity
from ttlsnap.compaction.report import StateReport
from ttlsnap.naming import name_state
from ttlsnap.operators.transform_with_state import NAMES, TIMERS


def warn_of_partial_keys(states: Sequence[StateReport]) -> list[str]:
    """Return a warning for each operator if a rule drops some variables of a key and leaves others alone.

    A user who chose the variables does not need it. Nor does one who only drops what has expired by Spark's own TTL:
    Spark drops the same, variable by variable.
    """
    by_operator: dict[int, list[StateReport]] = {}
    for report in states:
        is_variable = report.state.role == "primary" and not report.state.state.startswith(TIMERS)
        if report.state.operator_name in NAMES and is_variable:
            by_operator.setdefault(report.state.operator, []).append(report)
    return [warning for variables in by_operator.values() if (warning := _describe(variables)) is not None]


def _describe(variables: Sequence[StateReport]) -> str | None:
    losing = [one for one in variables if one.counts.dropped and not _is_by_stored_time(one)]
    staying = [one for one in variables if one.left_alone is not None]
    if not (losing and staying):
        return None
    dropped = quantity(sum(one.counts.dropped for one in losing), "entry", "entries")
    return (
        f"this run drops {dropped} of {_list(losing)}, and nothing of {_list(staying)}. A key that has entries in both "
        "keeps a part of its state, and the query finds it like that. Give each variable a --timestamp of its own "
        "(in a policy: timestamp), or drop the rest of these keys with --variables follow (in a policy: variables)"
    )


def _is_by_stored_time(report: StateReport) -> bool:
    return report.timestamp == (report.state.stored_timestamp or "").partition(":")[0]


def _list(reports: Sequence[StateReport]) -> str:
    return " and ".join(name_state(one.state.operator, one.state.store, one.state.state) for one in reports)
