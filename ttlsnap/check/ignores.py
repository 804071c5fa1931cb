"""Findings that are known and accepted: ``--ignore CODE[:where]``, and a file of them with reasons and dates.

    [[ignore]]
    code = "value-added"
    where = "0.default"            # left out: everywhere
    reason = "rolled out with the migration of May"
    until = 2027-01-31             # the last day on which it holds; left out: for good

An ignore that fits nothing, or has expired, is reported, so that a list of them does not outlive its reasons.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ttlsnap.check.findings import CheckReport, Finding, Ignored
from ttlsnap.check.rules import RULES
from ttlsnap.errors import StorageError, UsageError
from ttlsnap.filesystem import read_given

DEFAULT_FILE = ".ttlsnap-ignore.toml"
_MAX_BYTES = 1 << 20
_KEYS = ("code", "where", "reason", "until")


@dataclass(frozen=True)
class Ignore:
    """One of them. ``where`` is the beginning of a place, by whole parts; ``source`` is what wrote it."""

    code: str
    where: str | None
    reason: str
    until: date | None
    source: str

    def fits(self, finding: Finding) -> bool:
        place = str(finding.place)
        within = self.where is None or place == self.where or place.startswith(f"{self.where}.")
        return within and finding.code == self.code

    def expired(self, today: date) -> bool:
        return self.until is not None and today > self.until

    def __str__(self) -> str:
        return f"{self.code}{f':{self.where}' if self.where is not None else ''} ({self.source})"


def apply(report: CheckReport, ignores: Iterable[Ignore], today: date | None = None) -> CheckReport:
    """The report with the findings that are ignored apart from the others. ``today`` is that of UTC if left out."""
    today = today or datetime.now(UTC).date()
    ignores = list(ignores)
    live = [ignore for ignore in ignores if not ignore.expired(today)]
    kept, ignored = [], []
    for finding in report.findings:
        by = next((ignore for ignore in live if ignore.fits(finding)), None)
        if by is None:
            kept.append(finding)
        else:
            ignored.append(Ignored(finding, by.reason))
    unused = [
        f"{ignore}: expired on {ignore.until}" if ignore.expired(today) else f"{ignore}: fits nothing"
        for ignore in ignores
        if ignore.expired(today) or not any(ignore.fits(finding) for finding in report.findings)
    ]
    return replace(
        report,
        findings=tuple(kept),
        ignored=(*report.ignored, *ignored),
        unused=(*report.unused, *unused),
    )


def parse_ignore(text: str, codes: Collection[str] = RULES) -> Ignore:
    """``CODE`` or ``CODE:where``; raises UsageError where there is no such code."""
    code, colon, where = (part.strip() for part in text.partition(":"))
    _known(code, codes, f"--ignore {text}")
    if colon and not where:
        raise UsageError(f"--ignore {text}: after the colon comes a place, such as 0.default; leave both out for all")
    return Ignore(code, where or None, "--ignore on the command line", None, "--ignore")


def read_ignores(path: Path, codes: Collection[str] = RULES) -> list[Ignore]:
    """The ignores in a file; raises UsageError for what cannot be meant."""
    try:
        document = tomllib.loads(read_given(path, _MAX_BYTES, "an ignore file").decode())
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise UsageError(f"there is no ignore file {path}") from error
        raise
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    entries = document.pop("ignore", [])
    if document or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        other = f", not {next(iter(document))!r}" if document else ""
        raise UsageError(f"{path}: it has [[ignore]] tables and nothing else{other}")
    return [_entry(entry, f"{path}, ignore {number}", codes) for number, entry in enumerate(entries, 1)]


def _entry(entry: dict[str, Any], source: str, codes: Collection[str]) -> Ignore:
    for key in entry.keys() - set(_KEYS):
        raise UsageError(f"{source}: there is no {key!r}{_near(key, _KEYS)}; there are {', '.join(_KEYS)}")
    for key in ("code", "reason"):
        if key not in entry:
            raise UsageError(f"{source}: it needs a {key}")
    for key in ("code", "where", "reason"):
        if key in entry and not (isinstance(entry[key], str) and entry[key].strip()):
            raise UsageError(f"{source}: {key} is text that is not empty, not {entry[key]!r}")
    until = entry.get("until")
    if until is not None and (not isinstance(until, date) or isinstance(until, datetime)):
        raise UsageError(f"{source}: until is a date without quotes, such as 2027-01-31, not {until!r}")
    _known(entry["code"], codes, source)
    return Ignore(entry["code"], entry.get("where"), entry["reason"].strip(), until, source)


def _known(code: str, codes: Collection[str], where: str) -> None:
    if code not in codes:
        raise UsageError(f"{where}: there is no rule {code!r}{_near(code, codes)}")


def _near(word: str, words: Iterable[str]) -> str:
    near = get_close_matches(word, list(words), n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""
