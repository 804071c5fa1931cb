"""Digests of functions change if and only if the behavior may change."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.contract.functions import INCOMPLETE, digests, name_of

from .changes import ELSEWHERE, SEEN, UNKNOWN

EVERY_KIND = Path(__file__).with_name("every_kind.py")

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
def _forget(monkeypatch: pytest.MonkeyPatch) -> Any:
    import linecache

    # Python takes bytecode for current if the size and the second of the last change are the same.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    sys.modules.pop("a_job", None)
    linecache.clearcache()


def both(tmp_path: Path, old: str, new: str, edit: Any) -> tuple[Any, Any]:
    """Return the results of ``edit`` for a module before and after a change of its text."""
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
def test_edits_without_effect_keep_the_digest(tmp_path: Path, old: str, new: str) -> None:
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
def test_edits_with_an_effect_change_the_digest(tmp_path: Path, old: str, new: str) -> None:
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
def test_an_edit_of_a_class_changes_the_digest_of_its_method(tmp_path: Path, old: str, new: str, part: str) -> None:
    first, second = both(tmp_path, old, new, lambda m: digests(m.Processor()))
    assert {name for name in first if first[name] != second[name]} == {part}


def test_the_digest_of_an_object_depends_on_its_arguments(tmp_path: Path) -> None:
    made = module(tmp_path, ORIGINAL)
    assert digests(made.Processor()) == digests(made.Processor(3)) != digests(made.Processor(4))


def test_digests_of_lambdas_depend_on_code_and_closure(tmp_path: Path) -> None:
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
def test_a_digest_depends_on_the_objects_in_a_closure(one: Any, two: Any) -> None:
    def made(held: Any) -> Any:
        def work(rows: Any) -> Any:
            return [held, rows]

        return work

    assert digests(made(one)) == digests(made(one)) != digests(made(two))


CONSTANTS = [
    ("datetime.timedelta(minutes=5)", "datetime.timedelta(minutes=6)"),
    ("datetime.datetime(2026, 1, 1)", "datetime.datetime(2026, 1, 2)"),
    ("decimal.Decimal('1.5')", "decimal.Decimal('1.6')"),
    ("re.compile('a+')", "re.compile('a*')"),
    ("re.compile('a')", "re.compile('a', re.IGNORECASE)"),
    ("numpy.array([1, 2])", "numpy.array([1, 3])"),
    ("numpy.array([1, 2], dtype='i4')", "numpy.array([1, 2], dtype='i8')"),
    ("numpy.int64(5)", "numpy.int64(6)"),
    ("pandas.Timestamp('2026-01-01')", "pandas.Timestamp('2026-01-02')"),
    ("pandas.DataFrame({'a': [1]})", "pandas.DataFrame({'a': [2]})"),
    ("pyarrow.array([1, 2])", "pyarrow.array([1, 3])"),
    ("{('a', 1): 2}", "{('a', 2): 2}"),
    ("{('a', 1), ('b', 1)}", "{('a', 1), ('b', 2)}"),
    ("collections.deque([1])", "collections.deque([2])"),
    ("collections.Counter('ab')", "collections.Counter('abb')"),
    ("collections.OrderedDict(a=1, b=2)", "collections.OrderedDict(b=2, a=1)"),
    ("collections.defaultdict(int, a=1)", "collections.defaultdict(float, a=1)"),
    ("operator.itemgetter('a')", "operator.itemgetter('b')"),
    ("operator.add", "operator.sub"),
    ("math.floor", "math.ceil"),
    ("math.floor", "statistics.mean"),
    ("datetime.date", "datetime.datetime"),
    ("Slotted(1)", "Slotted(2)"),
    ("Level.LOW", "Level.HIGH"),
    ("StructType().add('a', IntegerType())", "StructType().add('a', LongType())"),
    ("zoneinfo.ZoneInfo('UTC')", "zoneinfo.ZoneInfo('Europe/Rome')"),
    ("pathlib.PurePosixPath('a')", "pathlib.PurePosixPath('b')"),
    ("'a'.join", "'b'.join"),
    ("2j", "3j"),
]
HOLDER = """
import collections, datetime, decimal, enum, math, operator, pathlib, re, statistics, zoneinfo
import numpy, pandas, pyarrow
from pyspark.sql.types import IntegerType, LongType, StructType


class Slotted:
    __slots__ = ("size",)

    def __init__(self, size):
        self.size = size


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


HELD = %s


def body(x):
    return HELD, x
"""


@pytest.mark.parametrize(("one", "two"), CONSTANTS)
def test_a_digest_depends_on_constants_of_every_type(tmp_path: Path, one: str, two: str) -> None:
    import linecache

    found = []
    for text in (one, one, two):
        linecache.clearcache()
        found.append(digests(module(tmp_path, HOLDER % text).body))
    assert found[0] == found[1] != found[2]


def test_a_digest_is_the_same_in_the_next_process(tmp_path: Path) -> None:
    """Sets of strings have another order in each process."""
    held = ", ".join(one for one, _ in CONSTANTS)
    (tmp_path / "a_job.py").write_text(
        HOLDER % f"[{held}, {{'a', 'b', 'c'}}, threading.Lock(), random.Random(), logger]"
    )
    text = (tmp_path / "a_job.py").read_text()
    imports = "import logging, random, threading\nlogger = logging.getLogger('a')\n"
    (tmp_path / "a_job.py").write_text(imports + text)
    show = "import a_job; from ttlsnap.contract.functions import digests; print(digests(a_job.body))"
    places = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    found = {
        subprocess.run(
            [sys.executable, "-c", show],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": places},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1, found


WITHIN = {
    "import a_helper": "a_helper.up(x)",
    "import a_helper as other": "other.GAP",
    "from a_helper import GAP": "GAP",
    "from a_helper import up as other": "other(x)",
    "import a_package.limits": "a_package.limits.GAP",
    "import a_package.limits as limits": "limits.GAP",
    "from a_package import limits": "limits.GAP",
    "from a_package.limits import GAP": "GAP",
    "import a_package": "a_package.limited.GAP",
    "import a_space.inner": "a_space.inner.GAP",
}


@pytest.mark.parametrize("where", ["outside", "inside"])
@pytest.mark.parametrize("statement", list(WITHIN))
def test_a_digest_depends_on_imported_modules(tmp_path: Path, statement: str, where: str) -> None:
    """The import is in the function or in its module, from a module, a package, or a namespace package."""
    import linecache

    found: list[Any] = []
    for helper in (HELPERS, HELPERS, HELPERS.replace("GAP = 3", "GAP = 4")):
        linecache.clearcache()
        folder = tmp_path / str(len(found))
        for name in ("a_helper.py", "a_package/__init__.py", "a_package/limits.py", "a_space/inner.py"):
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / name).write_text(helper if "__init__" not in name else "from . import limits as limited\n")
        outside = f"{statement}\n" if where == "outside" else ""
        inside = f"    {statement}\n" if where == "inside" else ""
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        try:
            found.append(
                digests(module(folder, f"{outside}def body(x):\n{inside}    return {WITHIN[statement]}\n").body)
            )
        finally:
            sys.path.remove(str(folder))
            for name in [name for name in sys.modules if name.startswith(("a_helper", "a_package", "a_space"))]:
                del sys.modules[name]
    assert found[0] == found[1] != found[2]


def test_a_digest_with_a_missing_import_is_marked_as_incomplete(tmp_path: Path) -> None:
    here = module(tmp_path, "def body(x):\n    import on_the_executors_only as it\n    return it.GAP\n")
    assert digests(here.body)["body"].endswith(INCOMPLETE)
    there = module(tmp_path, "def body(x):\n    import pyarrow.flight, json\n    return json.dumps(x)\n")
    assert not digests(there.body)["body"].endswith(INCOMPLETE)


def test_deeply_nested_constants_have_a_digest(tmp_path: Path) -> None:
    assert digests(
        module(tmp_path, "HELD = []\nfor _ in range(5000):\n    HELD = [HELD]\ndef body(x):\n    return HELD\n").body
    )


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
def test_a_digest_depends_on_everything_that_a_function_uses(tmp_path: Path, old: str, new: str) -> None:
    import linecache

    found = []
    assert old in HELPERS + USERS
    for replaced in (old, new):
        linecache.clearcache()
        module(tmp_path, HELPERS.replace(old, replaced), "a_helper")
        found.append(digests(module(tmp_path, USERS.replace(old, replaced)).body))
    sys.modules.pop("a_helper")
    assert found[0] != found[1]


def test_constants_and_properties_of_a_class_have_digests(tmp_path: Path) -> None:
    module(tmp_path, HELPERS, "a_helper")
    made = module(tmp_path, USERS)
    assert set(digests(made.kept)) == {"GAP", "limit", "work", "attributes"}
    assert list(digests(made.part)) == ["body"]
    sys.modules.pop("a_helper")


def test_code_of_a_job_in_a_wheel_is_not_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may be installed as a wheel."""
    from ttlsnap.contract import functions

    found = digests(Given("a"))
    monkeypatch.setattr(functions, "LIBRARIES", ("/",))
    assert digests(Given("a")) == found
    assert digests(test_a_function_that_names_itself_ends)["body"]


def test_an_object_that_contains_itself_has_a_digest() -> None:
    held: dict[str, Any] = {}
    held["self"] = held

    def work() -> Any:
        return held

    assert digests(work)


def test_two_lambdas_in_a_line_have_different_digests() -> None:
    one, two = (lambda x: x + 1), (lambda x: x + 2)
    assert digests(one) != digests(two)


def test_a_function_that_names_itself_ends() -> None:
    def again(n: int) -> int:
        return again(n - 1) if n else 0

    assert digests(again)


def project(folder: Path, text: str) -> Any:
    """Return the digests of ``body`` in a job. More modules of the job follow lines such as ``--- name.py``."""
    import linecache

    first, *more = re.split(r"^--- (\S+)\n", text, flags=re.MULTILINE)
    files = {"a_job.py": first, **dict(zip(more[::2], more[1::2], strict=True))}
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(content)
    tops = {name.partition("/")[0].removesuffix(".py") for name in files}
    linecache.clearcache()
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        return digests(importlib.import_module("a_job").body)
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
            del sys.modules[name]


@pytest.mark.parametrize("title", list(SEEN))
def test_each_change_of_a_job_changes_the_digest(tmp_path: Path, title: str) -> None:
    text, *both = SEEN[title]
    found = [project(tmp_path / str(n), text.replace("<>", one)) for n, one in enumerate([both[0], *both])]
    assert found[0] == found[1] != found[2]
    assert not any(digest.endswith(INCOMPLETE) for digest in found[0].values())


@pytest.mark.parametrize("title", list(UNKNOWN))
def test_a_digest_of_unavailable_code_is_marked_as_incomplete(tmp_path: Path, title: str) -> None:
    assert project(tmp_path, UNKNOWN[title][0])["body"].endswith(INCOMPLETE)


USED = (
    "import functools\nclass C:\n    @functools.cached_property\n    def p(self): return 1\n"
    "c = C()\n%s\ndef body(x): return c.p"
)


def test_a_digest_is_the_same_elsewhere(tmp_path: Path) -> None:
    """The folder, the order of sets in the process, and earlier use do not matter."""
    show = "import sys, importlib; from ttlsnap.contract.functions import digests\n"
    show += f"print([digests(importlib.import_module(f'job{{n}}').body) for n in range({len(ELSEWHERE) + 1})])"
    found = []
    for seed, use in (("1", ""), ("2", "c.p"), ("3", "")):
        folder = tmp_path / seed
        folder.mkdir()
        for number, text in enumerate([*(text for (text,) in ELSEWHERE.values()), USED % use]):
            (folder / f"job{number}.py").write_text(text)
        places = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": places}
        run = subprocess.run([sys.executable, "-c", show], env=environment, check=True, capture_output=True, text=True)
        found.append(run.stdout)
    assert found[0] == found[1] == found[2]
    assert INCOMPLETE not in found[0]


@pytest.mark.parametrize("place", ["lib/python3/dist-packages", "site-packages"])
def test_installed_packages_are_libraries(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for number, text in enumerate(["def g(x): return 1", "def g(x): return 2"]):
        folder = tmp_path / str(number) / place
        folder.mkdir(parents=True)
        (folder / "a_library.py").write_text(text)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "a_library", raising=False)
        found.append(project(tmp_path, "from a_library import g\ndef body(x): return g(x)"))
    assert found[0] == found[1]


def test_a_wrapped_function_is_not_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ttlsnap.contract import functions

    monkeypatch.setattr(functions, "LIBRARIES", ("/",))
    cached = "import functools\ndef g(x): return %d\nbody = functools.%s(g)"
    for way in ("lru_cache", "partial"):
        assert project(tmp_path / f"{way}1", cached % (1, way)) != project(tmp_path / f"{way}2", cached % (2, way))


def test_a_digest_without_an_optional_library_is_marked_as_incomplete(tmp_path: Path) -> None:
    """Apart from the mark, the digest is the same as with the library."""
    text = "def body(x):\n    try:\n        import a_fast_library\n    except ImportError:\n        return 1\n"
    absent = project(tmp_path, text)["body"]
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "a_fast_library.py").touch()
    sys.path.insert(0, str(folder))
    try:
        assert absent == project(tmp_path, text)["body"] + INCOMPLETE
    finally:
        sys.path.remove(str(folder))


def test_digests_of_every_kind_of_code_are_as_stored() -> None:
    """Contracts of earlier versions have them. tests/install compares those of other versions of Python."""
    made = subprocess.run([sys.executable, "-P", EVERY_KIND], check=True, capture_output=True, text=True).stdout
    assert made.splitlines() == EVERY_KIND.with_name("digests.json").read_text().splitlines()
