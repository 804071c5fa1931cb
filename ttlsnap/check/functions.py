"""The Python functions of a query, old against new: a digest shows that one changed, not whether that matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ttlsnap.check.comparison import Comparison
from ttlsnap.check.outcomes import FUNCTION_ADDED, FUNCTION_CHANGED, FUNCTION_REMOVED, FUNCTION_RENAMED
from ttlsnap.contract import OperatorContract
from ttlsnap.contract.functions import ATTRIBUTES, BASES, BODY, INCOMPLETE, NAMES
from ttlsnap.entries.place import Place

_IN_WORDS = {ATTRIBUTES: "what its constructor and init set", BASES: "the classes that it extends", BODY: "its body"}


def find_changed_parts(old: OperatorContract, new: OperatorContract) -> Mapping[tuple[str, str], Sequence[str]] | None:
    """Return the functions of two operators by their old and new names, with the parts that changed.

    A function that only one operator has is paired with an empty name, and its whole body counts as changed. A part
    that only one of two processors has counts as changed. None if a contract does not describe its functions.
    """
    if old.functions is None or new.functions is None:
        return None
    before, after = old.functions, new.functions
    pairs = [(name, name) for name in sorted(before.keys() & after.keys())]
    removed, added = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    pairs += zip(removed, added, strict=False)
    changed_parts = {
        (old_name, new_name): _find_changed_parts(before[old_name], after[new_name]) for old_name, new_name in pairs
    }
    return {
        **changed_parts,
        **{(old_name, ""): [BODY] for old_name in removed[len(added) :]},
        **{("", new_name): [BODY] for new_name in added[len(removed) :]},
    }


def _find_changed_parts(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    parts = sorted(part for part in before.keys() | after.keys() if before.get(part) != after.get(part))
    # Variables are compared by name elsewhere; changed names count only if nothing else changed.
    return parts if parts == [NAMES] else [part for part in parts if part != NAMES]


def compare_functions(comparison: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    """Report every function that changed, and those whose code a contract does not have completely."""
    if old.functions is None or new.functions is None:
        comparison.cannot_compare("Python functions: one of the contracts does not describe them")
    for name, digests in {**(old.functions or {}), **(new.functions or {})}.items():
        if any(digest.endswith(INCOMPLETE) for digest in digests.values()):
            comparison.cannot_compare(
                f"all of {name}: some code that it names or imports was not available when its contract was created"
            )
    for (old_name, new_name), parts in (find_changed_parts(old, new) or {}).items():
        if parts and parts != [NAMES]:
            function_place = place.at(
                field=f"{new_name}.{', '.join(parts)}" if list(parts) != [BODY] else new_name or old_name
            )
            outcome = FUNCTION_CHANGED if old_name and new_name else FUNCTION_REMOVED if old_name else FUNCTION_ADDED
            old_text, new_text = (
                _list_parts(name, functions.get(name, {}), parts)
                for name, functions in ((old_name, old.functions or {}), (new_name, new.functions or {}))
            )
            comparison.add(
                outcome,
                function_place,
                old_text,
                new_text,
                name=new_name or old_name,
                parts=", ".join(_IN_WORDS.get(part, part) for part in parts),
            )
        elif old_name != new_name:
            comparison.add(FUNCTION_RENAMED, place, old_name, new_name)


def _list_parts(name: str, digests: Mapping[str, str], changed_parts: Sequence[str]) -> str | None:
    """Return a line for each changed part that a function has, with its digest; None if it has none of them."""
    lines = [
        f"{name if part == BODY else f'{name}.{part}'} ({digests[part]})" for part in changed_parts if part in digests
    ]
    return "\n".join(lines) or None
