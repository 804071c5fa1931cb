"""The quality of the checker: its verdict on every pair, compared with the observations of real Spark.

    python -m tests.check.quality contracts DIR      make the contracts of all pairs with real Spark, and store them
    python -m tests.check.quality                    print the verdicts, a line for each pair, and the figures
    python -m tests.check.quality document           write the tables of docs/checks.md and docs/check-pairs.md

``contracts.json.gz`` has the contracts of both queries of every pair, so that the verdicts need no Spark. ``DIR`` holds
contracts while they are made. A contract that is there is not made again.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ttlsnap.check import CheckReport, Verdict, check
from ttlsnap.check.outcomes import CHANGE_SETTING, INSTEAD_OF_ADDING, INSTEAD_OF_REMOVING, OUTCOMES, Outcome
from ttlsnap.check.rules import RULES
from ttlsnap.contract import Contract, contract_of_checkpoint, parse_contract
from ttlsnap.errors import TtlsnapError
from ttlsnap.new_query.findings import REPAIRABLE

from ..judge.processes import JudgeError
from ..judge.spark import Judge
from . import observe_tables
from .observe import OBSERVED, Observer
from .pair import NEWEST, Pair
from .pairs import PAIRS
from .queries import EVENTS
from .tables import TABLE_PAIRS

KEPT = Path(__file__).parent / "contracts.json.gz"
_DOCS = Path(__file__).parents[2] / "docs"
RULES_PAGE, PAIRS_PAGE = _DOCS / "checks.md", _DOCS / "check-pairs.md"
_BASICS = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}


@dataclass(frozen=True)
class Judged:
    """A pair with Spark's outcome and the checker's verdict. ``report`` is None if Spark does not plan a query."""

    name: str
    seen: dict[str, Any]
    verdict: Verdict
    report: CheckReport | None

    @property
    def works(self) -> bool:
        """Return whether Spark resumes from the old state with the right rows."""
        return bool(self.seen["outcome"] == "right")

    @property
    def breaks(self) -> bool:
        """Return whether Spark refuses to resume, or resumes with wrong rows."""
        return self.seen["outcome"] in ("wrong", "refused")

    @property
    def spark(self) -> str:
        """Return Spark's outcome as text."""
        error = self.seen.get("error")
        where = self.seen.get("where", "batch")
        return f"{self.seen['outcome']} ({error}, {where})" if error else str(self.seen["outcome"])

    @property
    def codes(self) -> str:
        """Return the codes of the findings as text."""
        if self.report is None:
            return "no contract"
        return ", ".join(dict.fromkeys(finding.code for finding in self.report.findings)) or "none"


@cache
def judged() -> tuple[Judged, ...]:
    """Return all pairs with their verdicts."""
    return tuple(_judged())


def contracts_of(name: str) -> tuple[Contract | str, Contract | str]:
    """Return the contracts of a pair's queries, or the error where Spark does not plan one."""
    contracts, pairs = _kept()
    old, new = pairs[name]
    return contracts[old], contracts[new]


@cache
def _kept() -> tuple[dict[str, Contract | str], dict[str, list[str]]]:
    kept = json.loads(gzip.decompress(KEPT.read_bytes()))
    return {key: _read(document, key) for key, document in kept["contracts"].items()}, kept["pairs"]


def _judged() -> Iterator[Judged]:
    for name, seen in json.loads(OBSERVED.read_text()).items():
        old, new = contracts_of(name)
        if isinstance(old, str) or isinstance(new, str):
            yield Judged(name, seen, Verdict.INCOMPATIBLE, None)
        else:
            report = check(old, new, names=_NAMES)
            yield Judged(name, seen, report.verdict, report)
    for name, seen in observe_tables.read_observed().items():
        if not TABLE_PAIRS[name].settings:  # pairs with settings only test the advice of findings
            report = check(*(parse_contract(json.dumps(document), name) for document in seen["contracts"]))
            yield Judged(name, seen, report.verdict, report)


def _read(document: Any, key: str) -> Contract | str:
    if "error" in document:
        return str(document["error"])
    contract = parse_contract(json.dumps(document), key)
    assert isinstance(contract, Contract)
    return contract


def figures() -> dict[str, int]:
    """Return the counts that measure the quality."""
    pairs = judged()
    works = [one for one in pairs if one.works]
    return {
        "pairs": len(pairs),
        "that break": sum(one.breaks for one in pairs),
        "that break, called as is": sum(one.breaks and one.verdict is Verdict.AS_IS for one in pairs),
        "that work": len(works),
        "that break, called after_migration": sum(
            one.breaks and one.verdict is Verdict.AFTER_MIGRATION for one in pairs
        ),
        "that work, called unknown": sum(one.verdict is Verdict.UNKNOWN for one in works),
        "that work, called anything else": sum(one.verdict not in (Verdict.AS_IS, Verdict.UNKNOWN) for one in works),
    }


def table() -> str:
    """Return the pairs as a table for the docs."""
    lines = ["| " + " | ".join(f"{name}: {count}" for name, count in figures().items()) + " |"]
    lines += [
        "|" + "---|" * len(figures()),
        "",
        "| pair | what changed | Spark | verdict | rules |",
        "|---|---|---|---|---|",
    ]
    for one in judged():
        cells = (f"`{one.name}`", one.seen["change"], one.spark, one.verdict.value, one.codes)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def rules() -> str:
    """Return the rules, each with its cases and the pairs that it matches."""
    sections = []
    for rule in RULES.values():
        lines = [f"### `{rule.code}`", "", f"{rule.title[0].upper()}{rule.title[1:]}. {rule.why}", ""]
        lines += ["| verdict | message | Spark | what to do |", "|---|---|---|---|"]
        cases = _cases(rule.code)
        lines += dict.fromkeys(map(_row, cases))
        lines += _repaired(rule.code, cases)
        matching = [one for one in judged() if one.report and any(f.code == rule.code for f in one.report.findings)]
        names = [f"`{one.name}`" for one in matching]
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            lines += ["", f"Pairs: {', '.join(names[:6])}{more}"]
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


class _Words(dict[str, str]):
    """The words for a template. Those that differ from finding to finding are their names in capitals."""

    def __missing__(self, name: str) -> str:
        return name.upper()


def _cases(code: str) -> list[Outcome]:
    """Return the cases of a rule, with its words."""
    side = code.partition("-")[0].removesuffix("s")
    side = side if side in ("key", "value") else "other"
    instead = {"value-added": INSTEAD_OF_ADDING, "value-removed": INSTEAD_OF_REMOVING}.get(code, "")
    fix = CHANGE_SETTING.format_map(_Words())
    words = _Words(side=side, SIDE=side.upper(), instead=instead, fix=fix, rename="OLD=NEW")
    return [case for outcome in OUTCOMES if (case := outcome.fill(words)).code == code]


def _row(case: Outcome) -> str:
    """Return a case as a row of the table."""
    cells = (f"`{case.verdict.value}`", case.message, case.spark, case.fix)
    return "| " + " | ".join(cells).replace("*", "\\*").rstrip() + " |"


def _repaired(code: str, cases: Iterable[Outcome]) -> list[str]:
    """Return the row of a rule about the findings that a migration repairs, with the steps and commands of the pairs.

    A rule that has neither an incompatible case nor a pair that a migration repairs has no row.
    """
    findings = [finding for one in judged() if one.report for finding in one.report.findings if finding.code == code]
    steps = {f"`{finding.migration['change']}`": None for finding in findings if finding.migration}
    commands = {_OPTION.sub(r"\1 FIELD", finding.fix): None for finding in findings if finding.migration}
    if not steps and (code not in REPAIRABLE or all(case.verdict is not Verdict.INCOMPATIBLE for case in cases)):
        return []
    names = f" ({', '.join(sorted(steps))})" if steps else ""
    message = f"as above, and a step of [the plan](schema-changes.md#the-plan) repairs it{names}"
    return [f"| `after_migration` | {message} | as above | {', or '.join(sorted(commands) or [_COMMAND])} |"]


_NAMES = ("OLD", "NEW")
_COMMAND = "ttlsnap migrate CHECKPOINT --from OLD --to NEW"
_OPTION = re.compile(r"(--fill|--drop|--rename) (?:'[^']*'|[^ =]+(?==)|[^ ]+)")


def migrations() -> str:
    """Return how many of the pairs that break are repaired by a migration, and why the others are not."""
    from ..new_query.migrating import MIGRATED  # these import this module
    from ..new_query.reasons import REASONS, reason_of
    from ..new_query.tables import CASES

    broken = [one.name for one in judged() if one.breaks]
    repaired = {one.name: bool(one.answers or one.ignored) for one in MIGRATED} | {c[0]: bool(c[1]) for c in CASES}
    answered = [name for name in broken if repaired.get(name)]
    alone = [name for name in broken if repaired.get(name) is False]
    left = [name for name in broken if name not in repaired]
    share = f"{100 * (len(alone) + len(answered)) // len(broken)} %"
    lines = [
        f"`ttlsnap migrate` repairs {len(alone) + len(answered)} of the {len(broken)} pairs that break ({share}): "
        f"{len(alone)} without further answers, and {len(answered)} with an answer of the user, such as `--fill`, or "
        "with an accepted finding. It refuses the others:",
        "",
        "| pairs | why | names |",
        "|---|---|---|",
    ]
    for reason in REASONS:
        names = [f"`{name}`" for name in left if reason_of(name) == reason]
        lines.append(f"| {len(names)} | {reason} | {', '.join(names)} |")
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """Return the pages with the current rules and pairs."""
    made: dict[Path, str] = {}
    fillings = (
        (RULES_PAGE, "rules", rules()),
        (PAIRS_PAGE, "migrations", migrations()),
        (PAIRS_PAGE, "pairs", table()),
    )
    for path, name, filling in fillings:
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, _, rest = made.get(path, path.read_text()).partition(begin)
        made[path] = f"{head}{begin}\n{filling}\n{end}{rest.partition(end)[2]}"
    return made


def make(folder: Path) -> None:
    """Make the contracts that are not in ``folder`` yet, and store those of all pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    spark = cache(_session)
    made: dict[Any, Path] = {}
    contracts: dict[str, Any] = {}
    pairs: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as scratch, Judge(Path(scratch, "judge")) as judge:
        observer = Observer(Path(scratch), judge)
        for name, pair in sorted(PAIRS.items()):
            pairs[name] = []
            for side in (0, 1):
                query, settings = (pair.old, pair.new)[side], sorted(pair.settings[side].items())
                # Plans of two versions are not comparable, so these contracts come from checkpoints.
                versions = None if pair.versions == (NEWEST, NEWEST) else pair.versions[side]
                same = (query.build, pair.modes[side] or query.mode, str(settings), versions)
                path = made.setdefault(same, folder / f"{name}.{('old', 'new')[side]}.json")
                if not path.exists():
                    made_now = document_of(pair, side, spark()) if versions is None else recorded(pair, side, observer)
                    path.write_text(json.dumps(made_now))
                    print(path.name, flush=True)
                document = json.loads(path.read_text())
                text = json.dumps(document, sort_keys=True)
                key = next((key for key, known in contracts.items() if json.dumps(known, sort_keys=True) == text), None)
                key = key or f"{name}.{('old', 'new')[side]}"
                contracts[key] = document
                pairs[name].append(key)
    packed = gzip.compress(json.dumps({"contracts": contracts, "pairs": pairs}, sort_keys=True).encode(), mtime=0)
    KEPT.write_bytes(packed)


def document_of(pair: Pair, side: int, spark: Any) -> Any:
    """Return the contract of a pair's old or new query, or the error if Spark does not plan it."""
    from ttlsnap.contract.of_query import contract_of_query

    query = (pair.old, pair.new)[side]
    settings = {**_BASICS, **pair.settings[side]}
    mode = pair.modes[side] or query.mode
    try:
        made = contract_of_query(query.build, EVENTS, conf=settings, output_mode=mode, session=spark.newSession())
        return _of_any_version(made)
    except TtlsnapError as error:
        return {"error": str(error)}


def recorded(pair: Pair, side: int, observer: Observer) -> Any:
    """Return the contract of a checkpoint of a pair's old or new query, written by that query's Spark version."""
    try:
        return _of_any_version(contract_of_checkpoint(str(observer.checkpoint_of(pair, side))))
    except JudgeError as error:
        return {"error": str(error)}


def _of_any_version(contract: Any) -> dict[str, Any]:
    """Return the document of a contract without the version of ttlsnap that made it."""
    return {key: value for key, value in contract.to_json().items() if key != "ttlsnap"}


def _session() -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def main() -> None:
    match sys.argv[1:]:
        case ["contracts", folder]:
            make(Path(folder))
        case ["document"]:
            for path, text in pages().items():
                path.write_text(text)
        case []:
            for one in judged():
                fine = one.verdict is Verdict.AS_IS
                mark = "!!" if one.breaks and fine else "? " if one.works and not fine else "  "
                print(f"{mark} {one.seen['outcome']:8} {one.verdict.value:16} {one.name:44} {one.codes}")
            for name, count in figures().items():
                print(f"{count:4} {name}")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
