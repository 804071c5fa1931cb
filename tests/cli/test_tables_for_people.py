"""Tables fit the terminal: a narrow one has fewer columns, and words and numbers are never truncated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_command

from ttlsnap import CompactionReport, LocalEngine, compact
from ttlsnap.cli.app import app, run
from ttlsnap.cli.compact_report import fit_table, show_counts
from ttlsnap.cli.output import share
from ttlsnap.cli.tabular import TextTable
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..samples import SAMPLES, sample
from .terminal import run_on_terminal

WEEK = StateTtlConfig(7 * 86_400_000_000)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> CompactionReport:
    target = str(sample("agg-deltas-lz4-4.2", tmp_path_factory.mktemp("table")))
    factory = TtlTransformerFactory(WEEK, "value.max")
    return compact(target, [factory], now="2026-11-21T09:00:00Z", dry_run=True, engine=LocalEngine(1))


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (200, "operator state timestamp oldest entries kept dropped rewritten before after"),
        (120, "operator state timestamp oldest entries kept dropped rewritten before after"),
        (80, "operator timestamp oldest entries kept dropped before after"),
        (62, "operator timestamp oldest entries dropped after"),
        (20, "operator timestamp entries dropped after"),
    ],
)
def test_a_narrow_table_has_fewer_columns(report: CompactionReport, width: int, columns: str) -> None:
    made = fit_table(report.states, width)
    lines = made.__rich__().plain.splitlines()
    assert lines[0].split() == columns.split()
    assert made.width <= max(width, 46)
    assert "369" in lines[1] and "value.max" in lines[1]


def test_a_column_with_a_nonzero_number_is_kept(report: CompactionReport) -> None:
    states = [replace(state, counts=replace(state.counts, rewritten=7)) for state in report.states]
    assert "rewritten" in fit_table(states, 80).__rich__().plain


def test_a_time_in_a_wrong_unit_is_shown_as_a_year(capsys: pytest.CaptureFixture[str]) -> None:
    target, rule = str(SAMPLES / "dedup-within-4.2"), ["--ttl", "7d", "--timestamp", "value.expiresAtMicros:ms"]
    assert run(["compact", target, *rule, "--dry-run"]) == 0
    assert "  the year 58848  " in capsys.readouterr().out
    assert run(["explain", target, "--key", '"key-8"', *rule]) == 0
    explained = capsys.readouterr().out
    assert "    time: the year 58848, " in explained and "; expires the year 58848\n" in explained


def test_the_totals_show_the_saved_bytes(report: CompactionReport) -> None:
    console = Console(width=200)
    with console.capture() as captured:
        show_counts(console, report)
    assert "Total: would drop 369 of 480 entries (77 %); 19.6 kB before, 2.8 kB after (86 % saved)" in captured.get()


@pytest.mark.parametrize(("no_color", "styled"), [(None, True), ("1", False)])
def test_no_color_turns_colors_off(
    report: CompactionReport, monkeypatch: pytest.MonkeyPatch, no_color: str | None, styled: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    console = Console(width=200, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(fit_table(report.states, 200))
    assert ("\x1b[33m369" in captured.get()) is styled


def test_wide_letters_keep_the_columns_straight() -> None:
    made = TextTable(["name", "count"], ["count"])
    made.add_row("状態", "1")
    made.add_row("state", "1,234")
    assert made.__rich__().plain == "name   count\n状態       1\nstate  1,234"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 480, "0 %"), (1, 480, "<1 %"), (369, 480, "77 %"), (479, 480, ">99 %"), (480, 480, "100 %"), (0, 0, "-")],
)
def test_a_share_is_100_percent_only_if_complete(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text


COMPACT = ("--ttl", "7d", "--timestamp", "value.max", "--now", "2026-11-21T09:00:00Z", "--dry-run")


@pytest.mark.parametrize("flag", ["-q", "--quiet"])
@pytest.mark.parametrize("first", [True, False])
def test_a_quiet_command_prints_errors_and_json_only(
    flag: str, first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(sample("agg-deltas-lz4-4.2", tmp_path))
    for command, code, printed in (
        (["compact", target, *COMPACT], 0, False),
        (["history", target], 0, False),
        (["recover", target], 0, False),
        (["compact", target, *COMPACT, "--format", "json"], 0, True),
        (["compact", target, "--ttl", "7"], 2, False),
    ):
        assert run([flag, *command] if first else [*command, flag]) == code
        out, err = capsys.readouterr()
        assert (bool(out), bool(err)) == (printed, bool(code)), command


def test_a_verbose_run_prints_its_plan_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(sample("agg-deltas-lz4-4.2", tmp_path))
    assert run(["compact", target, *COMPACT, "-v"]) == 0
    out, err = capsys.readouterr()
    assert "plan: operator 0, store default: 2 partitions, 14 files, 19.6 kB" in err
    assert "state default: is scanned" in err and "plan:" not in out


def test_the_value_of_an_argument_is_not_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["contract", "--script", "/nowhere.py", "--arg", "-v", "--arg", "--quiet"]) == 2
    assert "/nowhere.py does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_has_a_short_flag(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([flag]) == 0
    assert capsys.readouterr().out.startswith("ttlsnap 0.")


@pytest.mark.parametrize("command", [command.name for command in app.registered_commands])
def test_help_keeps_examples_and_words_whole(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([command, "--help"]) == 0
    lines = [line.strip(" │") for line in capsys.readouterr().out.splitlines()]
    declared = get_command(app).commands[command]  # type: ignore[attr-defined]
    for line in (declared.epilog or "").splitlines():
        assert line.strip() in lines
    shown = set(" ".join(lines).split())
    for parameter in declared.params:
        assert set(parameter.help.split()) <= shown, parameter.name
    assert "<bool>" not in shown


def test_the_help_of_all_commands_shows_no_types_of_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "<bool>" not in capsys.readouterr().out


def test_a_fitted_table_leaves_out_columns_and_then_the_middle_of_texts() -> None:
    made = TextTable(["target", "rows", "spare"], ["rows"], ["spare"])
    made.add_row("/data/checkpoints/of/many/queries/sessions", "1,234,567", "text")
    assert made.fitted(200) is made
    assert made.fitted(made.width - 1).columns == ["target", "rows"]
    lines = made.fitted(40).__rich__().plain.splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[1].startswith("/data/ch...") and lines[1].endswith("queries/sessions  1,234,567")
    assert made.fitted(3).__rich__().plain.splitlines()[1].endswith("  1,234,567")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("migrate", "join-4.2", "--partitions", "3", "--dry-run"),
        ("compact", "alarms-4.2", "--dry-run"),
        ("inspect", "alarms-4.2", "--sizes"),
        ("maintain", "../examples/policy.toml", "--plan"),
        ("transformers",),
    ],
    ids=lambda words: words[0],
)
def test_no_table_or_sentence_is_wider_than_the_terminal(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SAMPLES)
    lines = run_on_terminal(*words).splitlines()
    wide = [line for line in lines if len(line) > 80 and "ttlsnap " not in line and "{" not in line]
    assert len(lines) > 2 and not [line for line in wide if " " in line.strip()]
