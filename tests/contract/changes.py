"""Small jobs that give their ``body`` to Spark.

The title of each job follows ``===``. After bars come the texts for ``<>`` before and after a change. Another module of
the job follows ``---``.
"""

from __future__ import annotations

import re


def _jobs(text: str) -> dict[str, list[str]]:
    """Return by its title the text of each job, and the texts for ``<>``."""
    found = {}
    for block in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        line, _, job = block.partition("\n")
        title, *both = line.split(" | ")
        found[title] = [job, *both]
    return found


def _each(text: str, count: int) -> str:
    return "".join(text.format(n, n + 1) for n in range(count))


_SEEN = """
=== lambda over lines | + 1 | + 2
def udf(g, t): return g
body = udf(
    lambda x: x
    <>,
    'int')

=== lambda, its last branch | 0 | -1
body = (
    lambda x: x * 100
    if x is not None
    else <>,
)[0]

=== lambda, calls over lines | lower | upper
body = list([
    lambda s: s
    .strip()
    .<>()
])[0]

=== lambdas in a line | a, b | a, *b
a, body = (lambda x: x), (lambda <>: b)

=== lambda within a lambda | 1 | 2
body = (lambda: lambda x: x + <>)()

=== without source | b | *b
exec('def made(a, <>): return b')
body = made

=== long integer | 1 | 2
N = 10**5000 + <>
def body(x):
    return N

=== module in a comprehension | * 2 | * 3
def body(rows):
    import helpers
    return [helpers.g(r) for r in rows]
--- helpers.py
def g(x):
    return x <>

=== module of a package in a generator | * 2 | * 3
def body(rows):
    from pkg import helpers
    return sum(helpers.g(r) for r in rows)
--- pkg/__init__.py
--- pkg/helpers.py
def g(x):
    return x <>

=== module in a closure | * 2 | * 3
def build():
    import helpers
    def work(it):
        return helpers.g(it)
    return work
body = build()
--- helpers.py
def g(x):
    return x <>

=== module by another name | * 2 | * 3
import helpers
def body(rows):
    h = helpers
    return [h.g(r) for r in rows]
--- helpers.py
def g(x):
    return x <>

=== module given on | * 2 | * 3
import helpers
def run(m, x):
    return m.g(x)
def body(x):
    return run(helpers, x)
--- helpers.py
def g(x):
    return x <>

=== module as default | * 2 | * 3
import helpers
def body(x, h=helpers):
    return h.g(x)
--- helpers.py
def g(x):
    return x <>

=== module in a dict | * 2 | * 3
import helpers
H = {1: helpers}
def body(x):
    return H[1].g(x)
--- helpers.py
def g(x):
    return x <>

=== module as attribute | helpers | json
import helpers, json
class P:
    def __init__(self, h): self.h = h
    def __call__(self, x): return self.h.g(x)
body = P(<>)
--- helpers.py
def g(x): return x

=== module in a class | * 2 | * 3
def body(x):
    class K:
        import helpers
    return K.helpers.g(x)
--- helpers.py
def g(x):
    return x <>

=== module that looks elsewhere | * 2 | * 3
import helpers
def body(x):
    return helpers.g(x)
--- helpers.py
def __getattr__(name):
    import impl
    return getattr(impl, name)
--- impl.py
def g(x):
    return x <>

=== library | math | cmath
import <> as m
def body(x):
    return m.sqrt(x)

=== function of a library | json | tomllib
from <> import loads
def body(x):
    return loads(x)

=== built-in function of a library | math | cmath
from <> import sqrt
def body(x):
    return sqrt(x)

=== what a library made a function with | + 1 | + 2
import functools
def g(x): return x <>
found = functools.singledispatch(g).dispatch
def body(x):
    return found(int)(x)

=== method of a dict | 1 | 2
body = {'a': <>}.get

=== built-in | len | sum
body = <>

=== type | int | float
body = <>

=== method of a type | lower | upper
body = str.<>

=== getter | 'a' | 'b'
import operator
body = operator.itemgetter(<>)

=== slots | 3 | 4
class S:
    __slots__ = ('n',)
    def __init__(self, n): self.n = n
    def __call__(self, x): return x > self.n
body = S(<>)

=== dataclass with slots | 3 | 4
import dataclasses
@dataclasses.dataclass(slots=True)
class S:
    n: int
    def __call__(self, x): return x > self.n
body = S(<>)

=== dict that is called | 1 | 2
class L(dict):
    def __call__(self, x): return self.get(x)
body = L(a=<>)

=== kind of a dict | Counter | OrderedDict
from collections import *
class L(<>):
    def __call__(self, x): return self[x]
body = L()

=== wrapper with a number | 1 | 2
import functools
class Times:
    def __init__(self, f, n):
        functools.update_wrapper(self, f)
        self.n = n
g = Times(len, <>)
def body(x):
    return g(x)

=== __new__ | 1 | 2
class A(int):
    def __new__(cls, v): return super().__new__(cls, v * <>)
def body(x):
    return A(x)

=== cached __call__ | 1 | 2
import functools
class A:
    @functools.lru_cache
    def __call__(self, v): return v * <>
a = A()
def body(x):
    return a(x)

=== base | str | int
class K(<>): pass
def body(x):
    return K(x)

=== metaclass | 1 | 2
class M(type):
    def __call__(cls, *a): return <>
class K(metaclass=M): pass
def body(x):
    return K(x)

=== annotation | int | float
class E:
    amount: <>
def body(x):
    return E.__annotations__

=== kind of a method | @staticmethod | @classmethod
class K:
    <>
    def g(*a): return a
def body(x):
    return K.g(x)

=== order of constants | A = 1; B = 2 | B = 2; A = 1
class T:
    <>
def body(x):
    return vars(T)

=== method of a text | lower | upper
class K(str):
    def norm(self): return self.<>()
k = K('A')
def body(x):
    return x == k.norm()

=== attribute of a text | 1 | 2
class K(str): pass
k = K('A')
k.n = <>
def body(x):
    return x * k.n

=== method of a number | 1 | 2
import enum
class L(enum.IntEnum):
    LOW = 1
    def w(self): return <>
low = L.LOW
def body(x):
    return low.w()

=== attribute of a function | 3 | 4
def body(x):
    return x > body.n
body.n = <>

=== attribute of a helper | 3 | 4
def g(x): return x > g.n
g.n = <>
def body(x):
    return g(x)

=== order of a dict | 'a': 1, 'b': 2 | 'b': 2, 'a': 1
T = {<>}
def body(x):
    return list(T)

=== one list or two | A | []
A = []
B = <>
def body(x):
    A.append(x)
    return B

=== linked list | 1 | 2
c = <>
for n in range(5000): c = [n, c]
def body(x):
    return c

=== tuple of itself many times | 1 | 2
t = (<>,)
for n in range(60): t = (t, t)
def body(x):
    return t

=== set that its elements name | B | C
import enum
class S(enum.Enum):
    A = 'a'
    B = 'b'
    C = 'c'
    def closed(self): return self in CLOSED
CLOSED = frozenset({S.A, S.<>})
def body(x):
    return S(x).closed()

=== dict that its keys name | 1 | 2
class A:
    def go(self): return H[type(self)]
class B:
    def go(self): return H[type(self)]
H = {A: 1, B: <>}
def body(x):
    return H[type(x)]
"""
_UNKNOWN = """
=== module named at run time
import importlib
def body(x):
    return importlib.import_module('json').dumps(x)

=== module named so by another name
from importlib import import_module as at
def body(x):
    return at('json')

=== code made at run time
def body(x):
    return eval('x + 1')

=== name that is not there
def body(x):
    return of_a_notebook(x)

=== cell that is not filled
def build():
    def work(x): return g(x)
    yield work
    g = len
body = next(build())

=== attribute that is not there
import helpers
def body(x):
    return helpers.g(x)
--- helpers.py

=== import without source
exec('def made(x): import json')
body = made

=== comparison
import functools
k = functools.cmp_to_key(lambda a, b: a - b)
def body(x):
    return sorted(x, key=k)

=== view of memory
m = memoryview(b'a')
def body(x):
    return m[0]
"""
_ELSEWHERE = """
=== two lambdas in a line
body, g = (lambda x: x in {'a', 'b', 'c'}), (lambda x: x)

=== kind of a frozenset
class T(frozenset): pass
t = T({'a', 'b', 'c'})
def body(x): return t

=== sets of sets
t = {frozenset({'a', 'b'}), frozenset({'c', 'd', 'e'}), frozenset()}
def body(x): return t

=== set that its elements name
import enum
class S(enum.Enum):
    A = 'a'
    B = 'b'
    def g(self): return ALL
ALL = {*S}
def body(x): return S

=== set of functions
a, b, c = ({'f': n} for n in 'abc')
def of(v):
    return lambda x: v
t = {of(a), of(b), of(c)}
def body(x): return t

=== folder of a job
from pathlib import Path
HERE = Path(__file__).parent
def body(x): return HERE / 'rules.json'

=== file of a job
t = [__file__, f'file://{__file__}']
def body(x): return t, __file__

=== address in a text
class K: pass
K.ref = f'K:{id(K)}'
def body(x): return K

=== what is in the process alone
import logging, threading
log, lock = logging.getLogger(__name__), threading.Lock()
def body(x): return log, lock
"""
_LATE = "]\n    from helpers import g\n    return g(y)\n--- helpers.py\ndef g(x): return x <>\n"
LONG = {
    "lines of blanks in a text": ["def body(x):\n    return '''a\n<>\nb'''\n", "   ", ""],
    "elifs": [
        "def body(x):\n    if x: return\n" + _each("    elif x == {}: return\n", 400) + "    return <>",
        "1",
        "2",
    ],
    "sum": ["def body(x):\n    return x" + _each(" + {}", 700) + " + <>", "1", "2"],
    "import behind many constants": ["def body(x):\n    y = [" + _each("x + {}, ", 300) + _LATE, "* 2", "* 3"],
    "import behind many names": ["def body(x):\n    y = [" + _each("x.a{}, ", 300) + _LATE, "* 2", "* 3"],
    "functions one behind another": [
        _each("def g{}(x): return g{}(x)\n", 120) + "def g120(x): return <>\ndef body(x): return g0(x)",
        "1",
        "2",
    ],
    "named far and near": [
        _each("def g{:02}(x): return g{:02}(x)\n", 98)
        + "def g98(x): return z(x)\ndef z(x): return <>\ndef body(x): return g00(x) + z(x)",
        "1",
        "2",
    ],
}
SEEN = {**_jobs(_SEEN), **LONG}
UNKNOWN = _jobs(_UNKNOWN)
ELSEWHERE = _jobs(_ELSEWHERE)
