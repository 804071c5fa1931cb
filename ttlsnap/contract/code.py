"""The code of a function as text, independent of its layout, and the values that the code names."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import importlib
import importlib.util
import linecache
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

UNAVAILABLE = object()
"""The value of a name in code if it was not available."""
DYNAMIC = (__import__, importlib.import_module, eval, exec, globals)
"""Functions through which code can reach names that its text does not show."""
Tree = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Library = Callable[[str], bool]
# Fields of a function's tree that do not count here: a function may have any name, for example.
_OUTSIDE = ("name", "returns", "decorator_list")


def tree_of(function: types.FunctionType) -> Tree | None:
    """Return the syntax tree of a function, found in the tree of its file; None if it cannot be found for certain.

    The lines of a lambda alone may not be valid code, so the whole file is parsed.
    """
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    try:
        trees = _functions("".join(lines)).get((code.co_firstlineno, code.co_name), [])
    except (SyntaxError, ValueError, RecursionError):
        return None
    if len(trees) > 1:  # several lambdas in one line
        positions = set(code.co_positions())
        trees = [node for node in trees if isinstance(node, ast.Lambda) and _position(node.body) in positions]
    return trees[0] if len(trees) == 1 else None


def text_of(function: types.FunctionType, tree: Tree | None) -> str:
    """Return the syntax tree of a function as text, or its byte code if there is no tree."""
    return _code(function.__code__) if tree is None else _dump(tree)


def find_names(function: types.FunctionType, tree: Tree | None, is_library: _Library) -> Iterator[tuple[str, Any]]:
    """Yield the globals, the imports and the closure variables that a function, or one within it, names.

    For a module of the user's own, yield only the attributes that the function uses. If it uses the module in another
    way, yield the module.
    """
    uses = {} if tree is None else _uses(tree)
    for name, value in (*_globals(function), *closure(function), *_imports(function, tree, is_library)):
        if not _is_own(value, is_library):
            yield name, value
            continue
        for path in sorted(uses.get(name, ())) or [()]:
            yield ".".join((name, *path)), _attribute(value, path, is_library)


def constant(value: Any) -> str:
    """Return a constant as text that is the same in every process."""
    kind = type(value)
    if kind is types.CodeType:
        return _code(value)
    if kind is frozenset:
        return f"frozenset({sorted(map(constant, value))})"
    if kind is tuple:
        return f"({', '.join(map(constant, value))},)"
    # Python refuses to write integers of thousands of digits in decimal.
    return hex(value) if kind is int else repr(value)


def _code(code: types.CodeType) -> str:
    consts = [constant(inner) for inner in code.co_consts]
    parameters = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_varnames)
    instructions = (code.co_code.hex(), code.co_exceptiontable.hex(), code.co_names)
    return f"{sys.version_info[:2]} {parameters} {instructions} {consts}"


@functools.lru_cache(maxsize=256)
def _functions(text: str) -> dict[tuple[int, str], list[Tree]]:
    """Return the functions of a file, without docstrings, by the first line of their code and their name."""
    functions: dict[tuple[int, str], list[Tree]] = defaultdict(list)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            _without_docstring(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[min(top.lineno for top in (node, *node.decorator_list)), node.name].append(node)
        elif isinstance(node, ast.Lambda):
            functions[node.lineno, "<lambda>"].append(node)
    return dict(functions)


def _position(node: ast.expr) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        node.body = node.body[1:] or [ast.Pass()]


@functools.lru_cache(maxsize=1024)
def _dump(function: Tree) -> str:
    """Return a syntax tree as text.

    ``ast.dump`` fails on trees that are nested too deeply, and its text differs between versions of Python.
    """
    lines: list[str] = []
    pending: list[Any] = [function]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.AST):
            # Empty fields are left out, because some versions of Python have more of them.
            fields = {name: value for name, value in ast.iter_fields(node) if value is not None and value != []}
            if isinstance(node, ast.JoinedStr):  # Python 3.12 has empty texts in it
                fields["values"] = [part for part in node.values if getattr(part, "value", None) != ""]
            if node is function:
                fields = {name: value for name, value in fields.items() if name not in _OUTSIDE}
            lines.append(f"{type(node).__name__} {' '.join(fields)}")
            pending += reversed(fields.values())
        elif isinstance(node, list):
            lines.append(f"[{len(node)}]")
            pending += reversed(node)
        else:
            lines.append(constant(node))
    return "\n".join(lines)


def _globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    variables = function.__globals__
    # Each name once: before Python 3.12, a list comprehension has code of its own.
    names = dict.fromkeys(name for code in _codes(function.__code__) for name in code.co_names)
    yield from ((name, variables[name]) for name in names if name in variables)
    for code in _codes(function.__code__):
        loaded_names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
        for name in sorted(loaded_names - variables.keys()):
            value = getattr(builtins, name, UNAVAILABLE)
            if value is UNAVAILABLE or value in DYNAMIC:
                yield name, UNAVAILABLE
        if "import_module" in code.co_names:
            yield "import_module", UNAVAILABLE


def closure(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function has from the functions in which it was defined."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            yield name, UNAVAILABLE


def _imports(function: types.FunctionType, tree: Tree | None, is_library: _Library) -> Iterator[tuple[str, Any]]:
    """Yield what code imports from the user's own modules when it runs; ``UNAVAILABLE`` for a failed import.

    Without a tree, yield one ``UNAVAILABLE`` if the code has any import.
    """
    if tree is None:
        steps = (step.opname for code in _codes(function.__code__) for step in dis.get_instructions(code))
        if "IMPORT_NAME" in steps:
            yield "import", UNAVAILABLE
        return
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            try:
                if isinstance(node, ast.ImportFrom):
                    package = function.__globals__.get("__package__")
                    name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                    if not is_library(name):
                        yield alias.asname or alias.name, _from(name, alias.name)
                elif not is_library(alias.name):
                    module, top = importlib.import_module(alias.name), alias.name.partition(".")[0]
                    yield (alias.asname, module) if alias.asname else (top, sys.modules[top])
            except (Exception, SystemExit):  # a module of the user's own may raise anything
                yield alias.name, UNAVAILABLE


def _from(module: str, name: str) -> Any:
    imported = importlib.import_module(module)
    return getattr(imported, name) if hasattr(imported, name) else importlib.import_module(f"{module}.{name}")


@functools.lru_cache(maxsize=1024)
def _uses(tree: Tree) -> dict[str, set[tuple[str, ...]]]:
    """Return the attribute paths that code uses of each name.

    For ``a.b.c`` the name ``a`` has the path ``b``, ``c``. For ``a`` alone it has an empty path.
    """
    paths_of_names: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    inner_nodes: set[ast.AST] = set()
    for node in ast.walk(tree):  # outer nodes come first
        if node in inner_nodes:
            continue
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path, node = [node.attr, *path], node.value
            inner_nodes.add(node)
        if isinstance(node, ast.Name):
            paths_of_names[node.id].add(tuple(path))
    return paths_of_names


def _attribute(value: Any, path: Iterable[str], is_library: _Library) -> Any:
    """Follow a path of attributes as far as it goes through modules of the user's own, and return the value there."""
    for name in path:
        if not _is_own(value, is_library):
            break
        value = vars(value).get(name, vars(value).get("__getattr__", UNAVAILABLE))
    return value


def _is_own(value: Any, is_library: _Library) -> bool:
    return isinstance(value, types.ModuleType) and not is_library(value.__name__)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)
