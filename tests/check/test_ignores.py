"""Ignored findings: where an ignore matches, when it expires, and how unused ignores are reported."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from ttlsnap.check import check
from ttlsnap.check.findings import CheckReport, Finding, Verdict
from ttlsnap.check.ignores import Ignore, apply, parse_ignore, read_ignores
from ttlsnap.check.report_text import finding_lines, plain
from ttlsnap.contract import Contract
from ttlsnap.entries.place import Place
from ttlsnap.errors import UsageError

from .quality import contracts_of

CODES = ("value-added", "value-removed", "key-added", "changelog")
TODAY = date(2026, 11, 22)


def finding(place: Place, code: str = "value-added", verdict: Verdict = Verdict.INCOMPATIBLE) -> Finding:
    return Finding(code, verdict, place, None, None, "message", "silent")


def report(*findings: Finding) -> CheckReport:
    return CheckReport("old", "new", "backward", findings)


def ignore(where: str | None = None, code: str = "value-added", until: date | None = None) -> Ignore:
    return Ignore(code, where, "because", until, "--ignore")


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        (None, True),
        ("0", True),
        ("0.default", True),
        ("0.default.visits", True),
        ("0.default.visits.value.count", True),
        ("0.default.visits.value", True),
        ("0.def", False),
        ("0.default.visits.value.count.more", False),
        ("1", False),
        ("", False),
        ("default", False),
        ("query", False),
    ],
)
def test_where_matches_whole_leading_parts_of_a_place(where: str | None, fits: bool) -> None:
    there = finding(Place(0, "default", "visits", "value.count"))
    done = apply(report(there), [ignore(where)], TODAY)
    assert [one.finding for one in done.ignored] == ([there] if fits else [])
    assert done.findings == (() if fits else (there,))
    assert bool(done.unused) is not fits


def test_operator_1_does_not_match_operator_11() -> None:
    assert not apply(report(finding(Place(11))), [ignore("1")], TODAY).ignored


def test_a_finding_without_an_operator_is_at_query() -> None:
    assert apply(report(finding(Place())), [ignore("query")], TODAY).ignored


def test_the_verdict_excludes_ignored_findings() -> None:
    worst, mild = finding(Place(0)), finding(Place(1), "changelog", Verdict.RECONFIGURATION)
    done = apply(report(worst, mild), [ignore()], TODAY)
    assert (done.verdict, done.findings) == (Verdict.RECONFIGURATION, (mild,))
    assert done.ignored[0].reason == "because"
    assert done.to_json()["ignored"][0]["code"] == "value-added"


def test_another_rule_at_the_same_place_is_not_ignored() -> None:
    assert not apply(report(finding(Place(0), "key-added")), [ignore("0")], TODAY).ignored


@pytest.mark.parametrize(
    ("until", "holds"),
    [(None, True), (TODAY, True), (date(2026, 11, 23), True), (date(2026, 11, 21), False)],
)
def test_an_ignore_is_valid_through_its_last_day(until: date | None, holds: bool) -> None:
    done = apply(report(finding(Place(0))), [ignore(until=until)], TODAY)
    assert bool(done.ignored) is holds
    assert done.unused == (() if holds else ("value-added (--ignore): expired on 2026-11-21",))


def test_expiry_is_compared_with_today_by_default() -> None:
    done = apply(report(finding(Place(0))), [ignore(until=date(2020, 2, 29))])
    assert done.unused == ("value-added (--ignore): expired on 2020-02-29",)
    assert apply(report(finding(Place(0))), [ignore(until=date.max)]).ignored


def test_unused_ignores_are_named() -> None:
    done = apply(report(finding(Place(0))), [ignore(), ignore("0"), ignore("3")], TODAY)
    assert done.unused == ("value-added:3 (--ignore): matches nothing; the report has value-added at 0",)
    assert apply(report(), [ignore("3")], TODAY).unused == ("value-added:3 (--ignore): matches nothing",)


def test_an_option_has_a_code_and_an_optional_place() -> None:
    assert parse_ignore("value-added", CODES).where is None
    parsed = parse_ignore("value-added:0.default", CODES)
    assert (parsed.code, parsed.where, str(parsed)) == ("value-added", "0.default", "value-added:0.default (ignore)")
    # The name of a store or a field may contain a colon.
    assert parse_ignore("value-added:0.a:b", CODES).where == "0.a:b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value-aded", "unknown rule 'value-aded' \\(did you mean value-added"),
        ("nonsense:0", "unknown rule 'nonsense'"),
        ("value-added:", "the place after the colon is missing"),
        ("", "unknown rule ''"),
    ],
)
def test_a_wrong_option_is_explained(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_ignore(text, CODES)


@pytest.mark.parametrize(
    ("options", "name", "reason"),
    [({}, "ignore", "ignored by the call"), ({"source": "--ignore"}, "--ignore", "--ignore on the command line")],
)
def test_words_are_those_of_the_caller(options: dict[str, str], name: str, reason: str) -> None:
    assert parse_ignore("value-added", CODES, **options).reason == reason
    with pytest.raises(UsageError, match=f"^{name} value-added:: the place .*; {name} value-added applies everywhere"):
        parse_ignore("value-added:", CODES, **options)


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "ignores.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_file_has_reasons_and_dates(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        [[ignore]]
        code = "value-added"
        where = "0.default"
        reason = "rolled out in May"
        until = 2027-01-31

        [[ignore]]
        code = "changelog"
        reason = "both are read"
        """,
    )
    assert read_ignores(path, CODES) == [
        Ignore("value-added", "0.default", "rolled out in May", date(2027, 1, 31), f"{path}, ignore 1"),
        Ignore("changelog", None, "both are read", None, f"{path}, ignore 2"),
    ]
    assert read_ignores(write(tmp_path, "# none yet\n"), CODES) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[ignore]]\ncode = 'value-added'", "ignore 1: it needs a reason"),
        ("[[ignore]]\nreason = 'x'", "ignore 1: it needs a code"),
        ("[[ignore]]\ncode = 'value-added'\nreason = ' '", "say why the finding is harmless"),
        ("[[ignore]]\ncode = 'value-added'\nreason = 5", "reason is 5"),
        ("[[ignore]]\ncode = 5\nreason = 'x'", "code is 5; it must be text"),
        ("[[ignore]]\ncode = 'value-added'\nreason = 'x'\nwhere = ''", "where is ''; it must be text"),
        ("[[ignore]]\ncode = 'value-added'\nreason = 'x'\nuntil = '2027-01-31'", "a date without quotes"),
        ("[[ignore]]\ncode = 'value-added'\nreason = 'x'\nuntil = 2027-01-31T00:00:00", "write a date without quotes"),
        (
            "[[ignore]]\ncode = 'value-added'\nreason = 'x'\nuntill = 2027-01-31",
            "'untill' \\(did you mean until",
        ),
        ("[[ignore]]\ncode = 'valu-removed'\nreason = 'x'", "did you mean value-removed"),
        ("[ignore]\ncode = 'value-added'\nreason = 'x'", r"only \[\[ignore\]\] tables are allowed"),
        ("ignore = [5]", "tables are allowed"),
        ("[[ignored]]\ncode = 'value-added'", "are allowed, not 'ignored'"),
        ("[[ignore]\n", r"ignores\.toml:1: Expected"),
        ("[[ignore]]\ncode = value-added", 'toml:2: code = value-added: a text needs quotes: code = "value-added"'),
        (b"\xff\xfe", "is not TOML"),
        ("x = " + "[" * 100_000, "is not TOML"),
        ("#" * ((1 << 20) + 1), "is longer than"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=said) as raised:
        read_ignores(path, CODES)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(("name", "message"), [("gone.toml", "does not exist"), ("", "is a folder")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"{tmp_path / name} {message}"):
        read_ignores(tmp_path / name, CODES)


def changed(new: str) -> Finding:
    return Finding(
        "function-changed", Verdict.UNKNOWN, Place(0, field="jobs.Devices.expire"), "old", new, "message", "silent",
        "if it does, ignore this finding",
    )  # fmt: skip


def test_the_printed_entry_ignores_that_change_and_not_the_next(tmp_path: Path) -> None:
    file = tmp_path / "ignores.toml"
    printed = [line.strip() for line in "".join(plain(finding_lines(changed("new")))).splitlines()]
    entry = "\n".join(printed[printed.index("[[ignore]]") :])
    with pytest.raises(UsageError, match="reason is ''"):
        write_and_read(file, entry)
    (ignore,) = write_and_read(file, entry.replace('reason = ""', 'reason = "only the log"'))
    assert ignore.where == "0.jobs.Devices.expire"
    done = apply(report(changed("new"), changed("another")), [ignore], TODAY)
    assert [one.finding.new for one in done.ignored] == ["new"]
    assert [one.new for one in done.findings] == ["another"]
    assert done.ignored[0].advice is None


def test_an_entry_for_another_change_is_unused_and_names_the_digest() -> None:
    one, other = changed("new"), changed("another")
    done = apply(report(other), [replace(ignore(code=one.code), digest=one.digest)], TODAY)
    assert done.findings == (other,)
    (line,) = done.unused
    assert f"its digest is {one.digest}, and the report has {other.digest}" in line


def test_an_entry_without_digest_and_date_is_told_what_to_add(tmp_path: Path) -> None:
    entry = '[[ignore]]\ncode = "function-changed"\nreason = "why"\n'
    there = changed("new")
    for more, is_told in (("", True), ("until = 2099-01-01", False), (f'digest = "{there.digest}"', False)):
        done = apply(report(there), write_and_read(tmp_path / "ignores.toml", entry + more), TODAY)
        assert (f'add digest = "{there.digest}"' in str(done.ignored[0])) is is_told
    assert "add digest" not in str(apply(report(there), [parse_ignore("function-changed")], TODAY).ignored[0])


def test_an_unused_ignore_names_the_places_of_its_rule() -> None:
    findings = [finding(Place(number, field="value"), "aggregate-changed") for number in range(7)]
    unused = apply(report(*findings), [parse_ignore("aggregate-changed:0.default")], TODAY).unused
    assert unused == (
        "aggregate-changed:0.default (ignore): matches nothing; the report has aggregate-changed at 0.value, "
        "1.value, 2.value, 3.value, 4.value and 2 other places",
    )


def write_and_read(file: Path, text: str) -> list[Ignore]:
    file.write_text(text)
    return read_ignores(file)


def test_a_changed_function_shows_the_methods_that_differ() -> None:
    old, new = contracts_of("tws-body")
    assert isinstance(old, Contract)
    assert isinstance(new, Contract)
    (found,) = check(old, new).findings
    assert found.old != found.new
    for text in (found.old, found.new):
        assert re.fullmatch(r"transform\.build\.Keeps\._row \([0-9a-f]{16}\)", text or "")
