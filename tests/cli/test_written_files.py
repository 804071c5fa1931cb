"""No command replaces a file that it reads, or writes two outputs to one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..samples import sample
from .running import runner

CHECK = ("check", "a.json", "b.json")
FUNCTION = ("contract", "jobs:build", "--schema", "s=events.ddl")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a folder with an input of each kind, and links to them."""
    monkeypatch.chdir(tmp_path)
    sample("agg-deltas-lz4-4.2", tmp_path).rename(tmp_path / "ck")
    run = runner(capsys)
    for name in ("a.json", "b.json"):
        assert run("contract", "ck", "--output", name).code == 0
    Path("p.toml").write_text('[[target]]\npath = "ck"\nttl = "7d"\ntimestamp = "value.max"\nstopped = true\n')
    assert run("maintain", "p.toml", "--engine", "local", "--plan-out", "pl.json").code == 0
    for name in (".ttlsnap-ignore.toml", "ig.toml", "events.ddl", "spark.conf"):
        Path(name).write_text("")
    Path("jobs.py").write_text("def keep(key, value):\n    return True\n")
    Path("code.toml").write_text('[[target]]\npath = "ck"\ntransformer = "jobs:keep"\n')
    Path("link").symlink_to("p.toml")
    Path("hard").hardlink_to("a.json")
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {path: path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("maintain", "p.toml", "--metrics", "p.toml"), "--metrics would replace p.toml"),
        (("maintain", "p.toml", "--metrics", "link"), "--metrics would replace p.toml"),
        (("maintain", "p.toml", "--plan-out", "./p.toml"), "--plan-out would replace p.toml"),
        (("maintain", "p.toml", "--apply", "pl.json", "--metrics", "pl.json"), "--metrics would replace pl.json"),
        (("maintain", "code.toml", "--metrics", "jobs.py"), "jobs.py, which this command reads"),
        (("maintain", "p.toml", "--metrics", "m", "--report", "html=m"), "have the same file"),
        ((*CHECK, "--report", "junit=a.json"), "--report junit=a.json would replace a.json"),
        ((*CHECK, "--report", "sarif=hard"), "--report sarif=hard would replace a.json"),
        ((*CHECK, "--report", "json=.ttlsnap-ignore.toml"), "would replace .ttlsnap-ignore.toml"),
        ((*CHECK, "--ignore-file", "ig.toml", "--report", "github=ig.toml"), "would replace ig.toml"),
        ((*CHECK, "--report", "text=x", "--report", "html=x"), "have the same file"),
        (("check", "ck", "b.json", "--report", "junit=ck/metadata"), "junit=ck/metadata is inside ck"),
        (("contract", "ck", "--output", "ck/metadata"), "--output ck/metadata is inside"),
        ((*FUNCTION, "--output", "jobs.py"), "--output jobs.py would replace jobs.py"),
        ((*FUNCTION, "--output", "events.ddl"), "--output events.ddl would replace events.ddl"),
        ((*FUNCTION, "--properties-file", "spark.conf", "--output", "spark.conf"), "would replace spark.conf"),
        (("contract", "--script", "jobs.py", "--output", "jobs.py"), "would replace jobs.py"),
        (("migrate", "ck", "--to", "a.json", "--plan-out", "a.json"), "--plan-out would replace a.json"),
        (("migrate", "ck", "--from", "a.json", "--to", "b.json", "--plan-out", "hard"), "would replace a.json"),
        (("migrate", "ck", "--transformer", "jobs:keep", "--plan-out", "jobs.py"), "would replace jobs.py"),
        (("migrate", "ck", "--partitions", "3", "--plan-out", "ck/metadata"), "--plan-out is inside"),
        (("inspect", "ck", "--sizes", "--metrics", "m", "--report", "html=m"), "have the same file"),
    ],
)
def test_an_output_that_is_an_input_or_another_output_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    before = contents(folder)
    code, out, err = runner(capsys, *words)()
    assert (code, out) == (2, "")
    assert told in err
    assert contents(folder) == before


def test_devices_can_be_inputs_and_outputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*CHECK, "--ignore-file", "/dev/null", "--report", "junit=/dev/null", "--report", "sarif=/dev/null")
    assert runner(capsys, *words)().code == 0


def test_a_text_that_is_too_long_for_a_path_is_not_a_crash(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f'[on_failure]\ncommand = ["notify", "{"a" * 5000}:b"]\n'
    Path("p.toml").write_text(Path("p.toml").read_text() + command)
    assert runner(capsys, "maintain", "p.toml", "--plan", "--engine", "local")().code == 0
