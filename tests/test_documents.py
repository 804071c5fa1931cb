"""Dataclasses become JSON documents, and documents become dataclasses."""

from __future__ import annotations

import inspect
import json
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Literal

import pytest

import ttlsnap
from ttlsnap.documents import MILLISECONDS, Document, ReadableDocument, in_json, json_property, to_json


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: int | None = None


@dataclass(frozen=True)
class Shape(Document):
    JSON_ORDER = "version name large"

    name: str
    corners: tuple[Point, ...]
    color: Color = Color.RED
    center: Point | None = None
    version: int = field(default=1, init=False)
    moved_us: int = field(default=0, metadata=in_json("moved", convert=hex, read=lambda text: int(text, 16)))
    secret: str = field(default="", metadata=in_json(hidden=True))
    seconds: float = field(default=0.0, metadata=MILLISECONDS)
    notes: tuple[str, ...] = field(default=(), metadata=in_json(optional=True))
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    @json_property("is_large")
    def large(self) -> bool:
        return len(self.corners) > 3

    @property
    @json_property(optional=True)
    def first(self) -> Point | None:
        return self.corners[0] if self.corners else None


@dataclass(frozen=True)
class Drawing(Document):
    shape: Shape = field(metadata=in_json(inline=True))
    title: str


@dataclass(frozen=True)
class Stored(ReadableDocument):
    name: str
    state: Literal["open", "done"]
    pair: tuple[str, str] | None = None
    points: tuple[Point, ...] = ()
    inner: Stored | None = None
    version: int = field(default=1, init=False)


def test_a_document_has_its_fields_in_order_and_then_its_properties() -> None:
    shape = Shape("a", (Point(1), Point(2, 3)), seconds=1.23456, secret="x", notes=("n",), facts={"deep": (Point(4),)})
    assert list(shape.to_json().items()) == [
        ("version", 1),
        ("name", "a"),
        ("is_large", False),
        ("corners", [{"x": 1, "y": None}, {"x": 2, "y": 3}]),
        ("color", "red"),
        ("center", None),
        ("moved", "0x0"),
        ("seconds", 1.235),
        ("notes", ["n"]),
        ("facts", {"deep": [{"x": 4, "y": None}]}),
        ("first", {"x": 1, "y": None}),
    ]
    assert type(shape.to_json()["color"]) is str


def test_what_is_optional_is_absent_by_default() -> None:
    document = Shape("a", ()).to_json()
    assert "notes" not in document and "first" not in document and document["center"] is None


def test_the_keys_of_an_inline_object_are_beside_the_others() -> None:
    shape = Shape("a", ())
    assert Drawing(shape, "t").to_json() == {**shape.to_json(), "title": "t"}


def test_plain_values_stay_as_they_are() -> None:
    assert to_json({"a": (1, 2.5, None, True, "x", [Point(1)])}) == {
        "a": [1, 2.5, None, True, "x", [{"x": 1, "y": None}]]
    }


def test_a_document_can_be_read_back() -> None:
    inner = Stored("b", "done", ("x", "y"))
    stored = Stored("a", "open", points=(Point(1), Point(2, 3)), inner=inner)
    assert Stored.from_json(json.loads(json.dumps(stored.to_json()))) == stored
    assert Stored.from_json({"name": "a", "state": "open"}) == Stored("a", "open")


@pytest.mark.parametrize(
    "document",
    [
        {"name": "a"},
        {"name": "a", "state": "open", "more": 1},
        {"name": "a", "state": "open", "points": None},
        {"name": "a", "state": "open", "points": [7]},
        {"name": "a", "state": "open", "points": [[["x", 1]]]},
        {"name": "a", "state": "open", "points": [{"x": 1, "z": 2}]},
        {"name": "a", "state": "open", "inner": []},
        [["name", "a"], ["state", "open"]],
    ],
)
def test_other_keys_and_forms_are_errors(document: Any) -> None:
    with pytest.raises(TypeError):
        Stored.from_json(document)


def test_the_order_of_every_document_names_its_members() -> None:
    for module in pkgutil.walk_packages(ttlsnap.__path__, "ttlsnap."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    classes: list[Any] = [Document]
    for one in classes:
        classes += one.__subclasses__()
        named = {*one.JSON_ORDER.split()}
        properties = {name for name, member in inspect.getmembers(one) if isinstance(member, property)}
        assert named - properties <= ({each.name for each in fields(one)} if is_dataclass(one) else set()), one
