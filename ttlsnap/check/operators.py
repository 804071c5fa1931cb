"""Operators and their stores, old against new."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

from ttlsnap.amounts import quantity
from ttlsnap.check.comparison import Comparison, parse_version
from ttlsnap.check.findings import Verdict
from ttlsnap.check.functions import compare_functions, find_changed_parts
from ttlsnap.check.groups import compare_aggregates, compare_arguments, compare_keys, compare_numbers, name_aggregates
from ttlsnap.check.inputs import compare_columns, compare_upstream, compare_watermarks
from ttlsnap.check.joins import are_sides_swapped, compare_joins, compare_rows
from ttlsnap.check.key_order import compare_floats, compare_intervals
from ttlsnap.check.outcomes import (
    AGGREGATE_CHANGED,
    LIMIT_CHANGED,
    NO_SCHEMA,
    OPERATOR_ADDED,
    OPERATOR_REMOVED,
    OPERATOR_REPLACED,
    OPERATORS_MAYBE_SWAPPED,
    OPERATORS_REORDERED,
    OPERATORS_SWAPPED,
    ORDER_FIRST,
    OTHER_LAYOUT,
    OTHER_PREFIX,
    OTHER_STATES,
    OTHER_STORES,
    RECORDED_OUTPUT_MODE,
    TIME_MODE,
    TIMEOUT_CHANGED,
)
from ttlsnap.check.query_plan import QueryPlan, can_compare_plans, look_swapped, pair_plans
from ttlsnap.check.schemas import How, compare_fields
from ttlsnap.check.settings import LAYOUTS
from ttlsnap.check.variables import compare_ttl, compare_variables, is_other_variable, report_returned
from ttlsnap.contract import OperatorContract, StateContract, StoreContract
from ttlsnap.contract.functions import NAMES
from ttlsnap.entries.place import Place
from ttlsnap.operators import aggregation, group_state, join, session_window, transform_with_state


@dataclass(frozen=True)
class Known:
    """What the queries say of an operator: the old and the new plan, and the parts of its functions that changed.

    None for what is not known.
    """

    plans: tuple[QueryPlan, QueryPlan] | None
    changed: tuple[str, ...] | None

    @property
    def same_code(self) -> bool:
        """Whether the user's code is the same, apart from the names of state variables."""
        return self.changed is not None and set(self.changed) <= {NAMES}


_OF_NOTHING = Known(None, None)
AGGREGATIONS = (aggregation.NAME, session_window.NAME)
USERS_OWN = (*transform_with_state.NAMES, *group_state.NAMES)  # the user names their fields


def compare_operators(comparison: Comparison) -> None:
    """Compare all stateful operators: those with the same number, if they are of one kind."""
    old, new = comparison.old.operators, comparison.new.operators
    names = [[operator.name for operator in operators] for operators in (old, new)]
    if any(name is None for name in (*names[0], *names[1])):
        comparison.cannot_compare("the kinds of the operators: Spark before 4.0 does not record them")
        if len(old) != len(new):
            _add_other_operators(comparison, names)
            return
    elif names[0] != names[1]:
        _add_other_operators(comparison, names)
        return
    if _are_operators_swapped(comparison):
        return
    for old_operator, new_operator in zip(old, new, strict=True):
        _compare_operator(comparison, old_operator, new_operator)


def _add_other_operators(comparison: Comparison, names: list[list[str | None]]) -> None:
    before, after = ([name or "unnamed" for name in operator_names] for operator_names in names)
    removed, added = Counter(before) - Counter(after), Counter(after) - Counter(before)
    if not removed and not added:
        outcome = OPERATORS_REORDERED
    elif len(before) == len(after):
        outcome = OPERATOR_REPLACED
    else:
        outcome = OPERATOR_ADDED if len(before) < len(after) else OPERATOR_REMOVED
    comparison.add(
        outcome, Place(), ", ".join(before), ", ".join(after), added=", ".join(added), removed=", ".join(removed)
    )


def _are_operators_swapped(comparison: Comparison) -> bool:
    """Report operators of one kind that changed places, which Spark does not detect. Return whether that is certain."""
    old = [tuple(map(comparison.new_line, operator.plan or ())) for operator in comparison.old.operators]
    new = [operator.plan or () for operator in comparison.new.operators]
    if old == new or () in (*old, *new):
        return False
    names = [operator.name for operator in comparison.new.operators]
    is_exact = Counter(old) == Counter(new)
    pairs_of_one_kind = [
        (first, second) for first, second in combinations(range(len(names)), 2) if names[first] == names[second]
    ]
    if not is_exact and not any(
        look_swapped((old[first], old[second]), (new[first], new[second])) for first, second in pairs_of_one_kind
    ):
        return False
    texts = (", ".join(operator.name or "" for operator in side.operators) for side in (comparison.old, comparison.new))
    comparison.add(OPERATORS_SWAPPED if is_exact else OPERATORS_MAYBE_SWAPPED, Place(), *texts)
    return is_exact


def _compare_operator(comparison: Comparison, old: OperatorContract, new: OperatorContract) -> None:
    place = Place(operator=new.id, operator_name=new.name or old.name)
    for outcome, old_mode, new_mode in (
        (TIME_MODE, old.time_mode, new.time_mode),
        (RECORDED_OUTPUT_MODE, old.output_mode, new.output_mode),
    ):
        if None not in (old_mode, new_mode) and old_mode != new_mode:
            comparison.add(outcome, place, old_mode, new_mode)
    start = len(comparison.findings)
    plans = pair_plans(comparison, old, new) if can_compare_plans(comparison, old, new) else None
    changed = find_changed_parts(old, new) if plans else None
    if plans:
        _compare_plans(comparison, place, old, new)
    layout_settings = [name for name, names in LAYOUTS.items() if place.operator_name in (*names, None)]
    if any(
        comparison.old.conf.get(name) != comparison.new.conf.get(name)
        for name in layout_settings
        if _both_have(comparison, name)
    ):
        _add_other_layout(comparison, place, old, new)
        return
    parts = None if changed is None else tuple(part for function_parts in changed.values() for part in function_parts)
    _compare_stores(comparison, place, old, new, Known(plans, parts))
    if plans:
        compare_numbers(comparison, place, plans, start)
        name_aggregates(comparison, old, new, start)
    if plans and place.operator_name in AGGREGATIONS:
        _advise_order(comparison, start)
    if any(
        finding.code.endswith("-nullability") and finding.verdict is Verdict.RECONFIGURATION
        for finding in comparison.findings[start:]
    ):
        _refuse_unknown_nulls(comparison, start)


def _compare_plans(comparison: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    """Report what is computed in another way."""
    before, after = pair_plans(comparison, old, new)
    compare_keys(comparison, place, before, after)
    compare_aggregates(comparison, place, before, after)
    compare_arguments(comparison, place, old, new)
    compare_columns(comparison, place, before, after)
    if are_sides_swapped(comparison, place, before, after):
        return
    compare_joins(comparison, place, before, after)
    if before.limit != after.limit:
        comparison.add(LIMIT_CHANGED, place, before.limit, after.limit)
    if before.timeout != after.timeout:
        comparison.add(TIMEOUT_CHANGED, place, before.timeout, after.timeout)
    compare_watermarks(comparison, place, old, before, after)
    compare_upstream(comparison, place, before, after)
    compare_functions(comparison, place, old, new)


def _add_other_layout(comparison: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    """Report that schemas of two layouts cannot be compared, unless plan and functions are the same.

    The same plan, which includes the types of the sources, gives the same state.
    """
    is_same_plan = [comparison.new_line(line) for line in old.plan or ()] == list(new.plan or ())
    if old.plan is None or new.plan is None or not is_same_plan or any((find_changed_parts(old, new) or {}).values()):
        comparison.add(OTHER_LAYOUT, place)


def _advise_order(comparison: Comparison, start: int) -> None:
    """Where the columns of a key or a value are in another order, do not advise to switch off Spark's check of them.

    The check keeps Spark from taking one column for another.
    """
    findings = comparison.findings[start:]
    swapped_sides = {finding.place.field for finding in findings if finding.code in ("keys-swapped", "values-swapped")}
    for number, finding in enumerate(findings, start):
        side, _, change = finding.code.partition("-")
        if change == "nullability" and side in swapped_sides and finding.verdict is Verdict.RECONFIGURATION:
            comparison.findings[number] = replace(finding, fix=ORDER_FIRST)


def _refuse_unknown_nulls(comparison: Comparison, start: int) -> None:
    """Make unknown nullability incompatible if Spark refuses another column's at the start anyway.

    Then a setting alone does not let the query start.
    """
    for number, finding in enumerate(comparison.findings[start:], start):
        if finding.verdict is Verdict.UNKNOWN and finding.code.endswith("-nullability"):
            prefix = "with Spark's schema check switched off, the query would start; but "
            comparison.findings[number] = replace(
                finding, verdict=Verdict.INCOMPATIBLE, spark="refuses at the start", fix=prefix + finding.fix
            )


def _both_have(comparison: Comparison, name: str) -> bool:
    return name in comparison.old.conf and name in comparison.new.conf


def _compare_stores(
    comparison: Comparison, place: Place, old: OperatorContract, new: OperatorContract, known: Known
) -> None:
    before, after = ({store.name: store for store in operator.stores} for operator in (old, new))
    if before.keys() != after.keys():
        comparison.add(OTHER_STORES, place, ", ".join(sorted(before)), ", ".join(sorted(after)))
        return
    for name in sorted(before):
        _compare_store(comparison, place.at(store=name), before[name], after[name], known)


def _compare_store(comparison: Comparison, place: Place, old: StoreContract, new: StoreContract, known: Known) -> None:
    if old.states is None or new.states is None:
        comparison.add(NO_SCHEMA, place, *(None if store.states is None else "known" for store in (old, new)))
        return
    before = {state.name: state for state in old.states}
    after = {state.name: state for state in new.states}
    if place.operator_name in transform_with_state.NAMES:
        unused = None if old.unused is None else {state.name: state for state in old.unused}
        compare_variables(
            comparison,
            place,
            before,
            after,
            unused=unused,
            same_code=known.same_code,
            names_changed=bool(known.changed),
        )
        for name in sorted((unused or {}).keys() & after.keys() - before.keys()):
            _compare_returned(comparison, place.at(state=name), (unused or {})[name], after[name])
    elif before.keys() != after.keys():
        comparison.add(OTHER_STATES, place, *(", ".join(sorted(names)) or "none" for names in (before, after)))
    is_recorded = all(parse_version(contract.spark) >= (4, 0) for contract in (comparison.old, comparison.new))
    keys = [{len(state.key) for state in store.states or ()} for store in (old, new)]
    if is_recorded and keys[0] == keys[1] and old.prefix_key_columns != new.prefix_key_columns:
        comparison.add(
            OTHER_PREFIX, place, *(quantity(store.prefix_key_columns, "prefix column") for store in (old, new))
        )
    for name in sorted(before.keys() & after.keys()):
        # A derived state follows the states from which it is derived.
        if before[name].role == "primary" or after[name].role == "primary":
            _compare_state(comparison, place.at(state=name), before[name], after[name], known)


def _compare_state(comparison: Comparison, place: Place, old: StateContract, new: StateContract, known: Known) -> None:
    if is_other_variable(comparison, place, old, new):
        return
    compare_ttl(comparison, place, old, new)
    is_users_own = place.operator_name in USERS_OWN
    avro = comparison.old.encoding == "avro" and place.operator_name in transform_with_state.NAMES
    compare_fields(comparison, place, How("key", names_count=known.plans is None), old.key, new.key)
    compare_floats(comparison, place, old.key)
    compare_intervals(comparison, place, old.key)
    before = len(comparison.findings)
    # The user's code knows what a field that the user named means.
    names_count = not known.same_code if is_users_own else known.plans is None
    nested = names_count if is_users_own else True
    how = How("value", names_count, nested, by_name=avro, by_code=is_users_own and known.same_code)
    compare_fields(comparison, place, how, old.value, new.value)
    if place.operator_name in AGGREGATIONS and known.plans is None:
        _take_names_for_functions(comparison, before)
    if place.operator_name == join.NAME and known.plans is not None and old.kind == "row":
        side = (old.name if old.name != "default" else place.store or "").partition("-")[0]
        compare_rows(comparison, place, side, (known.plans[0], old.value.names), (known.plans[1], new.value.names))


def _compare_returned(comparison: Comparison, place: Place, old: StateContract, new: StateContract) -> None:
    """Compare a variable of an earlier query with one of the same name that is new."""
    start = len(comparison.findings)
    # A list and a value are compared as two values, because Spark has not recorded which of the two it was.
    _compare_state(comparison, place, replace(old, kind=new.kind), new, _OF_NOTHING)
    findings, comparison.findings[start:] = comparison.findings[start:], []
    report_returned(comparison, place, old, new, findings)


def _take_names_for_functions(comparison: Comparison, start: int) -> None:
    """Turn renamed values into changed aggregates: an aggregation names its values after their functions."""
    findings, comparison.findings[start:] = comparison.findings[start:], []
    for finding in findings:
        if finding.code != "value-renamed":
            comparison.findings.append(finding)
        else:
            comparison.add(AGGREGATE_CHANGED, finding.place, finding.old, finding.new)
