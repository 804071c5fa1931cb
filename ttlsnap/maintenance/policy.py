"""The policy file: which targets are looked after, by which rules, and what to do where one cannot be.

TOML, checked whole before anything runs: its form by ``policy.schema.json``, which editors take as well, and what that
cannot say (a duration that is none, a transformer that is not there) here. An error names the file and the line.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import fastjsonschema

from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.clock import TimeCharacteristic, moment_of
from ttlsnap.errors import TtlsnapError, UsageError
from ttlsnap.expired.receivers import TABLE, ExpiredCallback
from ttlsnap.filesystem import read_given
from ttlsnap.incremental import Incremental
from ttlsnap.operators import Selection, TimerPolicy
from ttlsnap.schema.ddl import parse_schemas
from ttlsnap.stores import RewriteChoice
from ttlsnap.transform import StateSnapshotTransformerFactory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.transformers.registry import is_function, load_callback, load_factory
from ttlsnap.units import parse_duration, parse_retention, parse_share, parse_size

Place = tuple[str | int, ...]
"""Where something stands in the file: the keys, and the numbers of an array's items, that lead to it."""

OnBusy = Literal["skip", "wait", "fail"]
OnFenced = Literal["recover", "skip", "fail"]
OnTrouble = Literal["skip", "fail"]

_MAX_BYTES = 16 << 20
_VARIABLE = re.compile(r"\$(?:\$|\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_LINE = re.compile(r"\(at line (\d+), column \d+\)$")
_OF_JSON = (str, int, float, list, dict)
_LIMITS = ("max_partitions", "max_entries", "max_seconds")
_STRATEGY_KEYS = ("strategy", "buckets", "tombstone_share", *_LIMITS)
_TTL_KEYS = ("ttl", "timestamp", "old_ttl")
_RULE_KEYS = (*_TTL_KEYS, "time", "now", "transformer", "options", *_STRATEGY_KEYS)


@dataclass(frozen=True)
class Rule:
    """What expires: of the states that ``selection`` takes in, the entries whose key begins with ``key_prefix``.

    ``now`` is as for ``compact``, and ``now_us`` the moment that it names, None for what a checkpoint says.
    ``factories`` decide, one after the other. ``part`` is how much of it a run visits, None for all. ``every_us`` is
    how long a bucket is filled; None where there are none. ``rewrite`` is how its partitions are written, None where
    that is not said. ``name`` says which rule it is.
    """

    name: str
    selection: Selection
    key_prefix: tuple[str | int | bool, ...]
    now: str
    now_us: int | None
    factories: tuple[StateSnapshotTransformerFactory, ...]
    part: Incremental | None = None
    every_us: int | None = None
    rewrite: RewriteChoice | None = None


@dataclass(frozen=True)
class TargetPolicy:
    """One ``[[target]]``: where it is, how it is looked after, and its rules.

    ``wait_seconds`` is how long one that is busy is waited for, ``stopped`` says that its query is known to be
    stopped. The fields from ``schemas`` on are options of ``compact``."""

    name: str
    path: str
    rules: tuple[Rule, ...]
    exclude: tuple[str, ...] = ()
    on_busy: OnBusy = "skip"
    wait_seconds: float = 600
    on_fenced: OnFenced = "recover"
    on_damaged: OnTrouble = "fail"
    on_unknown: OnTrouble = "fail"
    stopped: bool = False
    planned_batch: bool = True
    max_drop: float | None = None
    schemas: Schemas = field(default_factory=dict)
    rewrite: RewriteChoice = "auto"
    scratch: str | None = None
    expired_to: str | ExpiredCallback | None = None
    drop_unmatched: bool = False
    timers: TimerPolicy = "keep"
    key: tuple[str, ...] = ()
    max_files: int | None = None
    max_bytes: int | None = None
    erase: bool = False
    retention_ms: int | None = None


@dataclass(frozen=True)
class Policy:
    """A policy file. ``folder`` is where relative paths begin, ``run`` says who does the work.

    ``wall_us`` is the moment that ``now = "wall"`` means, in microseconds since the epoch, ``document`` what the file
    says.
    """

    path: str
    folder: str
    run: Mapping[str, Any]
    targets: tuple[TargetPolicy, ...]
    wall_us: int
    document: Mapping[str, Any]


def read_policy(path: str, environment: Mapping[str, str] = os.environ, wall_us: int | None = None) -> Policy:
    """The policy in the file ``path``; ``${NAME}`` in a text is the variable of that name, ``$$`` a dollar.

    ``wall_us`` is what time it is, in microseconds since the epoch; by default what the wall's clock says.

    Raises UsageError with all that is wrong with it, and StorageError where it cannot be read.
    """
    data = read_given(path, _MAX_BYTES, "a policy")
    try:
        text = data.decode()
        document = tomllib.loads(text, parse_float=_Real)
    except (ValueError, RecursionError) as error:  # no UTF-8, or no TOML
        line = _LINE.search(str(error))
        raise UsageError(f"{path}:{f'{line[1]}:' if line else ''} {error}\nNothing was done") from error
    return _Reader(path, text, environment, moment_of("wall") if wall_us is None else wall_us).policy(document)


class _Real(float):
    """A number with a point, which to JSON Schema would be an integer if only zeros followed."""

    def is_integer(self) -> bool:
        return False


class _Reader:
    """Reads a document into a policy, and collects what is wrong with it."""

    def __init__(self, path: str, text: str, environment: Mapping[str, str], wall_us: int) -> None:
        self._path, self._text, self._environment, self._wall_us = path, text, environment, wall_us
        self._folder = str(Path(path).absolute().parent)
        self._errors: set[tuple[int, str]] = set()

    def policy(self, document: dict[str, Any]) -> Policy:
        self._check_numbers(document, ())
        self._raise_errors()
        self._check_form(document)
        self._raise_errors()
        document = self._filled(document, ())
        self._raise_errors()
        self._check_form(document, "with the environment's variables in it")
        self._raise_errors()
        defaults = document.get("defaults", {})
        targets = [self._target(target, defaults, n) for n, target in enumerate(document["target"])]
        self._raise_errors()
        run = document.get("run", {})
        return Policy(self._path, self._folder, run, tuple(filter(None, targets)), self._wall_us, document)

    def _raise_errors(self) -> None:
        if self._errors:
            lines = [f"{self._path}:{line}: {message}" for line, message in sorted(self._errors)]
            raise UsageError("\n".join([*lines, "Nothing was done"]))

    def _wrong(self, place: Place, message: str) -> None:
        self._errors.add((line_of(self._text, place), message))

    def _check_numbers(self, value: Any, place: Place) -> None:
        """To a schema ``nan`` and ``inf`` are numbers like others."""
        match value:
            case dict():
                for name, item in value.items():
                    self._check_numbers(item, (*place, name))
            case list():
                for number, item in enumerate(value):
                    self._check_numbers(item, (*place, number))
            case float() if not math.isfinite(value):
                self._wrong(place, f"{value} is no number that anything here could be")

    def _check_form(self, document: dict[str, Any], instead: str | None = None) -> None:
        """What the schema says: it names one error, so that is mended, and the rest looked at again.

        ``instead`` is told of a value that is wrong, which may be a secret.
        """
        mended = copy.deepcopy(document)
        self._tell_unknown(mended, ())
        while True:
            try:
                _validator()(mended)
                return
            except fastjsonschema.JsonSchemaException as error:
                place = tuple(int(step) if step.isdigit() else step for step in map(str, error.path[1:]))
                around: Any = mended
                for step in place[:-1]:
                    around = around[step]
                if error.rule == "additionalProperties":
                    self._tell_unknown(around[place[-1]], place)
                    continue
                self._tell(place, error, instead)
                if place in ((), ("target",)):
                    return
                if place[-1] == "path":
                    around["path"] = "-"
                elif isinstance(place[-1], int):
                    around[place[-1]] = {"path": "-"} if place[-2] == "target" else {}
                else:
                    del around[place[-1]]

    def _tell(self, place: Place, error: fastjsonschema.JsonSchemaException, instead: str | None) -> None:
        """Say of an error of the schema's what a person wants to know."""
        if error.rule == "required":
            missing = next(name for name in error.rule_definition if name not in error.value)
            self._wrong(place, f"{_spelled(place)} lacks {missing}")
        else:
            wanted = str(error).partition(" must ")[2]
            if error.rule == "oneOf":
                kinds = [definition.get("type") for definition in _flat(error.rule_definition)]
                wanted = f"be {' or '.join(str(kind) for kind in kinds)}"
                if isinstance(error.value, list):  # so it is in it that something is wrong
                    wanted += ", which has texts and numbers in it"
            elif place == ("target",) and isinstance(error.value, dict):
                wanted += "; each begins with [[target]]"
            found = repr(error.value) if isinstance(error.value, _OF_JSON) else f"{error.value}, without quotes"
            self._wrong(place, f"{_spelled(place)} must {wanted}, {instead or f'not {found}'}")

    def _tell_unknown(self, table: dict[str, Any], place: Place) -> None:
        """Take the keys from a table that are nothing known."""
        known = _known(place)
        for name in [name for name in table if name not in known]:
            del table[name]
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            self._wrong((*place, name), f"{_spelled(place)} has {name!r}, which is nothing known; {hint}")

    def _filled(self, value: Any, place: Place) -> Any:
        """The same with the environment's variables in their places."""
        match value:
            case dict():
                return {name: self._filled(item, (*place, name)) for name, item in value.items()}
            case list():
                return [self._filled(item, (*place, n)) for n, item in enumerate(value)]
            case str():
                return _VARIABLE.sub(lambda found: self._variable(found, place), value)
        return value

    def _variable(self, found: re.Match[str], place: Place) -> str:
        name = found[1]
        if found[0] == "$$":
            return "$"
        if name is None:
            self._wrong(place, "${ begins an environment variable, ${NAME}; a dollar is written $$")
        elif name not in self._environment:
            self._wrong(place, f"the environment has no variable {name}")
        else:
            return self._environment[name]
        return ""

    def _target(self, target: dict[str, Any], defaults: Mapping[str, Any], number: int) -> TargetPolicy | None:
        place: Place = ("target", number)
        around = ((place, target), (("defaults",), defaults))
        rules = [
            self._rule((((*place, "rule", m), rule), *around), f"target {number + 1}, rule {m + 1}")
            for m, rule in enumerate(target.get("rule", [{}]))
        ]
        own = {name: value for name, value in target.items() if name not in ("path", "rule", *_RULE_KEYS)}
        common = {name: value for name, value in defaults.items() if name not in _RULE_KEYS}
        options: dict[str, Any] = {}
        for name, value in (common | own).items():
            with self._at((*place, name) if name in own else ("defaults", name)):
                key, convert = _CONVERTED.get(name, (name, lambda value: value))
                options[key] = convert(value)
        if "expired_to" in options:
            with self._at((*place, "expired_to") if "expired_to" in own else ("defaults", "expired_to")):
                options["expired_to"] = self._archive(options["expired_to"])
        ways = {rule.rewrite for rule in rules if rule is not None and rule.rewrite is not None}
        if len(ways) > 1:
            self._wrong(
                place, "its rules share their partitions, which are written in one way: give one tombstone_share"
            )
        if ways and "rewrite" in options:
            self._wrong(place, 'strategy = "rocksdb" says how partitions are written; rewrite says it another time')
        elif ways:
            options["rewrite"] = ways.pop()
        if "retention" in own and not options.get("erase"):
            self._wrong((*place, "retention"), "retention goes with erase = true")
        if self._errors:
            return None
        return TargetPolicy(f"target {number + 1}", target["path"], tuple(filter(None, rules)), **options)

    def _archive(self, text: str) -> str | ExpiredCallback:
        if is_function(text):
            return load_callback(text)
        kind = TABLE if text.startswith(TABLE) else ""
        return kind + from_folder(self._folder, text.removeprefix(kind))

    def _rule(self, tables: Sequence[tuple[Place, Mapping[str, Any]]], name: str) -> Rule | None:
        """A rule by what its own table says, else the target's, else the defaults'."""
        before = len(self._errors)
        own = tables[0][1]
        rule = {key: value for _, table in reversed(tables) for key, value in table.items() if key in _RULE_KEYS}
        # A transformer stands for what is said further out of what expires: one that keeps, keeps.
        nearest = next((n for n, (_, table) in enumerate(tables) if "transformer" in table), len(tables))
        if not any(key in table for _, table in tables[: nearest + 1] for key in _TTL_KEYS):
            rule = {key: value for key, value in rule.items() if key not in _TTL_KEYS}

        def where(key: str) -> Place:
            return next((*place, key) for place, table in tables if key in table)

        micros: dict[str, int] = {}
        for key in ("ttl", "old_ttl"):
            if key in rule:
                with self._at(where(key)):
                    micros[key] = parse_duration(rule[key])
        now, moment, prefix = rule.get("now", "checkpoint"), None, own.get("key_prefix", ())
        if isinstance(prefix, list) and prefix[-1] == "":
            self._wrong(where("key_prefix"), f"{name}: every text begins with an empty one; leave it out of key_prefix")
        if now != "checkpoint":
            with self._at(where("now")):
                moment = self._wall_us if now == "wall" else moment_of(now)
        factories = self._factories(rule, micros, where)
        part, every, rewrite = self._strategy(rule, micros, where)
        if len(self._errors) > before:
            return None
        return Rule(
            name,
            Selection(own.get("operator"), own.get("store"), own.get("state")),
            (prefix,) if isinstance(prefix, str) else tuple(prefix),
            now,
            moment,
            factories,
            part,
            every,
            rewrite,
        )

    def _factories(
        self, rule: Mapping[str, Any], micros: Mapping[str, int], where: Callable[[str], Place]
    ) -> tuple[StateSnapshotTransformerFactory, ...]:
        """The rule's transformers: its ttl, and the one that it names; with neither, what Spark has expired."""
        factories: list[StateSnapshotTransformerFactory] = []
        if "transformer" not in rule or rule.keys() & set(_TTL_KEYS):
            config = StateTtlConfig(micros["ttl"]) if "ttl" in micros else None
            time = TimeCharacteristic(rule["time"]) if "time" in rule else None
            timestamp = _texts(rule.get("timestamp"))
            factories.append(TtlTransformerFactory(config, timestamp, time, micros.get("old_ttl", 0)))
        if "transformer" in rule:
            with self._at(where("transformer")):
                options = {key: _spell(value) for key, value in rule.get("options", {}).items()}
                factories.append(load_factory(rule["transformer"], options))
        elif "options" in rule:
            self._wrong(where("options"), "options are those of a transformer, and none is named")
        return tuple(factories)

    def _strategy(
        self, rule: Mapping[str, Any], micros: Mapping[str, int], where: Callable[[str], Place]
    ) -> tuple[Incremental | None, int | None, RewriteChoice | None]:
        """How much of the rule's states a run visits, for how long a bucket is filled, in microseconds, and how
        partitions are written."""
        strategy, part, every = rule.get("strategy", "full"), None, None
        rewrite: RewriteChoice | None = None
        if strategy == "rotating":
            if "ttl" not in rule or "buckets" not in rule:
                self._wrong(where("strategy"), "rotating needs a ttl, and buckets: how many there are")
            elif "ttl" in micros:
                every = max(micros["ttl"] // (rule["buckets"] - 1), 1)
        elif "buckets" in rule:
            self._wrong(where("buckets"), 'buckets go with strategy = "rotating"')
        limits = {key: rule[key] for key in _LIMITS if key in rule}
        if strategy == "incremental":
            with self._at(where("strategy")):
                part = Incremental(**limits)
        elif limits:
            message = 'a limit of partitions, entries or seconds goes with strategy = "incremental"'
            self._wrong(where(next(iter(limits))), message)
        if strategy == "rocksdb":
            rewrite = float(rule["tombstone_share"]) if "tombstone_share" in rule else "auto"
        elif "tombstone_share" in rule:
            self._wrong(where("tombstone_share"), 'tombstone_share goes with strategy = "rocksdb"')
        return part, every, rewrite

    @contextlib.contextmanager
    def _at(self, place: Place) -> Iterator[None]:
        """What is wrong in here is so at ``place``."""
        try:
            yield
        except TtlsnapError as error:
            self._wrong(place, str(error))


def from_folder(folder: str, path: str) -> str:
    """A path from ``folder`` on; a URI is what it is."""
    return path if _SCHEME.match(path) else os.path.join(folder, path)  # noqa: PTH118 - text


def _texts(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return None if value is None else (value,) if isinstance(value, str) else tuple(value)


_CONVERTED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "wait": ("wait_seconds", lambda text: parse_duration(text) / 1_000_000),
    "max_bytes": ("max_bytes", parse_size),
    "retention": ("retention_ms", parse_retention),
    "schema": ("schemas", lambda texts: parse_schemas(_texts(texts))),
    "key": ("key", _texts),
    "exclude": ("exclude", _texts),
    "max_drop": ("max_drop", lambda value: parse_share(str(value))),
}
"""What an option of a target is to the program, where that is something else."""


def _spell(value: Any) -> str:
    """An option as the command line would have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _spelled(place: Place) -> str:
    """``target 2, rule 1, ttl``."""
    words: list[str] = []
    for step in place:
        if isinstance(step, int):
            words[-1] += f" {step + 1}"
        else:
            words.append(step)
    return ", ".join(words) or "the policy"


def _known(place: Place) -> list[str]:
    """The keys that the table there may have."""
    kind = next((step for step in reversed(place) if isinstance(step, str)), None)
    table = _schema() if kind is None else _schema()["definitions"][kind]
    return list(table["properties"])


def _flat(definitions: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Definitions with their references followed."""
    named = _schema()["definitions"]
    return [named[d["$ref"].rpartition("/")[2]] if "$ref" in d else d for d in definitions]


@cache
def _schema() -> dict[str, Any]:
    text = resources.files("ttlsnap.maintenance").joinpath("policy.schema.json").read_text()
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def _validator() -> Callable[[Any], Any]:
    compiled: Callable[[Any], Any] = fastjsonschema.compile(_schema())
    return compiled


def line_of(text: str, place: Place) -> int:
    """The line, from 1, where ``place`` begins; where it is missing, that of what it would be in.

    The parser tells no positions, but it takes a file's beginning as well: the line is the first that was still to come
    when ``place`` was not there yet.
    """
    lines = text.splitlines(keepends=True)
    while place:
        before = 0
        for count in range(1, len(lines) + 1):
            try:
                found: Any = tomllib.loads("".join(lines[:count]))
            except tomllib.TOMLDecodeError:
                continue
            try:
                for step in place:
                    found = found[step]
            except (KeyError, IndexError):
                before = count
                continue
            while not lines[before].strip() or lines[before].lstrip().startswith("#"):
                before += 1
            return before + 1
        place = place[:-1]
    return 1
