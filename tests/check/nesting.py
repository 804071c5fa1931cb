"""Expressions around another one, as Spark writes them, at any depth."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

AROUND = (
    "upper({})",
    "f(b, {}, 'it\\'s (c = d), cast(c as string)')",
    "({} + b)",
    "(b - {})",
    "({} = b)",
    "(b <=> {})",
    "(({} > 1) AND isnotnull(b))",
    "NOT {}",
    "-{}",
    "CASE WHEN (b > 0) THEN {} ELSE 'x' END",
    "b IN ({},'1, 2',3)",
    "{} LIKE %x_",
    "explode(array({}, b)).col",
    "array({})[0]",
    "transform(b, lambdafunction((lambda x_1 * {}), lambda x_1, false))",
    "from_json(StructField(c,StringType,true), {}, Some(UTC))",
    "cast({} as decimal(10,2))",
    "cast({} as array<struct<x:int,y:map<string,double>>>)",
    "cast({} + INTERVAL '1 02' DAY TO HOUR as timestamp)",
)
"""Texts with a place for another expression."""

surroundings = st.lists(st.sampled_from(AROUND), max_size=30)
"""Up to 30 of these texts, the innermost first."""
without_casts = st.lists(st.sampled_from([text for text in AROUND if "cast({}" not in text]), max_size=30)


def nest(expression: str, around: Sequence[str]) -> str:
    """Return the expression within each of the texts, one after another."""
    for text in around:
        expression = text.replace("{}", expression)
    return expression
