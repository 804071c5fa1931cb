"""Digests of functions: what changes what they do is seen, and nothing else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.contract.functions import digests, name_of

ORIGINAL = '''
"""A module."""
FACTOR = 2


def helper(x):
    return x * FACTOR


def body(x, y=1):
    """What it does."""
    # a comment
    return helper(x) + y


class Processor:
    """A class."""

    def __init__(self, size=3):
        self.size = size

    def init(self, handle):
        self.state = handle.get("a", ttl=1000)

    def work(self, rows):
        return [helper(row) for row in rows]
'''


def module(folder: Path, text: str, name: str = "a_job") -> Any:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture(autouse=True)
def _forget() -> Any:
    import linecache

    yield
    sys.modules.pop("a_job", None)
    linecache.clearcache()


def both(tmp_path: Path, old: str, new: str, edit: Any) -> tuple[Any, Any]:
    """What ``edit`` makes of a module before and after a change of its text."""
    import linecache

    assert old in ORIGINAL
    first = edit(module(tmp_path, ORIGINAL))
    linecache.clearcache()
    return first, edit(module(tmp_path, ORIGINAL.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a comment", "# another"),
        ("What it does.", "What it did."),
        ("return helper(x) + y", "return (helper(x)\n            + y)"),
        ("A module.", "The module."),
        ("def body(x, y=1):", "def body(x, y=1) -> int:"),
    ],
)
def test_what_changes_nothing_is_not_seen(tmp_path: Path, old: str, new: str) -> None:
    first, second = both(tmp_path, old, new, lambda m: digests(m.body))
    assert first == second
    assert list(first) == ["body"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("helper(x) + y", "helper(x) - y"),
        ("y=1", "y=2"),
        ("FACTOR = 2", "FACTOR = 3"),
        ("return x * FACTOR", "return x + FACTOR"),
    ],
)
def test_what_changes_something_is_seen(tmp_path: Path, old: str, new: str) -> None:
    first, second = both(tmp_path, old, new, lambda m: digests(m.body))
    assert first != second


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("ttl=1000", "ttl=2000", "init"),
        ("for row in rows]", "for row in rows if row]", "work"),
        ("FACTOR = 2", "FACTOR = 3", "work"),
    ],
)
def test_of_a_class_the_method_is_named(tmp_path: Path, old: str, new: str, part: str) -> None:
    first, second = both(tmp_path, old, new, lambda m: digests(m.Processor()))
    assert {name for name in first if first[name] != second[name]} == {part}


def test_what_an_object_was_given_counts(tmp_path: Path) -> None:
    made = module(tmp_path, ORIGINAL)
    assert digests(made.Processor()) == digests(made.Processor(3)) != digests(made.Processor(4))


def test_lambdas_and_closures(tmp_path: Path) -> None:
    def made(n: int) -> Any:
        return lambda x: x + n

    def other(n: int) -> Any:
        return lambda x: x - n

    assert digests(made(1)) == digests(made(1)) != digests(made(2))
    assert digests(made(1)) != digests(other(1))
    assert name_of(made(1)).endswith("<lambda>")


class Given:
    def __init__(self, column: str, made: Any = None) -> None:
        self.column, self.made = column, made


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([Given("a")], [Given("b")]),
        ({"x": ("a", 1)}, {"x": ("a", 2)}),
        ((Given("a", len), 1), (Given("a", len), 2)),
        ({"a", "b"}, {"a", "c"}),
        (Given("a", made=lambda x: x), Given("a", made=lambda x: -x)),
    ],
)
def test_what_a_closure_holds_counts(one: Any, two: Any) -> None:
    def made(held: Any) -> Any:
        def work(rows: Any) -> Any:
            return [held, rows]

        return work

    assert digests(made(one)) == digests(made(one)) != digests(made(two))


HELPERS = """
GAP = 3


def up(x):
    return x + GAP
"""
USERS = """
import functools
import a_helper


class Base:
    GAP = 1

    @property
    def limit(self):
        return 5


class Kept(Base):
    def work(self, x, *, g=2):
        return x + self.GAP + self.limit + g


def twice(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(x) * 2

    return wrapper


@twice
def wrapped(x):
    return x + 1


@functools.lru_cache
def cached(x):
    return x + 10


kept = Kept()
part = functools.partial(wrapped, 7)
NUMBERS = {1, 2}


def body(x):
    return a_helper.up(x), wrapped(x), cached(x), kept.work(x), part, NUMBERS
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("GAP = 3", "GAP = 4"),
        ("return x + GAP", "return x - GAP"),
        ("GAP = 1", "GAP = 2"),
        ("return 5", "return 6"),
        ("g=2", "g=3"),
        ("* 2", "* 3"),
        ("x + 1\n", "x + 2\n"),
        ("x + 10", "x + 11"),
        ("(wrapped, 7)", "(wrapped, 8)"),
        ("{1, 2}", "{1, 3}"),
    ],
)
def test_what_a_function_reaches_counts(tmp_path: Path, old: str, new: str) -> None:
    import linecache

    found = []
    assert old in HELPERS + USERS
    for replaced in (old, new):
        linecache.clearcache()
        module(tmp_path, HELPERS.replace(old, replaced), "a_helper")
        found.append(digests(module(tmp_path, USERS.replace(old, replaced)).body))
    sys.modules.pop("a_helper")
    assert found[0] != found[1]


def test_of_a_class_constants_and_properties_count(tmp_path: Path) -> None:
    module(tmp_path, HELPERS, "a_helper")
    made = module(tmp_path, USERS)
    assert set(digests(made.kept)) == {"GAP", "limit", "work", "attributes"}
    assert list(digests(made.part)) == ["body"]
    sys.modules.pop("a_helper")


def test_what_is_given_to_spark_is_never_taken_for_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may be installed as a wheel."""
    from ttlsnap.contract import functions

    found = digests(Given("a"))
    monkeypatch.setattr(functions, "_LIBRARIES", ("/",))
    assert digests(Given("a")) == found
    assert digests(test_a_function_that_names_itself_ends)["body"]


def test_what_holds_itself_ends() -> None:
    held: dict[str, Any] = {}
    held["self"] = held

    def work() -> Any:
        return held

    assert digests(work)


def test_two_lambdas_in_a_line_are_told_apart() -> None:
    one, two = (lambda x: x + 1), (lambda x: x + 2)
    assert digests(one) != digests(two)


def test_a_function_that_names_itself_ends() -> None:
    def again(n: int) -> int:
        return again(n - 1) if n else 0

    assert digests(again)
