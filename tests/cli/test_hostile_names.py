"""Names come from checkpoints, tables, contracts, policies and paths. Whatever they are, they harm no output."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ttlsnap.contract import contract_of_checkpoint
from ttlsnap.printable import printable, printable_json, printable_label, printable_output, shell_word

from ..maintenance.targets import cut_off, damaged, fresh
from ..samples import SAMPLES, sample
from .hostile import EVIL, GOOD, require_harmless, words_of
from .running import Outcome, Ttlsnap

AGG = "agg-deltas-lz4-4.2"
WEEK = ("--ttl", "7d", "--timestamp", "value.max")
QUICK = ("--engine", "local", "--stopped", "--yes")
SHOWN = printable_output(printable(EVIL))
NEW = ("missing", "missing.toml", "state", "plan.json", "contract.json")
RULE = 'ttl = "7d"\ntimestamp = "value.max"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / EVIL
    made.mkdir()
    return made


def require_harmless_output(found: Outcome) -> None:
    require_harmless(found.out)
    require_harmless(found.err)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, ("inspect", "ck", "--entries", "2", "--age", "--sizes", *WEEK)),
        (0, ("inspect", "")),
        (2, ("inspect", "missing")),
        (0, ("compact", "ck", *WEEK, "--dry-run", "--show", "2", "-v", *QUICK)),
        (2, ("compact", "ck", "missing", *WEEK, *QUICK)),
        (5, ("compact", "damaged", *WEEK, *QUICK)),
        (4, ("compact", "cut-off", *WEEK, *QUICK)),
        (0, ("history", "ck")),
        (0, ("history", "cut-off")),
        (0, ("recover", "cut-off")),
        (4, ("rollback", "ck", "--stopped")),
        (0, ("doctor", "ck")),
        (1, ("doctor", "damaged")),
        (1, ("doctor", "cut-off")),
        (0, ("contract", "ck", "--output", "contract.json")),
        (0, ("check", "ck", "ck")),
        (1, ("check", "ck", "other")),
        (0, ("diff", "ck")),
        (1, ("diff", "ck", "other")),
        (1, ("explain", "ck", "--key", '{"key": "nobody"}', *WEEK)),
        (0, ("export", "ck", "--to", "state")),
        (2, ("export", "ck", "--to", "ck/state")),
        (2, ("import", "ck", "--from", "missing")),
        (0, ("migrate", "ck", "--partitions", "3", "--dry-run", *QUICK)),
        (0, ("migrate", "ck", "--partitions", "3", "--plan-out", "plan.json", *QUICK[:2])),
        (5, ("maintain", "policy.toml", "--plan", "--engine", "local", "--log-format", "text")),
        (2, ("maintain", "missing.toml")),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_a_folder_with_a_hostile_name_harms_no_output(
    ttlsnap: Ttlsnap, folder: Path, code: int, words: tuple[str, ...]
) -> None:
    fresh(folder, "ck")
    if "damaged" in words or "policy.toml" in words:
        damaged(folder, "damaged")
    if "cut-off" in words:
        cut_off(fresh(folder, "cut-off"), "7d", "value.max")
    if "other" in words:
        fresh(folder, "other", "dedup-within-4.2")
    targets = "".join(f'[[target]]\npath = "{name}"\nstopped = true\n{RULE}' for name in ("ck", "damaged"))
    (folder / "policy.toml").write_text(targets)
    found = ttlsnap(*(folder / word if (folder / word).exists() or word in NEW else word for word in words))
    assert found.code == code, found
    require_harmless_output(found)


def test_every_command_that_is_printed_has_the_path_as_one_word(ttlsnap: Ttlsnap, folder: Path) -> None:
    target = str(fresh(folder, "it's a ck"))
    done = ttlsnap("compact", target, *WEEK, *QUICK)
    command = done.out.partition("To undo this run before you restart the query: ")[2].strip()
    assert words_of(command) == ["ttlsnap", "rollback", target, "--stopped"]
    cut_off(Path(shutil.copytree(SAMPLES / AGG, folder / "cut off")), "7d", "value.max")
    target = str(folder / "cut off")
    for words in (("compact", target, *WEEK, *QUICK), ("history", target), ("doctor", target)):
        found = ttlsnap(*words)
        text = found.err + found.out
        (told, *_) = re.findall(r"ttlsnap recover (?:\$'(?:[^'\\]|\\.)*'|'[^']*')", text)
        assert words_of(told) == ["ttlsnap", "recover", target], text
    (fence,) = (path for path in (folder / "cut off/offsets").iterdir() if b"ttlsnap fence" in path.read_bytes())
    require_harmless(fence.read_text())
    assert words_of(fence.read_text().split("`")[1]) == ["ttlsnap", "recover", target]


def test_a_run_in_a_folder_whose_name_is_not_utf8_can_be_undone(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = fresh(tmp_path, "bad\udcff")
    before = {path: path.read_bytes() for path in target.glob("state/**/*") if path.is_file()}
    for words in (("compact", target, *WEEK, *QUICK), ("migrate", target, "--partitions", "3", *QUICK)):
        done = ttlsnap(*words)
        assert done.code == 0, done
        require_harmless_output(done)
        told = ttlsnap("history", target, "--format", "json")
        assert (told.code, len(told.json["runs"])) in ((0, 1), (0, 3)), told
        undone = ttlsnap("rollback", target, "--stopped")
        assert undone.code == 0, undone
    assert {path: path.read_bytes() for path in target.glob("state/**/*") if path.is_file()} == before
    assert ttlsnap("history", target, "--prune").code == 0


def test_names_of_columns_in_a_contract_harm_no_report(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    text = contract_of_checkpoint(str(SAMPLES / AGG)).dumps()
    old.write_text(text)
    new.write_text(text.replace('"max"', json.dumps(EVIL)).replace('"name": "count"', f'"name": {json.dumps(GOOD)}'))
    assert new.read_text() != text
    found = ttlsnap("check", old, new)
    require_harmless_output(found)
    assert SHOWN in found.out and GOOD in found.out
    for form in ("junit", "sarif"):
        require_harmless(ttlsnap("check", old, new, "--format", form).out, is_log=False)
    annotations = ttlsnap("check", old, new, "--format", "github")
    assert all(re.match(r"::(error|warning|notice) |verdict: ", line) for line in annotations.out.splitlines())
    require_harmless(annotations.out, is_log=False)


def test_names_of_columns_in_a_table_harm_no_output(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    name = EVIL.replace("\r\n", "")  # Parquet has no such names
    times = pa.array([1_760_000_000_000_000], pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path / "table", pa.table({name: ["x"], GOOD: ["y"], "at": times}))
    found = ttlsnap("inspect", tmp_path / "table", "--entries", "1")
    require_harmless_output(found)
    assert SHOWN.replace(r"\r\n", "") in found.out and GOOD in found.out
    by_time = ("--ttl", "7d", "--timestamp", "at", "--now", "wall", "--dry-run")
    for key in (name, GOOD, "missing"):
        require_harmless_output(ttlsnap("compact", tmp_path / "table", "--key", key, *by_time))


def test_a_json_document_has_the_exact_name(ttlsnap: Ttlsnap, folder: Path) -> None:
    target = str(sample(AGG, folder))
    found = ttlsnap("inspect", target, "--format", "json")
    assert found.json["target"] == target
    require_harmless(found.out)


def test_labels_of_metrics_are_harmless_and_differ(ttlsnap: Ttlsnap, folder: Path, tmp_path: Path) -> None:
    names = ["x\x1b", r"x\x1b", r"x\\x1b", "x\\"]
    for name in names:
        fresh(folder, name)
    policy, file = tmp_path / "policy.toml", tmp_path / "out.prom"
    policy.write_text(f"[[target]]\npath = {json.dumps(f'{tmp_path}/*/*')}\nstopped = true\n{RULE}")
    assert ttlsnap("maintain", policy, "--engine", "local", "--metrics", file).code == 0
    require_harmless(file.read_text(), is_log=False)
    labels = re.findall(r"^ttlsnap_target_exit_code\{(.*)\} 0$", file.read_text(), re.MULTILINE)
    assert len(labels) == len(set(labels)) == len(names)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (GOOD, GOOD),
        ("\u00a0x", "\u00a0x"),
        ("a\tb\x7f", r"a\tb\x7f"),
        ("\u200bx\u200d", r"\u200bx\u200d"),
        ("\udcff\U000e0001\ufffe", r"\udcff\U000e0001\ufffe"),
        ("a\nb\u2028c", r"a\nb\u2028c"),
    ],
)
def test_a_line_has_no_control_character(name: str, shown: str) -> None:
    assert printable(name) == shown
    assert json.loads(printable_json(json.dumps([name], ensure_ascii=False))) == [name]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n::error::b", "a\n\\x3a:error::b"),
        ("  ::set-output name=a::b", "  \\x3a:set-output name=a::b"),
        ("a ##[error]b", "a \\x23#[error]b"),
        ("##vso[task.complete]", "\\x23#vso[task.complete]"),
        ("a::b ## [x]\n:c", "a::b ## [x]\n:c"),
        ("a\r\nb", "a\nb"),
    ],
)
def test_output_has_no_command_to_a_build_server(text: str, shown: str) -> None:
    assert printable_output(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see https://me:secret@host/x.", "see https://[not shown]@host/x."),
        ("s3://KEY:sec/ret@bucket/x", "s3://[not shown]@bucket/x"),
        ("hdfs://host:8020/a@b", "hdfs://host:8020/a@b"),
        ("abfss://box@account.example/x:y", "abfss://box@account.example/x:y"),
    ],
)
def test_credentials_are_never_shown(text: str, shown: str) -> None:
    assert [made(text) for made in (printable, printable_output, printable_label)] == [shown] * 3
    assert json.loads(printable_json(json.dumps([text, "c:d@e"]))) == [shown, "c:d@e"]


def test_a_command_shows_no_credentials_of_a_target(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[[target]]\npath = "s3://KEY:SECRET@bucket/x"\n{RULE}')
    for words in (
        ("compact", fresh(tmp_path, "ck"), "s3://KEY:SECRET@bucket/x", *WEEK, *QUICK, "--format", "json"),
        ("maintain", policy, "--plan", "--engine", "local", "--format", "json"),
        ("maintain", policy, "--plan", "--engine", "local", "--log-format", "json"),
        ("inspect", "s3://KEY:SECRET@bucket/x", "--report", f"html={tmp_path}/page.html"),
    ):
        found = ttlsnap(*words)
        assert found.code == 2 and "SECRET" not in found.out + found.err, found


@pytest.mark.parametrize("name", [EVIL, GOOD, "it's", "$(date)", "a b", "", "\\x1b\x1b", "x\\", "plain/path-1.2"])
def test_a_word_of_a_command_is_the_name(name: str) -> None:
    word: Any = shell_word(name)
    require_harmless(word)
    assert words_of(word) == [name]
    assert (printable_label(name) == name) is (name not in (EVIL, "\\x1b\x1b"))
