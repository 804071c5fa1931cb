"""No function is too long to read, or takes too much: options are the fields of dataclasses."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARAMETERS, LINES = 12, 100


def test_no_function_has_many_parameters_or_lines() -> None:
    paths = [path for folder in ("ttlsnap", "cli", "transformers") for path in (ROOT / folder).rglob("*.py")]
    found = [f"{path.relative_to(ROOT)}: {told}" for path in paths for told in excesses(ast.parse(path.read_text()))]
    assert not found


def test_an_excess_is_found() -> None:
    parameters = ", ".join(f"p{number}" for number in range(PARAMETERS))
    most = f"def many({parameters}):\n" + "    pass\n" * (LINES - 1)
    assert excesses(ast.parse(most)) == []
    assert excesses(ast.parse(f"{most}    pass\n")) == ["many has 101 lines"]
    assert excesses(ast.parse(f"async def many({parameters}, *, more): ...")) == ["many has 13 parameters"]


def excesses(module: ast.Module) -> list[str]:
    """Return what is too much in the functions of a module."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            arguments = node.args
            parameters = len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])
            found += [f"{node.name} has {lines} lines"] * (lines > LINES)
            found += [f"{node.name} has {parameters} parameters"] * (parameters > PARAMETERS)
    return found
