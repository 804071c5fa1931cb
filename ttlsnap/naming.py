"""The names of states, and of options in messages.

Messages name the options of the command line, which is what most readers use: ``repeat the command with --stopped``.
Somebody who calls a function reads ``repeat the call with stopped=True``.
"""

from __future__ import annotations

import re

_FLAGS = frozenset(
    ("age", "drop-unmatched", "dry-run", "erase", "escape-formulas", "narrow", "sizes", "stopped", "yes")
)
_PARAMETERS = {
    "birth": "births",
    "drop": "drops",
    "fill": "fills",
    "from": "source",
    "ignore": "ignores",
    "no-planned-batch": "planned_batch=False",
    "rename": "renamed",
    "schema": "schemas",
    "set": "settings",
    "swap": "swaps",
    "table": "tables",
    "transformer": "transformers",
}
_COMMAND = re.compile(r"\bttlsnap [a-z]+\b.*?(?=\.(?:\s|$)|;\s|\n|`|$)")
_OPTION = re.compile(r"(?<![\w-])--(?P<name>[a-z][a-z-]*[a-z])(?: \(in Python: (?P<python>[^)]*)\))?")
_POLICY = re.compile(r" \(in a policy: [^)]*\)")
_CALLS = (
    ("--engine local", "LocalEngine()"),
    ("--max-drop 100%", "max_drop=1.0"),
    ("repeat the command", "repeat the call"),
    ("to migrate with --from", "to NewQuery as old (both take what load_contract returns)"),
)


def name_state(operator: int, store: str, state: str) -> str:
    """Return the name of a state: ``0.default.last``, or ``0.left-keyToNumValues`` for the only state of a store."""
    return f"{operator}.{store}" + ("" if state == "default" else f".{state}")


def for_python(message: str) -> str:
    """Return a message with parameters in place of the options of the command line. Commands stay as they are."""
    parts, end = [], 0
    for command in _COMMAND.finditer(message):
        parts += [_with_parameters(message[end : command.start()]), command[0]]
        end = command.end()
    return "".join([*parts, _with_parameters(message[end:])])


def without_policy(message: str) -> str:
    """Return a message without the keys of a policy that do what an option does."""
    return _POLICY.sub("", message)


def _with_parameters(text: str) -> str:
    text = without_policy(text)
    for words, call in _CALLS:
        text = text.replace(words, call)
    return _OPTION.sub(_parameter, text)


def _parameter(option: re.Match[str]) -> str:
    name = option["name"]
    if option["python"] is not None:
        return option["python"]
    parameter = _PARAMETERS.get(name, name.replace("-", "_"))
    return f"{parameter}=True" if name in _FLAGS else parameter
