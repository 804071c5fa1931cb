"""Operators, stores and state variables, old against new."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

from ttlsnap.check.collecting import Comparison
from ttlsnap.check.findings import Place, Verdict
from ttlsnap.check.meanings import (
    Plan,
    compare_meanings,
    compare_numbers,
    compare_rows,
    crossed,
    functions_differ,
    plans,
    plans_known,
)
from ttlsnap.check.rules import REFUSED_CONFIG, REFUSED_OPERATORS, SILENT
from ttlsnap.check.schemas import How, compare_fields
from ttlsnap.check.settings import LAYOUTS
from ttlsnap.contract import OperatorContract, StateContract, StoreContract
from ttlsnap.contract.functions import NAMES
from ttlsnap.operators import aggregation, group_state, join, session_window, transform_with_state


@dataclass(frozen=True)
class Told:
    """What the queries tell of an operator: the old and the new plan, and which parts of its functions differ.

    None where it is not known.
    """

    plans: tuple[Plan, Plan] | None
    differing: tuple[str, ...] | None

    @property
    def same_code(self) -> bool:
        """Whether the user's code does just what it did, but for the names of state variables."""
        return self.differing is not None and set(self.differing) <= {NAMES}


_AGGREGATIONS = (aggregation.NAME, session_window.NAME)
_USERS_OWN = (*transform_with_state.NAMES, *group_state.NAMES)  # whose fields are named by the user


def compare_operators(both: Comparison) -> None:
    """All stateful operators: those of one number against each other, where they are of one kind."""
    old, new = both.old.operators, both.new.operators
    names = [[operator.name for operator in operators] for operators in (old, new)]
    if any(name is None for name in (*names[0], *names[1])):
        both.not_seen("which kind an operator is of: Spark before 4.0 does not record it")
        if len(old) != len(new):
            _other_operators(both, names)
            return
    elif names[0] != names[1]:
        _other_operators(both, names)
        return
    if _swapped(both):
        return
    for was, now in zip(old, new, strict=True):
        _operator(both, was, now)


def _other_operators(both: Comparison, names: list[list[str | None]]) -> None:
    before, after = ([name or "unnamed" for name in found] for found in names)
    gone, come = Counter(before) - Counter(after), Counter(after) - Counter(before)
    if not gone and not come:
        code, what = "operators-reordered", "the operators are in another order"
    elif len(before) == len(after):
        code, what = "operator-replaced", f"{', '.join(come)} stands where {', '.join(gone)} stood"
    elif len(before) < len(after):
        code, what = "operator-added", f"{', '.join(come)} was added"
    else:
        code, what = "operator-removed", f"{', '.join(gone)} was removed"
    both.add(
        code,
        Verdict.INCOMPATIBLE,
        Place(),
        ", ".join(before),
        ", ".join(after),
        f"{what}; Spark knows an operator's state by its number",
        REFUSED_OPERATORS,
        "keep the stateful operators as they were, and add others in a query of their own, or begin a new checkpoint",
    )


def _swapped(both: Comparison) -> bool:
    """Whether operators of one kind have changed places, which Spark does not see."""
    old = [tuple(map(both.in_new_names, operator.plan or ())) for operator in both.old.operators]
    new = [operator.plan or () for operator in both.new.operators]
    if old == new or () in (*old, *new):
        return False
    names = [operator.name for operator in both.new.operators]
    exactly = Counter(old) == Counter(new)
    alike = [(i, j) for i, j in combinations(range(len(names)), 2) if names[i] == names[j]]
    if not exactly and not any(crossed((old[i], old[j]), (new[i], new[j])) for i, j in alike):
        return False
    both.add(
        "operators-reordered",
        Verdict.INCOMPATIBLE if exactly else Verdict.UNKNOWN,
        Place(),
        ", ".join(operator.name or "" for operator in both.old.operators),
        ", ".join(operator.name or "" for operator in both.new.operators),
        "operators of one kind have changed places: each gets the other's state"
        if exactly
        else "have operators of one kind changed places? One is more like what another was, whose state it gets",
        f"{SILENT}: wrong results, where their types are the same",
        "build the query in the old order, which is that of the branches of a union or a join"
        + ("" if exactly else "; if that is as it was, ignore this finding"),
    )
    return exactly


def _operator(both: Comparison, old: OperatorContract, new: OperatorContract) -> None:
    place = Place(operator=new.id, operator_name=new.name or old.name)
    for code, what, was, now in (
        ("time-mode", "time mode", old.time_mode, new.time_mode),
        ("output-mode", "output mode", old.output_mode, new.output_mode),
    ):
        if None not in (was, now) and was != now:
            both.add(
                code,
                Verdict.INCOMPATIBLE,
                place,
                was,
                now,
                f"the {what} is {now}, and was {was}: transformWithState records it",
                REFUSED_CONFIG,
                f"keep the {what} {was}, or begin a new checkpoint",
            )
    start = len(both.findings)
    known = plans(both, old, new) if plans_known(both, old, new) else None
    differing = functions_differ(old, new) if known else None
    if known:
        compare_meanings(both, place, old, new)
    mine = [name for name, names in LAYOUTS.items() if place.operator_name in (*names, None)]
    if any(both.old.conf.get(name) != both.new.conf.get(name) for name in mine if _both_have(both, name)):
        _other_layout(both, place, old, new)
        return
    parts = None if differing is None else tuple(part for found in differing.values() for part in found)
    _stores(both, place, old, new, Told(known, parts))
    if known:
        compare_numbers(both, place, known, start)
    if any(f.code.endswith("-nullability") and f.verdict is Verdict.RECONFIGURATION for f in both.findings[start:]):
        _refused_first(both, start)


def _other_layout(both: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    """Schemas of other layouts cannot be compared; the same plan, from the sources' types on, gives the same state."""
    same = [both.in_new_names(line) for line in old.plan or ()] == list(new.plan or ())
    if old.plan is None or new.plan is None or not same or any((functions_differ(old, new) or {}).values()):
        both.add(
            "layout",
            Verdict.UNKNOWN,
            place,
            None,
            None,
            "the two contracts have the state laid out in different ways, by another format version: keys and values "
            "cannot be compared",
            SILENT,
            "make the new contract with the old settings (--conf)",
        )


def _refused_first(both: Comparison, start: int) -> None:
    """What nobody knows of nulls is no question of a setting alone, as long as Spark refuses them at the start."""
    for number, finding in enumerate(both.findings[start:], start):
        if finding.verdict is Verdict.UNKNOWN and finding.code.endswith("-nullability"):
            more = "with Spark's check of schemas switched off it would start; but "
            both.findings[number] = replace(
                finding, verdict=Verdict.INCOMPATIBLE, spark="refuses at the start", fix=more + finding.fix
            )


def _both_have(both: Comparison, name: str) -> bool:
    return name in both.old.conf and name in both.new.conf


def _stores(both: Comparison, place: Place, old: OperatorContract, new: OperatorContract, told: Told) -> None:
    before, after = ({store.name: store for store in operator.stores} for operator in (old, new))
    if before.keys() != after.keys():
        both.add(
            "stores-changed",
            Verdict.INCOMPATIBLE,
            place,
            ", ".join(sorted(before)),
            ", ".join(sorted(after)),
            "the state is kept in other stores",
            "fails in the first batch",
            "make the new contract with the settings of the old one (--conf), or begin a new checkpoint",
        )
        return
    for name in sorted(before):
        _store(both, place.at(store=name), before[name], after[name], told)


def _store(both: Comparison, place: Place, old: StoreContract, new: StoreContract, told: Told) -> None:
    if old.states is None or new.states is None:
        both.add(
            "state-schema-missing",
            Verdict.UNKNOWN,
            place,
            None if old.states is None else "known",
            None if new.states is None else "known",
            "no schema is recorded, so there is nothing to compare",
            SILENT,
            "let a newer Spark run one batch, which records it",
        )
        return
    before = {state.name: state for state in old.states}
    after = {state.name: state for state in new.states}
    if place.operator_name in transform_with_state.NAMES:
        _variables(both, place, before, after, told)
    elif before.keys() != after.keys():
        both.add(
            "stores-changed",
            Verdict.INCOMPATIBLE,
            place,
            ", ".join(sorted(before)) or "none",
            ", ".join(sorted(after)) or "none",
            "the store keeps other states",
            "fails in the first batch",
            "make the new contract with the settings of the old one (--conf), or begin a new checkpoint",
        )
    recorded = all(operator.name for contract in (both.old, both.new) for operator in contract.operators)  # 4.0 on
    keys = [{len(state.key) for state in store.states or ()} for store in (old, new)]
    if recorded and keys[0] == keys[1] and old.prefix_key_columns != new.prefix_key_columns:
        both.add(
            "stores-changed",
            Verdict.INCOMPATIBLE,
            place,
            f"{old.prefix_key_columns} prefix columns",
            f"{new.prefix_key_columns} prefix columns",
            "keys are looked up by another number of their first columns",
            "fails in the first batch, or does not find what is there",
            "make the new contract with the settings of the old one (--conf), or begin a new checkpoint",
        )
    for name in sorted(before.keys() & after.keys()):
        # What is derived follows the states that it is derived from.
        if before[name].role == "primary" or after[name].role == "primary":
            _state(both, place.at(state=name), before[name], after[name], told)


def _variables(
    both: Comparison, place: Place, before: dict[str, StateContract], after: dict[str, StateContract], told: Told
) -> None:
    own = [[n for n, s in states.items() if s.role == "primary" and s.kind != "timer"] for states in (before, after)]
    gone = [name for name in own[0] if name not in after and both.renamed.get(name) not in after]
    renamed = [name for name in own[0] if name not in after and both.renamed.get(name) in after]
    come = [name for name in own[1] if name not in before and name not in both.renamed.values()]
    for name in renamed:
        _lost(both, place, name, both.renamed[name], ", as you say")
    for was, now in zip(gone, come, strict=False):
        _lost(both, place, was, now, ", and the code is the same" if told.same_code else "")
    changed_places = [
        (one, two)
        for one, two in combinations(sorted(set(own[0]) & set(own[1])), 2)
        if before[one].value != before[two].value
        and (before[one].kind, before[one].value) == (after[two].kind, after[two].value)
        and (before[two].kind, before[two].value) == (after[one].kind, after[one].value)
    ]
    if (told.same_code and told.differing and not gone and not come) or changed_places:
        both.add(
            "variable-renamed",
            Verdict.INCOMPATIBLE,
            place,
            ", ".join(own[0]),
            ", ".join(own[1]),
            "state variables have changed names: the code finds in each what was in another",
            f"{SILENT}: wrong results",
            "give them their old names",
        )
    for name in gone[len(come) :]:
        both.add(
            "variable-removed",
            Verdict.AS_IS,
            place.at(state=name),
            name,
            None,
            f"the variable {name} was removed, and what is in it goes",
            SILENT,
        )
    for name in come[len(gone) :]:
        both.add(
            "variable-added",
            Verdict.AS_IS,
            place.at(state=name),
            None,
            name,
            f"the variable {name} was added, and is empty for every key",
            SILENT,
        )


def _lost(both: Comparison, place: Place, was: str, now: str, known: str) -> None:
    asked = known or ": is it the same?"
    both.add(
        "variable-renamed",
        Verdict.INCOMPATIBLE if known else Verdict.UNKNOWN,
        place.at(state=now),
        was,
        now,
        f"the variable {was} is gone and {now} is new{asked} Spark does not carry over what was in it",
        f"{SILENT}: the new variable is empty",
        f"keep the name {was}; if {now} is another variable, ignore this finding",
    )


def _state(both: Comparison, place: Place, old: StateContract, new: StateContract, told: Told) -> None:
    if old.kind != new.kind:
        both.add(
            "variable-kind",
            Verdict.INCOMPATIBLE,
            place,
            old.kind,
            new.kind,
            f"{new.name} was a {old.kind}, and is a {new.kind}",
            "refuses at the start: STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
            "give the new variable another name",
        )
        return
    if None not in (old.ttl, new.ttl) and old.ttl != new.ttl:
        both.add(
            "ttl-on" if new.ttl else "ttl-off",
            Verdict.INCOMPATIBLE,
            place,
            "ttl" if old.ttl else "no ttl",
            "ttl" if new.ttl else "no ttl",
            f"{new.name} {'got a TTL' if new.ttl else 'lost its TTL'}, and its values another layout",
            "refuses at the start, or under Avro fails in the first batch that reads",
            "give the variable another name (it begins empty), or leave the TTL as it was"
            + ("; ttlsnap compact drops old entries without one" if new.ttl else ""),
        )
        return
    _ttl(both, place, old, new)
    own = place.operator_name in _USERS_OWN
    avro = both.old.encoding == "avro" and place.operator_name in transform_with_state.NAMES
    compare_fields(both, place, How("key", names_count=told.plans is None), old.key, new.key)
    before = len(both.findings)
    # What a field of the user's own means, the code knows that works on it.
    names_count = not told.same_code if own else told.plans is None
    nested = names_count if own else True
    how = How("value", names_count, nested, by_name=avro, by_code=own and told.same_code)
    compare_fields(both, place, how, old.value, new.value)
    if place.operator_name in _AGGREGATIONS and told.plans is None:
        _name_functions(both, before)
    if place.operator_name == join.NAME and told.plans is not None and old.kind == "row":
        side = (old.name if old.name != "default" else place.store or "").partition("-")[0]
        compare_rows(both, place, side, (told.plans[0], old.value.names), (told.plans[1], new.value.names))


def _ttl(both: Comparison, place: Place, old: StateContract, new: StateContract) -> None:
    """A TTL that is shorter or longer; Spark stores the moment of expiry with each value."""
    if old.ttl and new.ttl and (old.ttl_ms is None) != (new.ttl_ms is None):
        both.not_seen(f"whether the TTL of {new.name} is shorter or longer: only one of the two contracts tells it")
    if old.ttl_ms is None or new.ttl_ms is None or old.ttl_ms == new.ttl_ms:
        return
    was, now = (_duration(ttl) for ttl in (old.ttl_ms, new.ttl_ms))
    shorter = new.ttl_ms < old.ttl_ms
    both.add(
        "ttl-shorter" if shorter else "ttl-longer",
        Verdict.AS_IS,
        place,
        was,
        now,
        f"the TTL of {new.name} is {now}, and was {was}: what is in the state expires when the old one lets it",
        f"{SILENT}: the new TTL counts for what is written from now on",
        f"if what is in the state is to expire sooner: ttlsnap compact --old-ttl {was} --ttl {now} before the restart"
        if shorter
        else "",
    )


def _duration(milliseconds: int) -> str:
    """As ``--ttl`` takes it, in the largest unit that it is a whole number of."""
    units = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
    unit, size = next(((unit, size) for unit, size in units if milliseconds % size == 0), ("ms", 1))
    return f"{milliseconds // size}{unit}"


def _name_functions(both: Comparison, start: int) -> None:
    """The value of an aggregation is named by its functions: another name there is another function."""
    found, both.findings[start:] = both.findings[start:], []
    for finding in found:
        if finding.code != "value-renamed":
            both.findings.append(finding)
        else:
            both.add(
                "aggregate-changed",
                Verdict.INCOMPATIBLE,
                finding.place,
                finding.old,
                finding.new,
                f"{finding.new} stands where {finding.old} stood, and goes on with what that had come to",
                f"{SILENT}: wrong results",
                f"keep {finding.old}, or begin a new checkpoint",
            )
