"""Report wordings that readers had to read twice, in pages, messages, docstrings and comments; part of ``make lint``.

``docs/prose-rules.txt`` has the wordings, and what to write instead. Code spans, code blocks and links are not prose.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = tuple(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "examples/**/*.md", "sample_checkpoints/*.md")
    for path in sorted(ROOT.glob(pattern))
)
CODE = ("cli", "transformers", "ttlsnap")
_NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)


def rules() -> list[tuple[re.Pattern[str], str]]:
    """Return each wording, and the advice."""
    lines = (ROOT / "docs" / "prose-rules.txt").read_text().splitlines()
    pairs = (line.rpartition("  ") for line in lines if line and not line.startswith("#"))
    return [(re.compile(pattern, re.IGNORECASE), advice) for pattern, _, advice in pairs]


def pages() -> Iterator[tuple[str, int, str]]:
    """Give every line of prose in the pages: the file, the number, the text."""
    for name in PAGES:
        text = _NOT_PROSE.sub(lambda code: re.sub(r"[^\n]", "", code[0]), (ROOT / name).read_text())
        for number, line in enumerate(text.splitlines(), 1):
            yield name, number, line


def messages() -> Iterator[tuple[str, int, str]]:
    """Give every text that the code may print, with `...` for its values."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if any(parent.is_symlink() for parent in path.parents if parent != ROOT):
                continue
            tree = ast.parse(path.read_text())
            silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
            silent |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in ast.walk(tree):
                if id(node) not in silent and (text := _text(node)).count(" ") > 2:
                    yield name, node.lineno, text  # type: ignore[attr-defined]


def comments() -> Iterator[tuple[str, int, str]]:
    """Give every docstring and comment of the code, of the tests too. Code spans are not prose."""
    for folder in (*CODE, "tests", "benchmarks", "docs", "examples", "sample_checkpoints"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if any(parent.is_symlink() for parent in path.parents if parent != ROOT):
                continue
            source, name = path.read_text(), str(path.relative_to(ROOT))
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                    yield name, getattr(node, "lineno", 1), re.sub(r"``[^`]*``", "", text)
            for token in tokenize.generate_tokens(io.StringIO(source).readline):
                if token.type == tokenize.COMMENT:
                    yield name, token.start[0], token.string


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def main() -> int:
    """Print what was found; the exit code."""
    found = [
        f"{name}:{number}: {match[0]!r}: {advice}"
        for name, number, text in (*pages(), *messages(), *comments())
        for pattern, advice in rules()
        if (match := pattern.search(text))
    ]
    print("\n".join(found) or "The prose is clean.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
