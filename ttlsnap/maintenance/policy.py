"""The policy file: the targets, their rules, and what to do if a target cannot be processed.

It is TOML, and checked completely before anything runs. ``policy.schema.json``, which editors can use as well, checks
its form. This module checks the rest, such as durations and missing transformers. An error names the file and the line.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import fastjsonschema

from ttlsnap.archives.receivers import TABLE, ExpiredCallback
from ttlsnap.backups.regular import BackupRule
from ttlsnap.clock import TimeCharacteristic, moment_of
from ttlsnap.compaction.incremental import Incremental
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.errors import TtlsnapError, UsageError
from ttlsnap.maintenance.on_failure import OnFailure
from ttlsnap.migration.changes import Changes
from ttlsnap.operators.registry import Selection
from ttlsnap.schema.ddl import parse_schemas
from ttlsnap.schema.units import parse_age, parse_duration, parse_retention, parse_share, parse_size
from ttlsnap.storage.open import read_given
from ttlsnap.stores.protocols import RewriteChoice
from ttlsnap.suggestions import did_you_mean
from ttlsnap.toml import parse_toml
from ttlsnap.transform.protocols import StateSnapshotTransformerFactory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.transformers.registry import is_function, load_callback, load_factory
from ttlsnap.versions import refuse_newer

KeyPath = tuple[str | int, ...]
"""A place in the file: the keys, and the numbers of array items, that lead to it."""

OnBusy = Literal["skip", "wait", "fail"]
OnFenced = Literal["recover", "skip", "fail"]
OnTrouble = Literal["skip", "fail"]

_MAX_BYTES = 16 << 20
_VARIABLE = re.compile(r"\$(?:\$|\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_OF_JSON = (str, int, float, list, dict)
_IN_TOML = {
    "be array": "be a list",
    "be boolean": "be true or false",
    "be integer": "be a whole number",
    "be object": "be a table",
    "be string": "be a text in quotes",
}
"""What the schema demands, in the words of a TOML file."""
_LIMITS = tuple(limit.name for limit in fields(Incremental))
_STRATEGY_KEYS = ("strategy", "buckets", "tombstone_share", *_LIMITS)
_CHANGES = ("partitions", "provider", "settings")
_TTL_KEYS = ("ttl", "timestamp", "old_ttl")
_RULE_KEYS = (*_TTL_KEYS, "time", "now", "transformer", "options", *_STRATEGY_KEYS)


@dataclass(frozen=True)
class PolicyRule:
    """A rule for the entries of the selected states whose key begins with ``key_prefix``.

    ``now`` is as for ``compact``, and ``now_us`` its time; None for the checkpoint's own. ``factories`` decide one
    after another. ``part`` is how much of the states a run visits, None for all. ``every_us`` is how long a bucket is
    filled; None without buckets. ``rewrite`` is how partitions are written; None for the default. ``name`` identifies
    the rule in messages.
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
    """One ``[[target]]``: its path, its options, and its rules.

    ``wait_seconds`` is how long a run waits for a busy target. For checkpoints, ``changes`` are those of ``migrate``,
    ``backup`` says when they are copied, and ``options`` are those of ``compact``; the fields after it are for Delta
    tables. Without ``rules`` a run only migrates and makes backups.
    """

    name: str
    path: str
    rules: tuple[PolicyRule, ...]
    exclude: tuple[str, ...] = ()
    on_busy: OnBusy = "skip"
    wait_seconds: float = 600
    on_fenced: OnFenced = "recover"
    on_damaged: OnTrouble = "fail"
    on_unknown: OnTrouble = "fail"
    changes: Changes | None = None
    backup: BackupRule | None = None
    options: CompactOptions = field(default_factory=CompactOptions)
    key: tuple[str, ...] = ()
    max_files: int | None = None
    max_bytes: int | None = None
    erase: bool = False
    retention_ms: int | None = None


@dataclass(frozen=True)
class Policy:
    """A policy file. Relative paths begin at ``folder``, and ``run`` has the options of the engine.

    ``wall_us`` is the time of ``now = "wall"``, in microseconds since the epoch. ``document`` is the file's content,
    with environment variables inserted. ``on_failure`` has the hooks that learn which targets failed.
    """

    path: str
    folder: str
    run: Mapping[str, Any]
    targets: tuple[TargetPolicy, ...]
    wall_us: int
    document: Mapping[str, Any]
    on_failure: OnFailure | None = None


def read_policy(path: str, environment: Mapping[str, str] = os.environ, wall_us: int | None = None) -> Policy:
    """Return the policy in the file ``path``. ``${NAME}`` in a text is an environment variable, ``$$`` a dollar.

    ``wall_us`` is the time in microseconds since the epoch; by default the current time.

    Raise UsageError with all mistakes, UnsupportedError for a policy of a newer ttlsnap, and StorageError if the file
    cannot be read.
    """
    data = read_given(path, _MAX_BYTES, "a policy")
    try:
        document = parse_toml(data, path, parse_float=_Real)
    except UsageError as error:
        raise UsageError(f"{error}\nNothing was done") from error
    if "ttlsnap" in document:
        refuse_newer(document["ttlsnap"], path)
    return _Reader(path, data.decode(), environment, moment_of("wall") if wall_us is None else wall_us).policy(document)


_MAX_TIMEOUT_S = 7 * 24 * 3600
"""The system calls that wait take no more than 24 days."""
_SECRET = (("on_failure",), ("on_failure", "command"), ("on_failure", "webhook"))
"""The keys whose values no message has."""


class _Real(float):
    """A number with a decimal point. For JSON Schema, a plain 1.0 would be an integer."""

    def is_integer(self) -> bool:
        return False


class _Reader:
    """The reader of a document, which collects all mistakes."""

    def __init__(self, path: str, text: str, environment: Mapping[str, str], wall_us: int) -> None:
        self._path, self._text, self._environment, self._wall_us = path, text, environment, wall_us
        self._folder = str(Path(path).absolute().parent)
        self._errors: set[tuple[int, str]] = set()

    def policy(self, document: dict[str, Any]) -> Policy:
        self._check_numbers(document, ())
        self._raise_errors()
        self._check_form(document)
        self._raise_errors()
        document = self._insert_variables(document, ())
        self._raise_errors()
        self._check_form(document, "after inserting environment variables")
        self._raise_errors()
        defaults = document.get("defaults", {})
        targets = [self._target(target, defaults, number) for number, target in enumerate(document["target"])]
        on_failure = self._on_failure(document["on_failure"]) if "on_failure" in document else None
        self._raise_errors()
        run = document.get("run", {})
        return Policy(self._path, self._folder, run, tuple(filter(None, targets)), self._wall_us, document, on_failure)

    def _raise_errors(self) -> None:
        if self._errors:
            lines = [f"{self._path}:{line}: {message}" for line, message in sorted(self._errors)]
            raise UsageError("\n".join([*lines, "Nothing was done"]))

    def _wrong(self, place: KeyPath, message: str) -> None:
        self._errors.add((line_of(self._text, place), message))

    def _check_numbers(self, value: Any, place: KeyPath) -> None:
        """Reject ``nan`` and ``inf``, which are numbers for a schema."""
        match value:
            case dict():
                for name, item in value.items():
                    self._check_numbers(item, (*place, name))
            case list():
                for number, item in enumerate(value):
                    self._check_numbers(item, (*place, number))
            case float() if not math.isfinite(value):
                self._wrong(place, f"{value} is not a valid number here")

    def _check_form(self, document: dict[str, Any], instead: str | None = None) -> None:
        """Check the document with the schema, which reports one error at a time: remove it, and check again.

        ``instead`` replaces a wrong value in messages, because it may be a secret.
        """
        mended_document = copy.deepcopy(document)
        self._tell_unknown(mended_document, ())
        while True:
            try:
                _validator()(mended_document)
                return
            except fastjsonschema.JsonSchemaException as error:
                place = tuple(int(step) if step.isdigit() else step for step in map(str, error.path[1:]))
                table: Any = mended_document
                for step in place[:-1]:
                    table = table[step]
                if error.rule == "additionalProperties":
                    self._tell_unknown(table[place[-1]], place)
                    continue
                self._tell(place, error, instead)
                if place in ((), ("target",)):
                    return
                if place[-1] == "path":
                    table["path"] = "-"
                elif isinstance(place[-1], int):
                    table[place[-1]] = {"target": {"path": "-"}, "command": "-"}.get(str(place[-2]), {})
                else:
                    del table[place[-1]]

    def _tell(self, place: KeyPath, error: fastjsonschema.JsonSchemaException, instead: str | None) -> None:
        """Turn an error of the schema into a message for people."""
        if error.rule == "required":
            missing_name = next(name for name in error.rule_definition if name not in error.value)
            self._wrong(place, f"{_describe_place(place)} lacks {missing_name}")
        else:
            requirement = str(error).partition(" must ")[2]
            requirement = _IN_TOML.get(requirement, requirement)
            if error.rule == "oneOf":
                kinds = [definition.get("type") for definition in _flat(error.rule_definition)]
                requirement = f"be {' or '.join(str(kind) for kind in kinds)}"
                if isinstance(error.value, list):  # so an item of the list is wrong
                    requirement += ", of texts and numbers"
            elif place == ("target",) and isinstance(error.value, dict):
                requirement += "; each begins with [[target]]"
            if place[:2] in _SECRET:
                instead = instead or "and its value is not shown, because it may be a secret"
            value_text = repr(error.value) if isinstance(error.value, _OF_JSON) else f"{error.value}, without quotes"
            self._wrong(place, f"{_describe_place(place)} must {requirement}, {instead or f'not {value_text}'}")

    def _tell_unknown(self, table: dict[str, Any], place: KeyPath) -> None:
        """Remove unknown keys from a table, and report them."""
        known_keys = _list_known_keys(place)
        for name in [name for name in table if name not in known_keys]:
            del table[name]
            hint = did_you_mean(name, known_keys) or f"; there are {', '.join(known_keys)}"
            self._wrong((*place, name), f"{_describe_place(place)} has an unknown key, {name!r}{hint}")

    def _insert_variables(self, value: Any, place: KeyPath) -> Any:
        """Return the value with environment variables inserted."""
        match value:
            case dict():
                return {name: self._insert_variables(item, (*place, name)) for name, item in value.items()}
            case list():
                return [self._insert_variables(item, (*place, number)) for number, item in enumerate(value)]
            case str():
                return _VARIABLE.sub(lambda variable_match: self._variable(variable_match, place), value)
        return value

    def _variable(self, variable_match: re.Match[str], place: KeyPath) -> str:
        name = variable_match[1]
        if variable_match[0] == "$$":
            return "$"
        if name is None:
            self._wrong(place, "${ begins an environment variable, ${NAME}; a dollar is written $$")
        elif name not in self._environment:
            self._wrong(place, f"the environment has no variable {name}")
        else:
            return self._environment[name]
        return ""

    def _target(self, target: dict[str, Any], defaults: Mapping[str, Any], number: int) -> TargetPolicy | None:
        place: KeyPath = ("target", number)
        tables = ((place, target), (("defaults",), defaults))
        changes = self._changes(target, place)
        backup = target.get("backup", defaults.get("backup"))
        is_only_backup = isinstance(backup, dict) and not backup.get("before_run")
        has_rule = any(key in table for _, table in tables for key in _RULE_KEYS)
        has_none = not has_rule and (changes is not None or is_only_backup)
        rules = [
            self._rule((((*place, "rule", rule_number), rule), *tables), f"target {number + 1}, rule {rule_number + 1}")
            for rule_number, rule in enumerate(target.get("rule", [] if has_none else [{}]))
        ]
        own_options = {
            name: value for name, value in target.items() if name not in ("path", "rule", *_CHANGES, *_RULE_KEYS)
        }
        common_options = {name: value for name, value in defaults.items() if name not in _RULE_KEYS}
        options: dict[str, Any] = {}
        for name, value in (common_options | own_options).items():
            with self._at((*place, name) if name in own_options else ("defaults", name)):
                key, convert = _CONVERTED.get(name, (name, lambda value: value))
                options[key] = convert(value)
        if "expired_to" in options:
            with self._at((*place, "expired_to") if "expired_to" in own_options else ("defaults", "expired_to")):
                options["expired_to"] = self._archive(options["expired_to"])
        if "backup" in options:
            options["backup"] = self._backup(
                options["backup"], (*place, "backup") if "backup" in own_options else ("defaults", "backup")
            )
        rewrite_choices = {rule.rewrite for rule in rules if rule is not None and rule.rewrite is not None}
        if len(rewrite_choices) > 1:
            self._wrong(
                place, "its rules share their partitions, which can be written in one way only; use one tombstone_share"
            )
        if rewrite_choices and "rewrite" in options:
            self._wrong(place, 'strategy = "rocksdb" already says how partitions are written; remove rewrite')
        elif rewrite_choices:
            options["rewrite"] = rewrite_choices.pop()
        if "retention" in own_options and not options.get("erase"):
            self._wrong((*place, "retention"), "retention needs erase = true")
        if self._errors:
            return None
        compact_options = {name: options.pop(name) for name in _COMPACT_OPTIONS & options.keys()}
        compact = CompactOptions(**compact_options)
        return TargetPolicy(
            f"target {number + 1}",
            target["path"],
            tuple(filter(None, rules)),
            changes=changes,
            options=compact,
            **options,
        )

    def _on_failure(self, table: Mapping[str, Any]) -> OnFailure | None:
        timeout_s = 30.0
        with self._at(("on_failure", "timeout")):
            text = table.get("timeout", "30s")
            timeout_s = parse_age(text) / 1_000_000
            if not 0 < timeout_s <= _MAX_TIMEOUT_S:
                raise UsageError(f"on_failure, timeout must be more than 0s and at most 7d, not {text!r}")
        with self._at(("on_failure", "webhook")):
            return OnFailure(self._folder, tuple(table.get("command", ())), table.get("webhook"), timeout_s)
        return None

    def _changes(self, target: Mapping[str, Any], place: KeyPath) -> Changes | None:
        """Return what a migration changes in a target; None if it names no change."""
        change_names = [name for name in _CHANGES if name in target]
        settings = {name: _spell(value) for name, value in target.get("settings", {}).items()}
        if change_names:
            with self._at((*place, change_names[0])):
                return Changes(partitions=target.get("partitions"), provider=target.get("provider"), settings=settings)
        return None

    def _backup(self, table: Mapping[str, Any], place: KeyPath) -> BackupRule | None:
        every_s = None
        with self._at((*place, "every")):
            every_s = parse_duration(table["every"]) / 1_000_000 if "every" in table else None
        with self._at((*place, "to")):
            to = table["to"]
            return BackupRule(
                to=to,
                prefix=from_folder(self._folder, to).removesuffix(to),
                every_s=every_s,
                keep=table.get("keep"),
                before_run=table.get("before_run", False),
                verify=table.get("verify", False),
            )
        return None

    def _archive(self, text: str) -> str | ExpiredCallback:
        if is_function(text):
            return load_callback(text)
        kind = TABLE if text.startswith(TABLE) else ""
        return kind + from_folder(self._folder, text.removeprefix(kind))

    def _rule(self, tables: Sequence[tuple[KeyPath, Mapping[str, Any]]], name: str) -> PolicyRule | None:
        """Return a rule from its own table, then the target's, then the defaults."""
        error_count = len(self._errors)
        own_table = tables[0][1]
        rule = {key: value for _, table in reversed(tables) for key, value in table.items() if key in _RULE_KEYS}
        # A transformer replaces the TTL of outer tables, so that one that keeps everything does so.
        nearest = next((number for number, (_, table) in enumerate(tables) if "transformer" in table), len(tables))
        if not any(key in table for _, table in tables[: nearest + 1] for key in _TTL_KEYS):
            rule = {key: value for key, value in rule.items() if key not in _TTL_KEYS}

        def where(key: str) -> KeyPath:
            return next((*place, key) for place, table in tables if key in table)

        micros: dict[str, int] = {}
        for key in ("ttl", "old_ttl"):
            if key in rule:
                with self._at(where(key)):
                    micros[key] = parse_duration(rule[key])
        now, moment, prefix = rule.get("now", "checkpoint"), None, own_table.get("key_prefix", ())
        if isinstance(prefix, list) and prefix[-1] == "":
            self._wrong(where("key_prefix"), f"{name}: an empty text matches every key; remove it from key_prefix")
        if now != "checkpoint":
            with self._at(where("now")):
                moment = self._wall_us if now == "wall" else moment_of(now)
        factories = self._factories(rule, micros, where)
        limits, rotation_us, rewrite = self._strategy(rule, micros, where)
        if len(self._errors) > error_count:
            return None
        return PolicyRule(
            name,
            Selection(own_table.get("operator"), own_table.get("store"), own_table.get("state")),
            (prefix,) if isinstance(prefix, str) else tuple(prefix),
            now,
            moment,
            factories,
            limits,
            rotation_us,
            rewrite,
        )

    def _factories(
        self, rule: Mapping[str, Any], micros: Mapping[str, int], where: Callable[[str], KeyPath]
    ) -> tuple[StateSnapshotTransformerFactory, ...]:
        """Return the rule's transformers: its TTL, and the named one; with neither, Spark's own expiry times."""
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
            self._wrong(where("options"), "options need a transformer, and none is named")
        return tuple(factories)

    def _strategy(
        self, rule: Mapping[str, Any], micros: Mapping[str, int], where: Callable[[str], KeyPath]
    ) -> tuple[Incremental | None, int | None, RewriteChoice | None]:
        """Return how much of the states a run visits, how long a bucket is filled (microseconds), and how to write."""
        strategy, incremental, rotation_us = rule.get("strategy", "full"), None, None
        rewrite: RewriteChoice | None = None
        if strategy == "rotating":
            if "ttl" not in rule or "buckets" not in rule:
                self._wrong(where("strategy"), "rotating needs a ttl, and a number of buckets")
            elif "ttl" in micros:
                rotation_us = max(micros["ttl"] // (rule["buckets"] - 1), 1)
        elif "buckets" in rule:
            self._wrong(where("buckets"), 'buckets needs strategy = "rotating"')
        limits = {key: rule[key] for key in _LIMITS if key in rule}
        if strategy == "incremental":
            with self._at(where("strategy")):
                incremental = Incremental(**limits)
        elif limits:
            message = 'a limit of partitions, entries or seconds needs strategy = "incremental"'
            self._wrong(where(next(iter(limits))), message)
        if strategy == "rocksdb":
            rewrite = float(rule["tombstone_share"]) if "tombstone_share" in rule else "auto"
        elif "tombstone_share" in rule:
            self._wrong(where("tombstone_share"), 'tombstone_share needs strategy = "rocksdb"')
        return incremental, rotation_us, rewrite

    @contextlib.contextmanager
    def _at(self, place: KeyPath) -> Iterator[None]:
        """Report errors within the block at ``place``."""
        try:
            yield
        except TtlsnapError as error:
            self._wrong(place, str(error))


def from_folder(folder: str, path: str) -> str:
    """Return a path with ``folder`` before it if it is relative. A URI stays as it is."""
    return path if _SCHEME.match(path) else os.path.join(folder, path)  # noqa: PTH118 - text


def _texts(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return None if value is None else (value,) if isinstance(value, str) else tuple(value)


_COMPACT_OPTIONS = {option.name for option in fields(CompactOptions)}
_CONVERTED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "wait": ("wait_seconds", lambda text: parse_duration(text) / 1_000_000),
    "max_bytes": ("max_bytes", parse_size),
    "retention": ("retention_ms", parse_retention),
    "schema": ("schemas", lambda texts: parse_schemas(_texts(texts))),
    "key": ("key", _texts),
    "exclude": ("exclude", _texts),
    "max_drop": ("max_drop", lambda value: parse_share(str(value))),
}
"""The field and the conversion of each target option that is not used as it is."""


def _spell(value: Any) -> str:
    """Return an option as the command line writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _describe_place(place: KeyPath) -> str:
    """Return a place in words: ``target 2, rule 1, ttl``."""
    place_names: list[str] = []
    for step in place:
        if isinstance(step, int):
            place_names[-1] += f" {step + 1}"
        else:
            place_names.append(step)
    return ", ".join(place_names) or "the policy"


def _list_known_keys(place: KeyPath) -> list[str]:
    """Return the keys that the table at this place may have."""
    kind = next((step for step in reversed(place) if isinstance(step, str)), None)
    table = _schema() if kind is None else _schema()["definitions"][kind]
    return list(table["properties"])


def _flat(definitions: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return a definition with its references resolved."""
    named_definitions = _schema()["definitions"]
    return [
        named_definitions[definition["$ref"].rpartition("/")[2]] if "$ref" in definition else definition
        for definition in definitions
    ]


@cache
def _schema() -> dict[str, Any]:
    text = resources.files("ttlsnap.maintenance").joinpath("policy.schema.json").read_text()
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def _validator() -> Callable[[Any], Any]:
    compiled: Callable[[Any], Any] = fastjsonschema.compile(_schema())
    return compiled


def line_of(text: str, place: KeyPath) -> int:
    """Return the line, from 1, at which ``place`` begins; if it is missing, that of its table.

    The parser gives no positions, but it can parse the beginning of a file. The line of ``place`` is the first
    line after the last beginning that can be parsed and does not have it yet.
    """
    lines = text.splitlines(keepends=True)
    while place:
        lines_before = 0
        for count in range(1, len(lines) + 1):
            try:
                table: Any = tomllib.loads("".join(lines[:count]))
            except tomllib.TOMLDecodeError:
                continue
            try:
                for step in place:
                    table = table[step]
            except (KeyError, IndexError):
                lines_before = count
                continue
            while not lines[lines_before].strip() or lines[lines_before].lstrip().startswith("#"):
                lines_before += 1
            return lines_before + 1
        place = place[:-1]
    return 1
