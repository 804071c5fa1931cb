"""Odd arguments: an invalid one is refused, mostly with exit code 2, and a valid one works however odd it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..samples import bytes_of, sample
from . import wreck
from .conftest import Refuses, Ttlsnap

LZ4 = "agg-deltas-lz4-4.2"


@pytest.mark.parametrize(
    ("template", "code", "says"),
    [
        ("", 2, "the path is empty"),
        ("{}/nowhere", 2, "does not exist"),
        ("{}/metadata", 2, "has no offsets and no state folder"),
        ("{}/metadata/x", 2, "does not exist"),
        ("{}\0", 2, "cannot contain a NUL"),
        ("file://elsewhere{}", 2, "cannot have a host"),
        ("file:relative", 2, "an absolute path"),
        ("file:", 2, "an absolute path"),
        ("file://[::1/x", 2, "cannot have a host"),
        ("s3://KEY:SECRET@bucket{}", 2, "a URI of s3: cannot have credentials"),
        ("s3a://KEY:SEC/RET+x@bucket{}", 2, "a URI of s3a: cannot have credentials"),
        ("hdfs://me:SECRET@host{}", 2, "a URI of hdfs: cannot have credentials"),
        ("s3://bucket/a/../b{}", 2, "has a folder named . or .."),
        ("ftp://name/checkpoint", 3, "the scheme 'ftp' is not supported"),
        ("ftp://host:9000{}", 3, "the scheme 'ftp' is not supported"),
        ("dbfs:/checkpoint", 3, "use /dbfs/checkpoint"),
        ("/" + "x" * 300, 5, "File name too long"),
        ("/" + "x/" * 3000, 5, "File name too long"),
    ],
)
def test_an_impossible_target_is_refused(refuses: Refuses, tmp_path: Path, template: str, code: int, says: str) -> None:
    target = sample(LZ4, tmp_path)
    odd = template.replace("{}", str(target))
    for command in (("compact", *wreck.compacting(LZ4)), ("inspect", *wreck.scanning(LZ4))):
        told = refuses(code, target, command[0], odd, *command[1:], "--format", "json")
        assert says in told and "SEC" not in told
    told = refuses((2, 3, 5), target, "compact", target, *wreck.compacting(LZ4), "--output", odd)
    assert told
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


ODD_FOLDERS = ("a folder", "ünïcode-雪-😀", "100%", "%41", "a'b\"c", "[x]", "a#b?c", "$HOME")


@pytest.mark.parametrize(
    ("template", "folder"),
    [
        *((template, "plain") for template in ("{}/", "{}//.", "{}/state/..", "file:{}", "file://localhost{}/")),
        *((template, folder) for template in ("{}", "file://{}") for folder in ODD_FOLDERS),
    ],
)
def test_an_odd_but_valid_path_works(ttlsnap: Ttlsnap, tmp_path: Path, template: str, folder: str) -> None:
    target = tmp_path / folder
    target.mkdir()
    target = sample(LZ4, target)
    # As for Spark, a % in a URI does not begin an escape sequence.
    found = ttlsnap("inspect", template.replace("{}", str(target)), "--format", "json")
    assert (found.code, json.loads(found.out)["target"]) == (0, str(target))
    text = ttlsnap("inspect", template.replace("{}", str(target)))
    assert text.out.startswith(f"{target}\n")


@pytest.mark.parametrize("end", ["#old", "?old", "%00"])
def test_the_end_of_a_uri_is_a_part_of_the_name(refuses: Refuses, tmp_path: Path, end: str) -> None:
    target = sample(LZ4, tmp_path)
    told = refuses(2, target, "compact", f"file://{target}{end}", *wreck.compacting(LZ4))
    assert "does not exist" in told


@pytest.mark.slow
def test_a_path_that_is_not_utf8_works(tmp_path: Path) -> None:
    odd = os.fsencode(sample(LZ4, tmp_path).rename(tmp_path / os.fsdecode(b"a\xffb")))
    script = "import sys; from ttlsnap.cli import main; sys.exit(main())"
    for arguments in ([b"inspect", odd], [b"inspect", odd, b"--format", b"json"], [b"inspect", odd + b"/state/0"]):
        done = subprocess.run([sys.executable.encode(), b"-c", script.encode(), *arguments], capture_output=True)
        assert b"unexpected" not in done.stderr + done.stdout
        assert done.returncode == (2 if arguments[1].endswith(b"0") else 0), done
        if b"json" in arguments:
            assert json.loads(done.stdout)["target"].encode("utf-8", "surrogateescape") == odd


@pytest.mark.parametrize("output_format", ["text", "json"])
@pytest.mark.parametrize("batch", ["-1", "7", "99", "99999999999999999999999999", "-99999999999999999999999999"])
def test_a_batch_that_is_not_retained_is_refused(
    refuses: Refuses, tmp_path: Path, batch: str, output_format: str
) -> None:
    target = sample(LZ4, tmp_path)
    told = refuses(2, target, "inspect", target, "--batch", batch, "--format", output_format)
    if batch.startswith("-"):
        assert f"batch is {batch}; it must be a whole number from 0 on" in told
    else:
        assert "is not retained" in told and "there are 0 to 6" in told


@pytest.mark.parametrize(
    "options",
    [
        ("--batch", "x"), ("--entries", "-1"), ("--operator", "-1"), ("--operator", "9"), ("--operator", "x"),
        ("--store", "x\0"), ("--state", ""), ("--schema", "0.default='key STRING | max TIMESTAMP'"), ("--schema", "\0"),
        ("--schema", "0.default='key STRING |'"), ("--schema", f"{'9' * 5000}.default='a INT | b INT'"),
        ("--now", ""), ("--now", "\0"), ("--now", "99999-01-01"), ("--now", "2026-13-01"), ("--timestamp", "value"),
        ("--timestamp", "value.max:ms", "--age"), ("--timestamp", "value.", "--age"), ("--timestamp", "\0", "--age"),
        ("--timestamp", "value.`", "--age"), ("--timestamp", f"value.max#{'9' * 5000}", "--age"), ("--format", "xml"),
    ],
)  # fmt: skip
def test_an_odd_option_is_refused_or_has_no_effect(ttlsnap: Ttlsnap, tmp_path: Path, options: tuple[str, ...]) -> None:
    target = sample(LZ4, tmp_path)
    before = bytes_of(target)
    assert ttlsnap("inspect", target, *options).code in (0, 2)
    given = [option for option in options if option not in ("--age",)]
    if options[0] not in ("--batch", "--entries"):
        outcome = ttlsnap("compact", target, *wreck.compacting(LZ4), *given, "--dry-run")
        assert outcome.code == 2, outcome
    assert bytes_of(target) == before


@pytest.mark.parametrize("now", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1970-01-01"])
def test_extreme_times_of_now_are_accepted(ttlsnap: Ttlsnap, tmp_path: Path, now: str) -> None:
    target = sample(LZ4, tmp_path)
    for output_format in ("text", "json"):
        assert ttlsnap("inspect", target, *wreck.scanning(LZ4), "--now", now, "--format", output_format).code == 0
        options = (*wreck.compacting(LZ4), "--now", now, "--dry-run", "--format", output_format)
        assert ttlsnap("compact", target, *options).code == 0


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{}", "is not an empty folder. Name another folder"),
        ("{}/", "is not an empty folder"),
        ("{}/new", "must not contain each other"),
        ("{}/state/new", "must not contain each other"),
        ("{}/..", "is not an empty folder"),
        ("{}/metadata", "is not an empty folder"),
        ("{}/../full", "is not an empty folder"),
        ("file://{}", "is not an empty folder"),
    ],
)
def test_an_output_in_a_place_that_is_not_free_is_refused(
    refuses: Refuses, tmp_path: Path, template: str, says: str
) -> None:
    target = sample(LZ4, tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    output = template.replace("{}", str(target))
    assert says in refuses(2, target, "compact", target, *wreck.compacting(LZ4), "--output", output)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([target.name, "full"])


def test_an_output_may_be_empty_or_missing(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    (tmp_path / "empty").mkdir()
    for output in ("empty", "new", "deep/er/new"):
        assert ttlsnap("compact", target, *wreck.compacting(LZ4), "--output", tmp_path / output).code == 0
        assert ttlsnap("inspect", tmp_path / output).code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--ttl", "9" * 5000 + "d"), "is not a duration"),
        (("--ttl", "1 month"), "The units are ms, s, m (minutes), h, d and w; there are no months"),
        (("--transformer", ":F"), "cannot be loaded"),
        (("--transformer", "no.such.module:F"), "cannot be loaded"),
        (("--transformer", "broken_rules:F"), "SyntaxError"),
        (("--transformer", "own_rules:Picky"), "KeyError: 'least'"),
        (("--transformer", "own_rules:Picky", "--set", "least=abc"), "ValueError"),
        (("--transformer", "own_rules:Stubborn"), "Stubborn.create raised ZeroDivisionError"),
        (("--transformer", "own_rules:partial"), "the new value lacks value.max"),
        (("--transformer", "own_rules:misspelt"), "value.cuont, which is not a field"),
        (("--transformer", "own_rules:unfit"), ": the new value does not fit struct<"),
        (("--transformer", "own_rules:half"), "value.count is 0.5, and would be stored as 0"),
        (("--transformer", "own_rules:epoch"), "value.max is 1700000000.0, and would be stored as datetime"),
        (("--transformer", "own_rules:leaves"), "SystemExit at own_rules.py:23: 0"),
        (("--transformer", "leaving_rules:F"), "cannot be loaded: SystemExit"),
    ],
)
def test_mistakes_in_rules_and_ttls_are_explained(
    refuses: Refuses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str
) -> None:
    (tmp_path / "broken_rules.py").write_text("def F(:")
    (tmp_path / "leaving_rules.py").write_text("import sys; sys.exit()")
    (tmp_path / "own_rules.py").write_text(OWN_RULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    target = sample(LZ4, tmp_path)
    assert says in refuses((2, 5), target, "compact", target, "--engine", "local", *arguments)


OWN_RULES = """
from ttlsnap import Replace

class Picky:
    @classmethod
    def from_options(cls, options):
        int(options["least"])

class Stubborn:
    def create(self, state, clock):
        return 1 / 0

def partial(key, value):
    return Replace({"count": 2})

def half(key, value):
    return Replace({**value, "count": 0.5})

def epoch(key, value):
    return Replace({**value, "max": 1.7e9})

def leaves(key, value):
    raise SystemExit(0)

def misspelt(key, value):
    return Replace({**value, "cuont": 2})

def unfit(key, value):
    return Replace({**value, "count": "many"})
"""


@pytest.mark.slow
def test_code_in_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    for name in ("pyarrow", "typer", "numpy", "rich", "ttlsnap", "json", "lz4", "zstandard", "sitecustomize"):
        (target / f"{name}.py").write_text("open('it-ran', 'w').close(); raise SystemExit(77)")
    for command in (["inspect", ".", "--entries", "1"], ["compact", ".", *wreck.compacting(LZ4)]):
        done = subprocess.run([Path(sys.executable).with_name("ttlsnap"), *map(str, command)], cwd=target)
        assert done.returncode == 0
    assert not (target / "it-ran").exists()


def test_a_rollback_without_offsets_is_refused(refuses: Refuses, ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    ttlsnap("compact", target, *wreck.compacting(LZ4))
    for path in (target / "offsets").iterdir():
        path.unlink()
    assert refuses((2, 4), target, "rollback", target)
