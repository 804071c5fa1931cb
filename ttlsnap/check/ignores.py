"""Accepted findings: ``--ignore CODE[:where]``, and a file of them with reasons and dates.

    [[ignore]]
    code = "value-added"
    where = "0.default"            # optional; without it, everywhere
    digest = "8c1f0a7d52b94e36"    # optional; without it, every change of this code there
    reason = "rolled out with the migration of May"
    until = 2027-01-31             # optional; the last day on which it applies

The report lists ignores that match nothing or have expired, so that users can remove them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from ttlsnap.amounts import quantity
from ttlsnap.check.findings import CheckReport, Finding, Ignored
from ttlsnap.check.rules import RULES
from ttlsnap.errors import UsageError
from ttlsnap.storage.open import read_given
from ttlsnap.suggestions import did_you_mean
from ttlsnap.toml import parse_toml

DEFAULT_FILE = ".ttlsnap-ignore.toml"
_MAX_BYTES = 1 << 20
_MAX_PLACES = 5
COMMAND_LINE, _CALL = "--ignore", "ignore"
_REASONS = {COMMAND_LINE: "--ignore on the command line", _CALL: "ignored by the call"}
_KEYS = ("code", "where", "digest", "reason", "until")


@dataclass(frozen=True)
class Ignore:
    """One accepted finding. ``where`` is the beginning of a place, in whole parts, and ``source`` what contains it.

    ``digest`` is that of the change; without it, the ignore matches every change there.
    """

    code: str
    where: str | None
    reason: str
    until: date | None
    source: str
    digest: str | None = None

    def matches(self, finding: Finding) -> bool:
        return self.matches_place(finding) and self.digest in (None, finding.digest)

    def matches_place(self, finding: Finding) -> bool:
        """Return whether the finding has the code and the place, also if it is another change."""
        place = str(finding.place)
        is_within = self.where is None or place == self.where or place.startswith(f"{self.where}.")
        return is_within and finding.code == self.code

    def advise(self, finding: Finding) -> str | None:
        """Return what to add to an entry that would also ignore later changes; None if there is nothing to add."""
        if self.source in _REASONS or self.digest is not None or self.until is not None:
            return None
        return f'This entry also ignores later changes there: add digest = "{finding.digest}", or until'

    def is_expired(self, today: date) -> bool:
        return self.until is not None and today > self.until

    def __str__(self) -> str:
        return f"{self.code}{f':{self.where}' if self.where is not None else ''} ({self.source})"


def apply(report: CheckReport, ignores: Iterable[Ignore], today: date | None = None) -> CheckReport:
    """Return the report with the ignored findings apart from the others. ``today`` is by default the date in UTC."""
    today = today or datetime.now(UTC).date()
    ignores = list(ignores)
    active_ignores = [ignore for ignore in ignores if not ignore.is_expired(today)]
    kept, ignored = [], []
    for finding in report.findings:
        matching_ignore = next((ignore for ignore in active_ignores if ignore.matches(finding)), None)
        if matching_ignore is None:
            kept.append(finding)
        else:
            ignored.append(Ignored(finding, matching_ignore.reason, matching_ignore.advise(finding)))
    unused = [
        f"{ignore}: {_why_unused(ignore, report, today)}"
        for ignore in ignores
        if ignore.is_expired(today) or not any(ignore.matches(finding) for finding in report.findings)
    ]
    return replace(
        report,
        findings=tuple(kept),
        ignored=(*report.ignored, *ignored),
        unused=(*report.unused, *unused),
    )


def _why_unused(ignore: Ignore, report: CheckReport, today: date) -> str:
    if ignore.is_expired(today):
        return f"expired on {ignore.until}"
    others = {finding.digest for finding in report.findings if ignore.matches_place(finding)}
    if not others:
        places = sorted({str(finding.place) for finding in report.findings if finding.code == ignore.code})
        elsewhere = f"; the report has {ignore.code} at {', '.join(places[:_MAX_PLACES])}" if places else ""
        more = f" and {quantity(len(places) - _MAX_PLACES, 'other place')}" if len(places) > _MAX_PLACES else ""
        return f"matches nothing{elsewhere}{more}"
    return f"matches no change there: its digest is {ignore.digest}, and the report has {', '.join(sorted(others))}"


def find_default_file() -> Path | None:
    """Return the file of accepted findings in the current folder, if there is one."""
    path = Path(DEFAULT_FILE)
    return path if path.is_file() else None


def gather_ignores(texts: Iterable[str], path: Path | None, source: str = _CALL) -> list[Ignore]:
    """Return the ignores of texts, as ``parse_ignore`` does, and those of a file."""
    return [parse_ignore(text, source=source) for text in texts] + ([] if path is None else read_ignores(path))


def parse_ignore(text: str, codes: Collection[str] = RULES, *, source: str = _CALL) -> Ignore:
    """Parse ``CODE`` or ``CODE:where``. Raise UsageError for an unknown code.

    ``source`` is ``--ignore`` for an option of the command line, and ``ignore`` for a call in Python.
    """
    code, colon, place = (part.strip() for part in text.partition(":"))
    _require_known(code, codes, f"{source} {text}")
    if colon and not place:
        raise UsageError(
            f"{source} {text}: the place after the colon is missing, such as 0.default; "
            f"{source} {code} applies everywhere"
        )
    return Ignore(code, place or None, _REASONS[source], None, source)


def read_ignores(path: Path, codes: Collection[str] = RULES) -> list[Ignore]:
    """Read the ignores in a file. Raise UsageError for a file with mistakes."""
    document = parse_toml(read_given(path, _MAX_BYTES, "an ignore file"), str(path))
    entries = document.pop("ignore", [])
    if document or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        rejected = f", not {next(iter(document))!r}" if document else ""
        raise UsageError(f"{path}: only [[ignore]] tables are allowed{rejected}")
    return [_entry(entry, f"{path}, ignore {number}", codes) for number, entry in enumerate(entries, 1)]


def _entry(entry: dict[str, Any], source: str, codes: Collection[str]) -> Ignore:
    for key in entry.keys() - set(_KEYS):
        raise UsageError(f"{source}: unknown key {key!r}{did_you_mean(key, _KEYS)}; the keys are {', '.join(_KEYS)}")
    for key in ("code", "reason"):
        if key not in entry:
            raise UsageError(f"{source}: it needs a {key}")
    for key in ("code", "where", "digest", "reason"):
        if key in entry and not (isinstance(entry[key], str) and entry[key].strip()):
            wanted = "say why the finding is harmless" if key == "reason" else "it must be text"
            raise UsageError(f"{source}: {key} is {entry[key]!r}; {wanted}")
    until = entry.get("until")
    if until is not None and (not isinstance(until, date) or isinstance(until, datetime)):
        raise UsageError(f"{source}: until is {until!r}; write a date without quotes, such as 2027-01-31")
    _require_known(entry["code"], codes, source)
    return Ignore(entry["code"], entry.get("where"), entry["reason"].strip(), until, source, entry.get("digest"))


def _require_known(code: str, codes: Collection[str], source: str) -> None:
    if code not in codes:
        raise UsageError(f"{source}: unknown rule {code!r}{did_you_mean(code, codes)}")
