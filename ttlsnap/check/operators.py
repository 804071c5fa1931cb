"""Operators and their stores, old against new."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

from ttlsnap.check.comparison import Comparison, parse_version
from ttlsnap.check.findings import Verdict
from ttlsnap.check.functions import compare_functions, find_changed_parts
from ttlsnap.check.groups import compare_aggregates, compare_arguments, compare_keys, compare_numbers
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


def compare_operators(both: Comparison) -> None:
    """Compare all stateful operators: those with the same number, if they are of one kind."""
    old, new = both.old.operators, both.new.operators
    names = [[operator.name for operator in operators] for operators in (old, new)]
    if any(name is None for name in (*names[0], *names[1])):
        both.cannot_compare("the kinds of the operators: Spark before 4.0 does not record them")
        if len(old) != len(new):
            _add_other_operators(both, names)
            return
    elif names[0] != names[1]:
        _add_other_operators(both, names)
        return
    if _are_operators_swapped(both):
        return
    for was, now in zip(old, new, strict=True):
        _compare_operator(both, was, now)


def _add_other_operators(both: Comparison, names: list[list[str | None]]) -> None:
    before, after = ([name or "unnamed" for name in found] for found in names)
    gone, come = Counter(before) - Counter(after), Counter(after) - Counter(before)
    if not gone and not come:
        outcome = OPERATORS_REORDERED
    elif len(before) == len(after):
        outcome = OPERATOR_REPLACED
    else:
        outcome = OPERATOR_ADDED if len(before) < len(after) else OPERATOR_REMOVED
    both.add(outcome, Place(), ", ".join(before), ", ".join(after), added=", ".join(come), removed=", ".join(gone))


def _are_operators_swapped(both: Comparison) -> bool:
    """Report operators of one kind that changed places, which Spark does not detect. Return whether that is certain."""
    old = [tuple(map(both.in_new_names, operator.plan or ())) for operator in both.old.operators]
    new = [operator.plan or () for operator in both.new.operators]
    if old == new or () in (*old, *new):
        return False
    names = [operator.name for operator in both.new.operators]
    exactly = Counter(old) == Counter(new)
    alike = [(i, j) for i, j in combinations(range(len(names)), 2) if names[i] == names[j]]
    if not exactly and not any(look_swapped((old[i], old[j]), (new[i], new[j])) for i, j in alike):
        return False
    shown = (", ".join(operator.name or "" for operator in side.operators) for side in (both.old, both.new))
    both.add(OPERATORS_SWAPPED if exactly else OPERATORS_MAYBE_SWAPPED, Place(), *shown)
    return exactly


def _compare_operator(both: Comparison, old: OperatorContract, new: OperatorContract) -> None:
    place = Place(operator=new.id, operator_name=new.name or old.name)
    for outcome, was, now in (
        (TIME_MODE, old.time_mode, new.time_mode),
        (RECORDED_OUTPUT_MODE, old.output_mode, new.output_mode),
    ):
        if None not in (was, now) and was != now:
            both.add(outcome, place, was, now)
    start = len(both.findings)
    plans = pair_plans(both, old, new) if can_compare_plans(both, old, new) else None
    changed = find_changed_parts(old, new) if plans else None
    if plans:
        _compare_plans(both, place, old, new)
    mine = [name for name, names in LAYOUTS.items() if place.operator_name in (*names, None)]
    if any(both.old.conf.get(name) != both.new.conf.get(name) for name in mine if _both_have(both, name)):
        _add_other_layout(both, place, old, new)
        return
    parts = None if changed is None else tuple(part for found in changed.values() for part in found)
    _compare_stores(both, place, old, new, Known(plans, parts))
    if plans:
        compare_numbers(both, place, plans, start)
    if any(f.code.endswith("-nullability") and f.verdict is Verdict.RECONFIGURATION for f in both.findings[start:]):
        _refuse_unknown_nulls(both, start)


def _compare_plans(both: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    """Report what is computed in another way."""
    before, after = pair_plans(both, old, new)
    compare_keys(both, place, before, after)
    compare_aggregates(both, place, before, after)
    compare_arguments(both, place, old, new)
    compare_columns(both, place, before, after)
    if are_sides_swapped(both, place, before, after):
        return
    compare_joins(both, place, before, after)
    if before.limit != after.limit:
        both.add(LIMIT_CHANGED, place, before.limit, after.limit)
    if before.timeout != after.timeout:
        both.add(TIMEOUT_CHANGED, place, before.timeout, after.timeout)
    compare_watermarks(both, place, old, before, after)
    compare_upstream(both, place, before, after)
    compare_functions(both, place, old, new)


def _add_other_layout(both: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    """Report that schemas of two layouts cannot be compared, unless plan and functions are the same.

    The same plan, which includes the types of the sources, gives the same state.
    """
    same = [both.in_new_names(line) for line in old.plan or ()] == list(new.plan or ())
    if old.plan is None or new.plan is None or not same or any((find_changed_parts(old, new) or {}).values()):
        both.add(OTHER_LAYOUT, place)


def _refuse_unknown_nulls(both: Comparison, start: int) -> None:
    """Make unknown nullability incompatible if Spark refuses another column's at the start anyway.

    Then a setting alone does not let the query start.
    """
    for number, finding in enumerate(both.findings[start:], start):
        if finding.verdict is Verdict.UNKNOWN and finding.code.endswith("-nullability"):
            more = "with Spark's schema check switched off, the query would start; but "
            both.findings[number] = replace(
                finding, verdict=Verdict.INCOMPATIBLE, spark="refuses at the start", fix=more + finding.fix
            )


def _both_have(both: Comparison, name: str) -> bool:
    return name in both.old.conf and name in both.new.conf


def _compare_stores(both: Comparison, place: Place, old: OperatorContract, new: OperatorContract, known: Known) -> None:
    before, after = ({store.name: store for store in operator.stores} for operator in (old, new))
    if before.keys() != after.keys():
        both.add(OTHER_STORES, place, ", ".join(sorted(before)), ", ".join(sorted(after)))
        return
    for name in sorted(before):
        _compare_store(both, place.at(store=name), before[name], after[name], known)


def _compare_store(both: Comparison, place: Place, old: StoreContract, new: StoreContract, known: Known) -> None:
    if old.states is None or new.states is None:
        both.add(NO_SCHEMA, place, *(None if store.states is None else "known" for store in (old, new)))
        return
    before = {state.name: state for state in old.states}
    after = {state.name: state for state in new.states}
    if place.operator_name in transform_with_state.NAMES:
        unused = None if old.unused is None else {state.name: state for state in old.unused}
        compare_variables(
            both,
            place,
            before,
            after,
            unused=unused,
            same_code=known.same_code,
            names_changed=bool(known.changed),
        )
        for name in sorted((unused or {}).keys() & after.keys() - before.keys()):
            _compare_returned(both, place.at(state=name), (unused or {})[name], after[name])
    elif before.keys() != after.keys():
        both.add(OTHER_STATES, place, *(", ".join(sorted(names)) or "none" for names in (before, after)))
    recorded = all(parse_version(contract.spark) >= (4, 0) for contract in (both.old, both.new))
    keys = [{len(state.key) for state in store.states or ()} for store in (old, new)]
    if recorded and keys[0] == keys[1] and old.prefix_key_columns != new.prefix_key_columns:
        both.add(OTHER_PREFIX, place, *(f"{store.prefix_key_columns} prefix columns" for store in (old, new)))
    for name in sorted(before.keys() & after.keys()):
        # A derived state follows the states from which it is derived.
        if before[name].role == "primary" or after[name].role == "primary":
            _compare_state(both, place.at(state=name), before[name], after[name], known)


def _compare_state(both: Comparison, place: Place, old: StateContract, new: StateContract, known: Known) -> None:
    if is_other_variable(both, place, old, new):
        return
    compare_ttl(both, place, old, new)
    own = place.operator_name in USERS_OWN
    avro = both.old.encoding == "avro" and place.operator_name in transform_with_state.NAMES
    compare_fields(both, place, How("key", names_count=known.plans is None), old.key, new.key)
    compare_floats(both, place, old.key)
    compare_intervals(both, place, old.key)
    before = len(both.findings)
    # The user's code knows what a field that the user named means.
    names_count = not known.same_code if own else known.plans is None
    nested = names_count if own else True
    how = How("value", names_count, nested, by_name=avro, by_code=own and known.same_code)
    compare_fields(both, place, how, old.value, new.value)
    if place.operator_name in AGGREGATIONS and known.plans is None:
        _take_names_for_functions(both, before)
    if place.operator_name == join.NAME and known.plans is not None and old.kind == "row":
        side = (old.name if old.name != "default" else place.store or "").partition("-")[0]
        compare_rows(both, place, side, (known.plans[0], old.value.names), (known.plans[1], new.value.names))


def _compare_returned(both: Comparison, place: Place, old: StateContract, new: StateContract) -> None:
    """Compare a variable of an earlier query with one of the same name that is new."""
    start = len(both.findings)
    # A list and a value are compared as two values, because Spark has not recorded which of the two it was.
    _compare_state(both, place, replace(old, kind=new.kind), new, _OF_NOTHING)
    found, both.findings[start:] = both.findings[start:], []
    report_returned(both, place, old, new, found)


def _take_names_for_functions(both: Comparison, start: int) -> None:
    """Turn renamed values into changed aggregates: an aggregation names its values after their functions."""
    found, both.findings[start:] = both.findings[start:], []
    for finding in found:
        if finding.code != "value-renamed":
            both.findings.append(finding)
        else:
            both.add(AGGREGATE_CHANGED, finding.place, finding.old, finding.new)
