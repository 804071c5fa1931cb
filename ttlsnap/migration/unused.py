"""State variables that an earlier query had: what Spark has kept of them, and its removal.

Spark keeps their entries, and compares a new variable of the same name with the schema that an earlier one had. So a
removal takes the entries out of the state, and the schemas out of all state schema files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ttlsnap.checkpoint import Checkpoint
from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.place import Place
from ttlsnap.errors import Foreseen, RefusedError, UsageError
from ttlsnap.migration.evolution import Evolution, Step
from ttlsnap.operators import transform_with_state
from ttlsnap.operators.registry import unused_states_of
from ttlsnap.operators.transform_with_state import variable_in
from ttlsnap.stores.open import lineages_of, open_state_store


def find_unused(checkpoint: Checkpoint) -> list[StateDescriptor]:
    """Return the states in the files of a checkpoint that no variable of the query uses.

    Raise CorruptionError for an incomplete lineage.
    """
    state_store = open_state_store(checkpoint)
    return [
        state
        for operator in checkpoint.operators
        for store in operator.stores
        if operator.name in transform_with_state.NAMES
        for state in unused_states_of(checkpoint, operator, store, lineages_of(checkpoint, state_store, store))
    ]


def unused_variables(checkpoint: Checkpoint) -> dict[Place, tuple[str, ...]]:
    """Return the variables that an earlier query had, each with the states that Spark kept or may compare."""
    states_of_variables: dict[Place, list[str]] = {}
    kept_states = [(state.operator, state.store, state.state) for state in find_unused(checkpoint)]
    compared_states = [
        (operator.id, store.name, family.name)
        for operator in checkpoint.operators
        for store in operator.stores
        for family in store.unused
        if family.name != DEFAULT_FAMILY and not family.name.startswith(transform_with_state.TIMERS)
    ]
    names = {operator.id: operator.name for operator in checkpoint.operators}
    for operator, store, state in dict.fromkeys([*kept_states, *compared_states]):
        place = Place(operator, store, variable_in(state), operator_name=names[operator])
        states_of_variables.setdefault(place, []).append(state)
    return {place: tuple(states) for place, states in states_of_variables.items()}


def split_drops(checkpoint: Checkpoint, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names of unused variables, such as ``last`` or ``0.default.last``, and the other names."""
    names = list(names)
    known_names = (
        {name for place in unused_variables(checkpoint) for name in (place.state, str(place))} if names else set()
    )
    return [name for name in names if name in known_names], [name for name in names if name not in known_names]


def drop_unused(checkpoint: Checkpoint, evolution: Evolution, names: Collection[str]) -> Evolution:
    """Return the evolution that also removes these unused variables.

    Raise UsageError for a name that is not one of them, or is one of several operators.
    """
    if not names:
        return evolution
    variables = unused_variables(checkpoint)
    removed, steps = dict(evolution.removed), []
    for name in names:
        places = [place for place in variables if name in (place.state, str(place))]
        if len(places) != 1:
            choices = ", ".join(str(place) for place in places or variables) or "none"
            reason = "is a variable of several operators" if places else "is not a state variable that Spark has kept"
            raise UsageError(f"--drop {name}: {name} {reason}. Choose from: {choices}")
        (place,) = places
        store_place = (place.operator or 0, place.store or "")
        removed[store_place] = (*removed.get(store_place, ()), *variables[place])
        steps.append(Step("drop-unused", place, place.state, None))
    return replace(evolution, removed=removed, steps=(*evolution.steps, *steps))


def require_consent(target: str, evolution: Evolution, *, may_drop: bool, dry_run: bool) -> list[str]:
    """Return a note for a ``dry_run`` if the evolution can drop values, and nobody has agreed to that.

    Raise RefusedError otherwise.
    """
    lines = "".join(f"\n  {step}" for step in evolution.steps if step.can_drop)
    if not lines or may_drop:
        return []
    if not dry_run:
        raise RefusedError(f"{target}: this can drop values:{lines}\nTo agree, add --yes")
    return [foresee_question(lines)]


def foresee_question(lines: str) -> Foreseen:
    """Return the warning of a dry run about the steps in ``lines``, which can drop values."""
    return Foreseen(f"this can drop values:{lines}\nA run asks before that. If nobody can be asked, add --yes")
