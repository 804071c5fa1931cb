"""Findings that are accepted: where an ignore fits, when it ends, and what is said of those that do nothing."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from ttlsnap.check.findings import CheckReport, Finding, Place, Verdict
from ttlsnap.check.ignores import Ignore, apply, parse_ignore, read_ignores
from ttlsnap.errors import StorageError, TtlsnapError, UsageError

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
def test_where_is_the_beginning_of_a_place_by_whole_parts(where: str | None, fits: bool) -> None:
    there = finding(Place(0, "default", "visits", "value.count"))
    done = apply(report(there), [ignore(where)], TODAY)
    assert [one.finding for one in done.ignored] == ([there] if fits else [])
    assert done.findings == (() if fits else (there,))
    assert bool(done.unused) is not fits


def test_operators_are_told_apart_by_the_whole_number() -> None:
    assert not apply(report(finding(Place(11))), [ignore("1")], TODAY).ignored


def test_what_is_of_no_operator_is_at_query() -> None:
    assert apply(report(finding(Place())), [ignore("query")], TODAY).ignored


def test_the_verdict_is_that_of_what_is_left() -> None:
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
def test_an_ignore_holds_through_its_last_day(until: date | None, holds: bool) -> None:
    done = apply(report(finding(Place(0))), [ignore(until=until)], TODAY)
    assert bool(done.ignored) is holds
    assert done.unused == (() if holds else ("value-added (--ignore): expired on 2026-11-21",))


def test_today_is_the_day_if_none_is_given() -> None:
    done = apply(report(finding(Place(0))), [ignore(until=date(2020, 2, 29))])
    assert done.unused == ("value-added (--ignore): expired on 2020-02-29",)
    assert apply(report(finding(Place(0))), [ignore(until=date.max)]).ignored


def test_unused_ignores_are_named() -> None:
    done = apply(report(finding(Place(0))), [ignore(), ignore("0"), ignore("3")], TODAY)
    assert done.unused == ("value-added:3 (--ignore): fits nothing",)


def test_an_option_is_a_code_and_perhaps_a_place() -> None:
    assert parse_ignore("value-added", CODES).where is None
    parsed = parse_ignore("value-added:0.default", CODES)
    assert (parsed.code, parsed.where, str(parsed)) == ("value-added", "0.default", "value-added:0.default (--ignore)")
    # A store's or a field's name may have a colon itself.
    assert parse_ignore("value-added:0.a:b", CODES).where == "0.a:b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value-aded", "there is no rule 'value-aded'; did you mean value-added"),
        ("nonsense:0", "there is no rule 'nonsense'"),
        ("value-added:", "after the colon comes a place"),
        ("", "there is no rule ''"),
    ],
)
def test_a_wrong_option_is_explained(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_ignore(text, CODES)


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
        ("[[ignore]]\ncode = 'value-added'\nreason = ' '", "reason is text that is not empty"),
        ("[[ignore]]\ncode = 'value-added'\nreason = 5", "reason is text that is not empty, not 5"),
        ("[[ignore]]\ncode = 5\nreason = 'x'", "code is text"),
        ("[[ignore]]\ncode = 'value-added'\nreason = 'x'\nwhere = ''", "where is text that is not empty"),
        ("[[ignore]]\ncode = 'value-added'\nreason = 'x'\nuntil = '2027-01-31'", "until is a date without quotes"),
        ("[[ignore]]\ncode = 'value-added'\nreason = 'x'\nuntil = 2027-01-31T00:00:00", "until is a date"),
        ("[[ignore]]\ncode = 'value-added'\nreason = 'x'\nuntill = 2027-01-31", "no 'untill'; did you mean until"),
        ("[[ignore]]\ncode = 'valu-removed'\nreason = 'x'", "did you mean value-removed"),
        ("[ignore]\ncode = 'value-added'\nreason = 'x'", r"it has \[\[ignore\]\] tables and nothing else"),
        ("ignore = [5]", "tables and nothing else"),
        ("[[ignored]]\ncode = 'value-added'", "nothing else, not 'ignored'"),
        ("[[ignore]\n", "is no TOML"),
        (b"\xff\xfe", "is no TOML"),
        ("x = " + "[" * 100_000, "is no TOML"),
        ("#" * ((1 << 20) + 1), "is longer than"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=said) as raised:
        read_ignores(path, CODES)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(("name", "kind"), [("gone.toml", UsageError), ("", StorageError)])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, kind: type[TtlsnapError]) -> None:
    with pytest.raises(kind, match=str(tmp_path / name)):
        read_ignores(tmp_path / name, CODES)
