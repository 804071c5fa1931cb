"""The options of ``ttlsnap migrate`` for the schemas of a new query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from ttlsnap.contract import Contract
    from ttlsnap.repairs.answers import Answers
    from ttlsnap.repairs.new_query import NewQuery


def make_answers(
    rename: Sequence[str] | None,
    swap: Sequence[str] | None,
    drop: Sequence[str] | None,
    fill: Sequence[str] | None,
    birth: Sequence[str] | None,
    *,
    narrow: bool,
) -> Answers:
    """Return the answers in the options."""
    from ttlsnap.repairs.answers import Answers

    return Answers(
        renamed=dict(_pair("--rename", "OLD=NEW", text, "=") for text in rename or ()),
        swaps=tuple(_pair("--swap", "FIELD,FIELD", text, ",") for text in swap or ()),
        fills=dict(_pair("--fill", "FIELD=LITERAL", text, "=") for text in fill or ()),
        drops=frozenset(drop or ()),
        births=tuple(birth or ()),
        narrow=narrow,
    )


def _pair(option: str, form: str, text: str, separator: str) -> tuple[str, str]:
    one, found, two = (part.strip() for part in text.partition(separator))
    if not found or not one or not two:
        raise UsageError(f"{option} is {form}, not {text!r}")
    return one, two


def load_new_query(to: str, old: str | None, answers: Answers, ignored: Sequence[str], *, may_drop: bool) -> NewQuery:
    """Return the new query with the contracts in ``to`` and ``old``."""
    from ttlsnap.check.ignores import parse_ignore
    from ttlsnap.repairs.new_query import NewQuery

    before = None if old is None else _load(old, "--from")
    return NewQuery(_load(to, "--to"), before, answers, [parse_ignore(text) for text in ignored], may_drop)


def _load(target: str, option: str) -> Contract:
    from ttlsnap.check.targets import load_contract
    from ttlsnap.contract import Contract

    found = load_contract(target)
    if not isinstance(found, Contract):
        raise UsageError(f"{option} {target} is a Delta table, not the contract of a query")
    return found
