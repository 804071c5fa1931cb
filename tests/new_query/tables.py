"""Pairs of streams whose Delta tables a migration repairs: the answers that it needs, and the changes that it makes."""

from __future__ import annotations

CASES: list[tuple[str, list[str], list[str]]] = [
    ("table-column-added", [], ["add"]),
    ("table-column-renamed", ["--rename", "amount=sum"], ["rename"]),
    ("table-int-to-bigint-large", [], ["widen"]),
    ("table-now-nullable-nulls", [], ["nullability"]),
    ("table-append-only-old", [], ["property"]),
    ("table-column-removed", ["--drop", "price"], ["drop"]),
]
