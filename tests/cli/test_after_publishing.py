"""After a run, commands name what to do next, how to undo it, and which earlier run can no longer be undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttlsnap import compact, history
from ttlsnap.cli.app import run
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..pages.making import Parsed
from ..samples import sample

QUICK = ("--timestamp", "value.max", "--yes", "--stopped", "--engine", "local")
FINAL = "The backup of run {} was removed, so that run can no longer be rolled back."
POLICY = '[[target]]\npath = "agg-deltas-lz4-4.2"\nstopped = true\nttl = "2d"\ntimestamp = "value.max"\n'


def drop_older_than(target: Path, ttl: str) -> str:
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), "value.max")
    return compact(str(target), [factory], stopped=True).run


@pytest.mark.parametrize(
    "words",
    [
        ("compact", "{}", "--ttl", "2d", *QUICK),
        ("migrate", "{}", "--partitions", "3", "--yes", "--stopped", "--engine", "local"),
        ("maintain", "policy.toml", "--engine", "local", "--report", "html=page.html"),
    ],
    ids=lambda words: words[0],
)
def test_a_run_names_the_earlier_run_that_it_makes_final(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    (tmp_path / "policy.toml").write_text(POLICY)
    first = drop_older_than(target, "14d")
    if words[0] == "compact":
        assert run([*(word.format(target) for word in words), "--dry-run"]) == 0
        foreseen = f"Run {first} could then no longer be rolled back: its backup would be removed"
        assert foreseen in capsys.readouterr().out
    assert run([word.format(target) for word in words]) == 0
    out = capsys.readouterr().out
    assert FINAL.format(first) in out
    assert f"un {history(str(target))[-1].run}" in out and "Next: restart the quer" in out
    assert "To undo " in out and "ttlsnap rollback " in out
    if words[0] == "maintain":
        page = Parsed(tmp_path / "page.html").words
        assert FINAL.format(first) in page and "Next: restart the queries" in page


def test_the_command_that_undoes_a_run_names_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    targets = [sample("agg-deltas-lz4-4.2", tmp_path).rename(tmp_path / name) for name in ("a", "b")]
    rule = 'stopped = true\nttl = "2d"\ntimestamp = "value.max"\nexpired_to = "{}"\n'
    (tmp_path / "policy.toml").write_text(
        "".join(f'[[target]]\npath = "{name}"\n{rule.format("old")}' for name in "ab")
    )
    assert run(["maintain", "policy.toml", "--engine", "local"]) == 0
    undo = f"ttlsnap rollback {{}} --stopped --expired-to {tmp_path}/old\n"
    assert capsys.readouterr().out.endswith(undo.format("CHECKPOINT"))
    for target in targets:
        assert run(undo.format(target).split()[1:]) == 0
    assert [path for path in (tmp_path / "old").iterdir() if path.suffix == ".parquet"] == []
    capsys.readouterr()
    assert run(["compact", str(targets[0]), "--ttl", "2d", *QUICK, "--expired-to", "old"]) == 0
    assert undo.format(targets[0]).strip() in capsys.readouterr().out
    assert run(["rollback", str(targets[0]), "--stopped"]) == 0
    capsys.readouterr()
    assert run(["recover", str(targets[0]), "--expired-to", "old"]) == 0
    out = capsys.readouterr().out
    assert ": removed the dropped entries of run " in out and out.endswith(" from the archive.\n")


def test_an_error_after_publishing_names_the_published_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    assert run(["compact", str(target), "--ttl", "2d", *QUICK, "--report", "html=/dev/full"]) == 5
    (published,) = history(str(target))
    told = f"Error: cannot write /dev/full: No space left on device\nRun {published.run} on {target} was published.\n"
    assert capsys.readouterr().err.endswith(told)


def test_a_run_that_only_updates_the_ledger_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(sample("dedup-columns-rocksdb-3.2", tmp_path))
    words = ["compact", target, "--ttl", "3s", "--timestamp", "@written", "--stopped", "--engine", "local"]
    for option, told in (
        ("--dry-run", "nothing was changed"),
        ("--yes", "Nothing was dropped. The ledger was updated."),
    ):
        assert run([*words, option]) == 0
        assert told in capsys.readouterr().out.splitlines()[-1]


def test_a_copy_says_that_the_original_is_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, copy = sample("agg-deltas-lz4-4.2", tmp_path), str(tmp_path / "copy")
    assert run(["compact", str(target), "--ttl", "2d", *QUICK, "--output", copy]) == 0
    assert run(["rollback", copy, "--stopped"]) == 4
    assert "there is no run to roll back: this checkpoint is a copy. Use the original" in capsys.readouterr().err
    assert run(["rollback", str(target), "--stopped"]) == 4
    assert capsys.readouterr().err.endswith("there is no run to roll back\n")


def test_a_run_that_nobody_could_undo_is_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    drop_older_than(target, "14d")
    assert run(["rollback", str(target), "--stopped"]) == 0
    assert run(["compact", str(target), "--ttl", "2d", *QUICK]) == 0
    assert "can no longer be rolled back" not in capsys.readouterr().out
