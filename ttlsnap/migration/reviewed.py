"""A migration that somebody reviews before it is applied: ``migrate --plan-out FILE``, and ``--apply FILE``.

ttlsnap applies exactly the reviewed migration, or nothing. It compares them immediately before it publishes. Policies
have such plans, too, and read them with ``read_plan_file``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ttlsnap.compaction.report import CompactionReport
from ttlsnap.errors import RefusedError, UnsupportedError, UsageError
from ttlsnap.migration.report import MigrationReport
from ttlsnap.publishing.history import history
from ttlsnap.schema.strict_json import parse_json, require_keys, require_type
from ttlsnap.storage.open import read_given

_MAX_BYTES = 1 << 30
_Plan = TypeVar("_Plan")


def read_plan_file(path: str, version: int, command: str, parse: Callable[[dict[str, Any]], _Plan]) -> _Plan:
    """Return what ``parse`` makes of the document in a file that ``ttlsnap COMMAND --plan-out`` wrote.

    Raise UsageError if it is not such a plan, and UnsupportedError if it is newer than ``version``.
    """
    data = read_given(path, _MAX_BYTES, "a plan")
    try:
        # Paths may have bytes that are not UTF-8.
        document = parse_json(data.decode("utf-8", "surrogateescape"), any_text=True)
        found = require_type(document["version"], int)
        if found > version:
            raise UnsupportedError(f"{path} is a plan of version {found}; use a newer ttlsnap")
        if found < 1:
            raise ValueError(f"there is no version {found}")
        return parse(document)
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)[:200]
        raise UsageError(f"{path} is not a plan ({reason}). Make one with `ttlsnap {command} --plan-out`") from error


VERSION = 1
_COUNTS = ("entries", "kept", "dropped", "rewritten")
_KEYS = ("version", "kind", "target", "rules_digest", "options", "command", "facts")
_CHANGES = ("batch", "fingerprint", "partitions", "provider", "settings", "session_settings", "plan")


@dataclass(frozen=True)
class ReviewedMigration:
    """A migration of ``target`` that was reviewed. ``facts`` are those that must be the same when it is applied.

    ``rules`` is the digest of its transformers, their code and their options; None in a plan of ttlsnap 0.2.
    ``options`` are other options that change what is published or kept, by their names on the command line.
    ``command`` are all options of the command that made the plan; None if the plan does not have them.
    """

    target: str
    facts: Mapping[str, Any]
    rules: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    command: Mapping[str, Any] | None = None

    def require_target(self, target: str) -> None:
        """Raise UsageError if this is a plan for another checkpoint."""
        if target != self.target:
            raise UsageError(f"the plan is for {self.target}, not for {target}")

    def require_rules(self, rules: str) -> None:
        """Raise RefusedError if the transformers, by their digest, are not the reviewed ones."""
        if rules != self.rules:
            raise RefusedError(
                f"the transformers of the plan for {self.target}, their options or their code have changed since then. "
                "Nothing was changed. Make a new plan with --plan-out"
            )

    def find_run(self) -> str | None:
        """Return the run that has published this plan and was not rolled back; None if there is none."""
        for entry in reversed(history(self.target)):
            with suppress(KeyError, TypeError):  # the report of another version
                if entry.status == "done" and entry.kind == "migrate" and _facts(entry.report or {}) == self.facts:
                    return entry.run
        return None

    def require_options(self, options: Mapping[str, Any]) -> None:
        """Raise RefusedError if an option is not as in the plan, and UsageError if the plan has other ones.

        Only older plans, which have no command, may have none.
        The ``options`` may be those of the command in the plan. Then a difference is a contradiction in the plan.
        """
        if (self.options or self.command is not None) and (wrong := self.options.keys() ^ options.keys()):
            raise UsageError(
                f"the plan for {self.target} has unknown options, or lacks some: {', '.join(sorted(wrong))[:200]}. "
                "Make a new plan with --plan-out"
            )
        for name, reviewed_value in self.options.items():
            if options[name] != reviewed_value:
                raise RefusedError(
                    f"the plan for {self.target} was made with another value of {name}. Nothing was changed. Repeat "
                    "the command of the plan, or make a new plan with --plan-out"
                )

    def confirm(self, report: MigrationReport) -> None:
        """Raise RefusedError unless ``report`` is the reviewed one."""
        facts = facts_of(report)
        different = [name for name in (*_CHANGES, "totals", "compaction") if self.facts.get(name) != facts[name]]
        if different:
            names = {"plan": "steps", "totals": "numbers of entries", "compaction": "dropped entries"}
            subject = "files" if "fingerprint" in different else ", ".join(names.get(name, name) for name in different)
            raise RefusedError(
                f"{report.target}: its {subject} differ from the plan, so the plan is not applied. Nothing was "
                "changed. Make a new plan with --plan-out"
            )


def write_plan(
    report: MigrationReport, rules: str, options: Mapping[str, Any], command: Mapping[str, Any] | None
) -> bytes:
    """Return the plan as a document: the report of a dry run, the digest of its transformers, and the options."""
    header = {"version": VERSION, "kind": "migrate", "target": report.target}
    document = {**header, "rules_digest": rules, "options": options, "command": command, "facts": facts_of(report)}
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


def read_plan(path: str) -> ReviewedMigration:
    """Return the plan in a file. Raise UsageError if it is not a plan, UnsupportedError for a newer version."""
    return read_plan_file(path, VERSION, "migrate", _parse)


def _parse(document: dict[str, Any]) -> ReviewedMigration:
    if document["kind"] != "migrate":
        raise ValueError(f"it is a plan of {document['kind']}")
    require_keys(document, _KEYS, "the plan")
    require_keys(document["facts"], ("kind", *_CHANGES, "totals", "compaction"), "facts")
    rules, command = document.get("rules_digest"), document.get("command")
    return ReviewedMigration(
        require_type(document["target"], str),
        require_type(document["facts"], dict),
        None if rules is None else require_type(rules, str),
        require_type(document.get("options", {}), dict),
        None if command is None else require_type(command, dict),
    )


def facts_of(report: MigrationReport | CompactionReport) -> dict[str, Any]:
    """Return the facts of a report that must be the same when a plan is applied."""
    return _facts(report.to_json())


def _facts(document: Mapping[str, Any]) -> dict[str, Any]:
    totals = {name: document["totals"][name] for name in _COUNTS}
    if document["kind"] == "migrate":
        return {
            "kind": document["kind"],
            **{name: json.loads(json.dumps(document[name])) for name in _CHANGES},
            "totals": totals,
            "compaction": None if document["compaction"] is None else _facts(document["compaction"]),
        }
    return {
        "kind": document["kind"],
        "now": document["now"],
        "fingerprint": document["fingerprint"],
        "totals": totals,
        "stores": [
            {name: store[name] for name in ("operator", "store", "state", "timestamp", *_COUNTS)}
            for store in document["stores"]
        ],
    }
