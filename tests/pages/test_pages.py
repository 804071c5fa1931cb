"""Pages show what the JSON document has, hold no key without ``--show-keys``, and need nothing but themselves."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.amounts import number, share, size
from ttlsnap.cli.app import run
from ttlsnap.contract import contract_of_checkpoint
from ttlsnap.diagnosis.problems import CODES
from ttlsnap.errors import CorruptionError
from ttlsnap.pages import privacy
from ttlsnap.pages.ages import age_histogram
from ttlsnap.pages.render import MARK, render
from ttlsnap.pages.svg import Bar, CutOff, bar_chart, line_chart, ranked_chart, time_chart
from ttlsnap.quoting import quote

from ..samples import bytes_of, sample
from .making import AGG, LOCAL, WEEK, Pages, Parsed, keys_of, make_pages

WITH_KEYS = ["inspect-keys", "compact-keys", "maintain-keys", "doctor-keys"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return make_pages(tmp_path_factory.mktemp("pages"))


def drawn(command: str, document: Any, folder: Path, *, show_keys: bool = False) -> Parsed:
    """Return the page of a document."""
    page = folder / "drawn.html"
    page.write_bytes(render(command, document, show_keys=show_keys, version="1", at=datetime(2026, 11, 26, tzinfo=UTC)))
    return Parsed(page)


@pytest.mark.slow
def test_every_page_is_whole_and_needs_nothing_else(pages: Pages) -> None:
    assert len(pages.codes) == len(list(pages.folder.glob("*.html"))) == 22
    for name in pages.codes:
        page = Parsed(pages.folder / f"{name}.html")
        assert not page.wrong, name
        assert page.html.encode().startswith(MARK)
        assert not {"script", "link", "img", "iframe", "object", "a"} & set(page.tags), name
        assert not [pair for pair in page.attributes if pair[0] in ("src", "href") or pair[0].startswith("on")], name
        assert not re.search(r"https?:|url\(|@import", page.html), name
        ids = [value for key, value in page.attributes if key == "id"]
        named = [value for key, value in page.attributes if key in ("aria-labelledby", "aria-describedby")]
        assert len(ids) == len(set(ids)) and set(named) == set(ids), name


def test_exit_codes_are_those_without_a_page(pages: Pages) -> None:
    failing = {name: code for name, code in pages.codes.items() if code}
    assert failing == {
        "compact-several": 2,
        "maintain": 2,
        "maintain-keys": 2,
        "maintain-misplaced": 4,
        "check": 1,
        "doctor": 1,
        "doctor-keys": 1,
        "doctor-damaged": 1,
    }


def test_no_key_is_on_a_page_unless_it_was_asked_for(pages: Pages) -> None:
    keys = {key for target in ("swapped", "rocksdb-4.2", "alarms-4.2") for key in keys_of(pages.folder / target)}
    keys |= {"user-a", "user-b", "user-c"}  # of the Delta table
    found = {}
    for name in pages.codes:
        text = (pages.folder / f"{name}.html").read_text()
        found[name] = keys & set(re.findall(r"[\w-]+", text))
    assert {name for name, some in found.items() if some} == set(WITH_KEYS)


@pytest.mark.parametrize(
    "name",
    ["inspect", "compact-dry", "maintain", "maintain-misplaced", "doctor", "compact-archive", "compact-rule"],
)
def test_the_document_of_a_page_without_keys_has_keys(name: str, pages: Pages) -> None:
    keys = {key for target in ("swapped", "rocksdb-4.2") for key in keys_of(pages.folder / target)}
    text = json.dumps(pages.documents[name])
    assert keys & set(re.findall(r"[\w-]+", text))
    page = Parsed(pages.folder / f"{name}.html")
    assert "--show-keys adds" in page.text
    assert "This page has no keys and no values of entries." in page.text


def test_a_page_with_keys_has_those_of_the_document(pages: Pages) -> None:
    for name, entries in (("inspect-keys", "entries"), ("compact-keys", "shown")):
        page = Parsed(pages.folder / f"{name}.html")
        for entry in pages.documents[name][entries]:
            assert json.dumps(entry["key"]) in page.text
            assert json.dumps(entry["value"]) in page.text
    assert "I do not like" in Parsed(pages.folder / "maintain-keys.html").text
    assert pages.documents["doctor-keys"]["problems"][0]["message"] in Parsed(pages.folder / "doctor-keys.html").text


def test_every_problem_of_doctor_is_known_to_quote_entries_or_not_to() -> None:
    assert privacy.SAFE_PROBLEMS | set(privacy.PROBLEMS) == set(CODES)
    assert not privacy.SAFE_PROBLEMS & set(privacy.PROBLEMS)


def test_a_problem_that_the_page_does_not_know_is_left_out() -> None:
    assert "user-1" not in privacy.tell_problem({"code": "new-code", "message": "user-1 is wrong"}, False)
    assert "user-1" not in privacy.tell_error({"error": "user-1 is wrong", "error_type": "NewError"}, False)


@pytest.mark.parametrize(
    ("rule", "is_shown"),
    [
        ("ttl 7d by value.max", True),
        ("target 1, rule 2: ttl 7d instead of 30d after the time that Spark stores", True),
        ("target 1, rule 1: Spark's expiry times", True),
        ("keep", True),
        ("rules:quote", True),
        ("target 1, rule 1: rules:quote", True),
        ("keep user-1", False),
        ("ttl 7d by value.max, except 'user-1'", False),
        ("drop user-1", False),
    ],
)
def test_only_rules_that_name_no_values_are_shown(rule: str, is_shown: bool) -> None:
    assert (privacy.tell_rule(rule, False) == rule) is is_shown
    assert privacy.tell_rule(rule, True) == rule


def test_a_refusal_is_shown_without_the_keys_that_it_quotes(pages: Pages) -> None:
    error = pages.documents["maintain-misplaced"]["targets"][0]["error"]
    # The page names the target beside its error.
    head, _, rest = error.partition(": ")[2].partition("For example, ")
    shown = Parsed(pages.folder / "maintain-misplaced.html").text
    assert f"{head}For example, [not shown]{rest[rest.index(' is in partition') :]}" in shown


def test_state_that_check_cannot_read_is_not_quoted() -> None:
    error = CorruptionError("state/0/1: key " + quote("6162") + " is wrong")
    line = "its state cannot be read; run ttlsnap doctor (" + error.text + ")"
    shown = privacy.tell(line, False)
    assert "6162" not in shown and "state/0/1: key [not shown] is wrong" in shown
    assert privacy.tell(line, True) == line


@pytest.mark.parametrize("name", ["compact", "compact-dry"])
def test_the_page_of_a_run_has_the_numbers_of_its_document(name: str, pages: Pages) -> None:
    document, page = pages.documents[name], Parsed(pages.folder / f"{name}.html")
    totals = document["totals"]
    dropped = f"{number(totals['dropped'])} of {number(totals['entries'])} entries ({share(totals['dropped'], 480)})"
    assert totals["dropped"] == 369 and dropped in page.text
    for words in (size(totals["bytes_before"]), size(totals["bytes_after"]), document["run"], document["target"]):
        assert words in page.text
    assert "cut-off 2026-11-14 09:00" in page.text
    assert page.text.count("Dry run: nothing was changed.") == (name == "compact-dry")
    begins = r"<h1>A run would drop 369" if name == "compact-dry" else r"<h1>The run dropped 369"
    assert re.search(begins, page.html)


def test_the_page_of_inspect_has_its_histogram_as_chart_and_as_table(pages: Pages) -> None:
    age = pages.documents["inspect"]["operators"][0]["stores"][0]["states"][0]["age"]
    page = Parsed(pages.folder / "inspect.html")
    for bucket in age["buckets"][:6]:
        assert len(re.findall(rf">[^<]*to {bucket['up_to']}<", page.html)) == 2
    assert page.html.count(f">{number(age['buckets'][5]['entries'])}<") == 2
    assert ">older<" not in page.html  # without entries


def test_the_page_of_a_policy_has_every_target_with_its_result(pages: Pages) -> None:
    page = Parsed(pages.folder / "maintain.html")
    for target in pages.documents["maintain"]["targets"]:
        assert target["target"] in page.text
        assert target["status"] in page.text
    assert "Of 2 targets, 1 failed; a run would drop 369 of 480 entries (77 %)." in page.text


def test_the_pages_of_a_table_have_its_rows_and_versions(pages: Pages) -> None:
    page = Parsed(pages.folder / "inspect-table.html")
    assert re.search(r"This Delta table holds 3 rows \(.* B\), as of version 0\.", page.text)
    assert "2 entries are left out" in page.text and ">30d to 90d<" in page.html
    assert "A run would drop 2 of 3 rows (67 %)." in Parsed(pages.folder / "compact-table.html").text


def test_the_page_of_a_migration_says_what_changes(pages: Pages) -> None:
    page = Parsed(pages.folder / "maintain-migrate.html")
    (target,) = pages.documents["maintain-migrate"]["targets"]
    assert target["kind"] == "migrate" and target["settings"]
    for name, value in target["settings"].items():
        assert f"{name} = {value}" in page.text


def test_the_page_of_a_check_has_each_finding(pages: Pages) -> None:
    page = Parsed(pages.folder / "check.html")
    (finding,) = pages.documents["check"]["findings"]
    for name in ("code", "message", "old", "new", "spark", "fix"):
        assert finding[name] in page.text
    assert "The new query cannot continue with the old state." in page.text
    assert "The new query can continue with the old state." in Parsed(pages.folder / "check-good.html").text


def test_the_pages_of_doctor_have_the_problems_and_the_versions(pages: Pages) -> None:
    page = Parsed(pages.folder / "doctor.html")
    for problem in pages.documents["doctor"]["problems"]:
        assert problem["code"] in page.text and problem["fix"] in page.text
    assert "Nothing is wrong: the newest version can be restored." in Parsed(pages.folder / "doctor-good.html").text


def test_names_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "<script>alert(1)<"
    made = Pages(tmp_path)
    sample(AGG, tmp_path).rename(tmp_path / f"a{evil}")
    contract = json.dumps(contract_of_checkpoint(str(tmp_path / f"a{evil}")).to_json())
    (tmp_path / "old.json").write_text(contract)
    (tmp_path / "new.json").write_text(contract.replace('"sum"', f'"{evil}/script>\\u202e"'))
    for name, words in {
        "inspect": ["inspect", f"a{evil}"],
        "compact": ["compact", f"a{evil}", *WEEK, "--dry-run", *LOCAL],
        "doctor": ["doctor", f"a{evil}"],
        "check": ["check", "old.json", "new.json"],
    }.items():
        page = Parsed(made.make(name, *words))
        assert evil in page.text
        assert "script" not in page.tags and "\u202e" not in page.html
        assert not page.wrong


def test_a_rule_in_own_words_is_escaped(pages: Pages, tmp_path: Path) -> None:
    document = pages.documents["compact-rule"]
    assert "<script>" in document["rules"][0]
    page = drawn("compact", document, tmp_path, show_keys=True)
    assert document["rules"][0] in page.text and "script" not in page.tags
    assert "alert" not in (pages.folder / "compact-rule.html").read_text()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a checkpoint, a policy, a link into the checkpoint, and a file."""
    sample(AGG, tmp_path).rename(tmp_path / "ck")
    (tmp_path / "link").symlink_to("ck/state")
    (tmp_path / "new").mkdir()
    sample(AGG, tmp_path / "second").rename(tmp_path / "other")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "policy.toml").write_text('[[target]]\npath = "ck"\nttl = "7d"\ntimestamp = "value.max"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMPACT = ["compact", "ck", *WEEK, "--stopped", "--yes", *LOCAL]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--report", "pdf=a.pdf"], "--report is html=FILE, not 'pdf=a.pdf'"),
        (["--report", "html="], "--report is html=FILE"),
        (["--report", "html=nowhere/a.html"], "there is no folder nowhere; make it first"),
        (["--report", "html=ck"], "ck is a folder; name a file"),
        (["--report", "html=ck/a.html"], "ck/a.html is inside ck"),
        (["--report", "html=link/a.html"], "link/a.html is inside ck"),
        (["--report", "html=other/offsets/7"], "html=other/offsets/7 is inside"),
        (["--report", "html=new/a.html", "--output", "new"], "html=new/a.html is inside new"),
        (["--report", f"html={'a' * 300}.html"], "this cannot be a file"),
        (["--report", "html=-"], "--report is html=FILE"),
        (["--report", "html=notes.txt"], "the file exists and is not a page of ttlsnap"),
        (["--report", "html=a.html", "--report", "html=./a.html"], "have the same file"),
        (["--show-keys"], "add --report html=FILE"),
    ],
)
def test_a_page_that_cannot_be_written_stops_the_run_before_any_work(
    words: list[str], told: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = bytes_of(workplace)
    assert run([*COMPACT, *words]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert bytes_of(workplace) == before


@pytest.mark.parametrize(
    "command", [["inspect", "ck"], ["doctor", "ck"], ["maintain", "policy.toml", *LOCAL], ["check", "ck", "ck"]]
)
def test_each_command_refuses_such_a_page(
    command: list[str], workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = bytes_of(workplace)
    for name, told in (("ck/a.html", "ck/a.html is inside"), ("notes.txt", "is not a page of ttlsnap")):
        assert run([*command, "--report", f"html={name}"]) == 2
        assert told in " ".join(capsys.readouterr().err.split())
    assert bytes_of(workplace) == before


def test_a_wrong_kind_of_report_of_check_names_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "a", "b", "--report", "pdf=a.pdf"]) == 2
    assert "text, json, junit, sarif, github, html" in " ".join(capsys.readouterr().err.split())


def test_a_page_replaces_a_page_and_leaves_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample(AGG, tmp_path)
    sample("rocksdb-4.2", tmp_path)
    monkeypatch.chdir(tmp_path)
    for target in (AGG, "rocksdb-4.2"):
        assert run(["inspect", target, "--report", "html=a.html"]) == 0
        assert target in (tmp_path / "a.html").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {AGG, "rocksdb-4.2", "a.html"}


def test_an_error_writes_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample(AGG, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["compact", AGG, "--ttl", "7d", "--timestamp", "value.nothing", "--report", "html=a.html"]) == 2
    assert run(["doctor", "missing", "--report", "html=a.html"]) == 2
    assert not (tmp_path / "a.html").exists()


def test_a_page_that_cannot_be_written_leaves_the_run_published(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*COMPACT, "--report", "html=/dev/full"]) == 5
    printed = capsys.readouterr()
    assert "Published as run" in printed.out and "cannot write /dev/full: No space left on device" in printed.err


def test_without_jinja_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)  # like a module that is not installed
    assert run(["inspect", str(sample(AGG, tmp_path)), "--report", f"html={tmp_path / 'a.html'}"]) == 2
    assert "pip install 'ttlsnap[html]'" in capsys.readouterr().err


@pytest.mark.slow
def test_many_targets_are_a_chart_and_the_largest_ones(pages: Pages, tmp_path: Path) -> None:
    one = pages.documents["maintain"]["targets"][0]
    targets = [{**one, "target": f"/ck/{n:04}", "totals": {**one["totals"], "dropped": n + 1}} for n in range(3000)]
    page = drawn("maintain", {"policy": "p", "targets": targets}, tmp_path)
    assert all(f">/ck/{n:04}<" in page.html for n in range(3000))
    assert "the largest 20 of 3,000" in page.text
    assert page.tags.count("polyline") == 1
    # The histograms are those of the targets from which most is dropped.
    assert page.tags.count("figure") == 3 + 20
    assert "Age of /ck/2980, operator 0 by value.max" in page.text and "Age of /ck/2979, operator" not in page.text
    assert "These are 20 of 3,000 states" in page.text


def test_a_histogram_marks_its_cut_off_between_bars() -> None:
    bars = [Bar("up to 1d", 5, "5"), Bar("up to 7d", 10, "10"), Bar("older", 0, "0")]
    for after in range(4):
        svg = bar_chart("Age", bars, CutOff(after, "expired below")).draw("x")
        order = re.findall(r">(up to 1d|up to 7d|older|expired below)<", svg)
        assert order.index("expired below") == after
    assert 'width="50.00%"' in svg and 'width="100.00%"' in svg
    assert "Age" in svg and "up to 1d: 5; up to 7d: 10; older: 0. expired below." in svg


def test_a_long_label_is_whole_in_lines_that_fit_a_phone() -> None:
    labels = ["s3://bucket/" + "long" * 20 + "/001", "a name of several words that does not fit on one line", "x" * 39]
    chart = bar_chart("Sizes", [Bar(label, 5, "1.5 kB") for label in labels])
    lines = re.findall(r'<text x="0" y="(\d+)"[^>]*>([^<]*)<', chart.draw("x"))
    assert "".join(text for _, text in lines).replace(" ", "") == "".join(labels).replace(" ", "")
    assert max(len(text) for _, text in lines) <= 38 and len({y for y, _ in lines}) == len(lines) > 6
    tracks = [int(y) for y in re.findall(r'<rect [^>]*y="(\d+)"[^>]*class="track"', chart.draw("x"))]
    beginnings = [number for number, (_, text) in enumerate(lines) if text.startswith(("s3:", "a name", "xxx"))]
    last_lines = [int(lines[number - 1][0]) for number in (*beginnings[1:3], len(lines))]
    assert [track - line for track, line in zip(tracks, last_lines, strict=True)] == [6, 6, 6]
    assert tracks[-1] < chart.height


def test_ages_beyond_the_cut_off_have_the_colour_of_dropped_entries() -> None:
    buckets = [("1h", 3600, 4), ("2h", 7200, 3), ("3h", 10800, 2), (None, None, 1)]
    names = ("up_to", "up_to_seconds", "entries")
    ages = {"buckets": [dict(zip(names, bucket, strict=True)) for bucket in buckets], "future": 5, "null": 6}
    chart, table = age_histogram("Age", {**ages, "cutoff_seconds": 7200})
    shown = re.findall(r'>([\w ]+)</text>|class="(accent|drop|cut-off)"', chart.draw("x"))
    labels = ["in the future", "up to 1h", "1h to 2h", "2h to 3h", "older", "no timestamp"]
    colours = ["accent", "accent", "accent", "cut-off", "drop", "drop", "accent"]
    assert [label for label, _ in shown if not label.isdigit() and label] == labels
    assert [colour for _, colour in shown if colour] == colours
    assert [tuple(row[:2]) for row in table.rows] == list(zip(labels, "543216", strict=True))
    without, _ = age_histogram("Age", {**ages, "cutoff_seconds": None})
    assert "drop" not in without.draw("x") and "cut-off" not in without.draw("x")


def test_the_table_of_a_chart_is_folded_and_no_other_one(pages: Pages) -> None:
    for name, captions in {
        "compact-dry": ["All states together", "Age of operator 0 by value.max (processing time)"],
        "inspect": ["Age of the entries by value.max"],
        "inspect-folder": [],
    }.items():
        page = Parsed(pages.folder / f"{name}.html")
        folded = re.findall(r"<details><summary>Table: (.*?)</summary>\s*<div[^>]*>\s*<table>\s*<thead>", page.html)
        assert folded == captions and page.tags.count("caption") == page.tags.count("table") - len(captions) > 0


@pytest.mark.parametrize("name", ["compact", "compact-dry", "compact-several", "maintain"])
def test_the_page_of_a_run_has_the_ages_with_their_cut_off(name: str, pages: Pages) -> None:
    page, document = Parsed(pages.folder / f"{name}.html"), pages.documents[name]
    run = document if isinstance(document, dict) else {"targets": document}
    state = (run["targets"][0] if "targets" in run else run)["stores"][0]
    order = re.findall(r">(5d to 7d|7d to 10d|cut-off: older entries have expired)<", page.html)
    assert order[:3] == ["5d to 7d", "cut-off: older entries have expired", "7d to 10d"]
    filled = [bucket for bucket in state["ages"]["buckets"] if bucket["entries"]]
    assert len(filled) > 8
    for bucket in filled:
        assert re.search(rf">[^<]*to {bucket['up_to']}</td><td class=\"right\">{bucket['entries']:,}<", page.html)
    assert "ages" in state and "operator 0 by value.max (processing time)" in page.text


def test_a_time_line_has_its_cut_off_in_its_place() -> None:
    words = ("a", "b", "c")
    for at, expected in ((25, "25.00%"), (-1, "0.00%"), (500, "100.00%")):
        assert f'x1="{expected}"' in time_chart("t", 0, 100, at, words).draw("x")
    assert 'x1="100.00%"' in time_chart("t", 5, 5, 5, words).draw("x")


def test_curves_reach_from_the_first_to_the_last_value() -> None:
    line = line_chart("Growth", [(10, 0), (20, 50), (30, 100)], ("batch 10", "batch 30"), "100").draw("x")
    assert 'points="0.00,100.00 50.00,52.00 100.00,4.00"' in line
    ranked = ranked_chart("Sizes", [1, 3, 2], ("3", "1")).draw("x")
    assert 'points="0.00,4.00 33.33,4.00' in ranked and "3 values, from 3 to 1." in ranked


def test_a_page_has_a_message_that_quotes_no_entry_and_says_where_reasons_are(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    with (target / "state/0/0/2.delta").open("r+b") as file:
        file.write(b"changed")
    page = tmp_path / "page.html"
    assert run(["doctor", str(target), "--report", f"html={page}"]) == 1
    shown = Parsed(page).words
    assert re.search(r"2\.delta: bytes 0 to \d+ do not match the checksum in state/0/0/\.2\.delta\.crc", shown)
    assert "no see the problems above" in shown
