"""The pages are right: transcripts, Python examples, links, and names of files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow.dataset import dataset

from ttlsnap.cli.app import run
from ttlsnap.contract import contract_of_checkpoint

from ..samples import sample
from .transcripts import PAGES, ROOT, blocks, replayed, settled, with_files

_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_transcripts_show_the_current_output(page: Path) -> None:
    for block in blocks(page):
        assert settled(block) == settled(replayed(block)), "python -m tests.docs.transcripts writes them anew"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_show_the_current_files(page: Path) -> None:
    text = page.read_text()
    assert text == with_files(text), "python -m tests.docs.transcripts writes them anew"


def test_the_page_about_ci_shows_the_job_of_gitlab() -> None:
    assert (ROOT / "examples/gitlab/gitlab-ci.yml").read_text() in (ROOT / "docs/check.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "shown"),
    [("picture", "compact"), pytest.param("dashboard", "dashboard", marks=pytest.mark.wide)],  # needs Prometheus
)
def test_a_picture_shows_the_current_output(script: str, shown: str) -> None:
    # In a process of its own, because an active Spark session in this one would change the engine.
    picture = ROOT / f"docs/{script}.py"
    draw = f"import runpy; print(runpy.run_path({str(picture)!r})['draw']())"
    drawn = subprocess.run([sys.executable, "-c", draw], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    stored = (ROOT / f"docs/images/{shown}.svg").read_text()
    assert _text(stored) == _text(drawn), f"python docs/{script}.py draws it again"


def _text(svg: str) -> str:
    """Return the text of a picture without its layout, which depends on the version of Rich."""
    return re.sub(r"<[^>]*>|\s|&#160;", "", svg[svg.find("</defs>") + 1 :])


def test_the_readme_has_transcripts() -> None:
    assert "dropped" in "".join(blocks(ROOT / "README.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_existing_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link
            assert not any(part.startswith(".") for part in Path(link).parts if part != ".."), "it is not on the site"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    for name in re.findall(
        r"`((?:ttlsnap|cli|transformers|tests|docs|benchmarks|sample_checkpoints)/[\w./-]+)`", page.read_text()
    ):
        assert (ROOT / name).exists(), name


def test_the_library_example_runs(tmp_path: Path) -> None:
    sample("agg-deltas-lz4-4.2", tmp_path).rename(tmp_path / "ck")
    (tmp_path / "new.json").write_text(contract_of_checkpoint(str(tmp_path / "ck")).dumps())
    code = "".join(_PYTHON.findall((ROOT / "docs/library.md").read_text()))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    fields, dropped, published, undone, migrated, verdict = done.stdout.splitlines()
    assert fields == "['key.key', 'value.max', 'value.count', 'value.sum']"
    assert re.fullmatch(r"[1-9]\d* of 480", dropped)
    assert (published, undone, migrated, verdict) == ("True True", "True", "480 {}", "as_is None")


def test_the_transformers_of_the_page_work_as_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    for code in _PYTHON.findall((ROOT / "docs/transformers.md").read_text()):
        (tmp_path / code.splitlines()[0].removeprefix("# ")).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    quick = ("--engine", "local", "--parallelism", "1", "--stopped", "--yes", "--max-drop", "100%")

    def entries() -> list[dict[str, int]]:
        from ttlsnap import inspect

        return [entry["value"] for entry in inspect(str(target), entries=1000).samples or []]

    before = entries()
    assert run(["compact", str(target), "--transformer", "rules:cap_counts", *quick]) == 0
    assert sorted(v["count"] for v in entries()) == sorted(min(v["count"], 2) for v in before)
    assert max(v["count"] for v in before) > 2
    below = ("--transformer", "batch_rules:DropBelowFactory", "--set", "least=10")
    assert run(["compact", str(target), *below, *quick]) == 0
    assert len(entries()) == sum(v["sum"] >= 10 for v in before) < len(before)


@pytest.mark.parametrize(("name", "age"), [("visits-4.2", "7d"), ("alarms-4.2", "3d")])
def test_the_options_for_whole_keys_drop_every_entry_of_a_key(
    name: str, age: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys are those of the variable ``last``. One sample has a list beside it, the other a list and a map."""
    monkeypatch.chdir(tmp_path)
    sample(name, tmp_path)
    (given,) = re.findall(
        r"ttlsnap compact ck --state profile (.*?) --dry-run", (ROOT / "docs/operators.md").read_text(), re.DOTALL
    )
    rule = given.replace("\\\n", " ").replace("value.seen:ms", "value.seen:s").replace("30d", age).split()
    if name != "alarms-4.2":
        rule = rule[: rule.index("--timers")]
    assert rule[-2:] in (["--timers", "follow"], ["--variables", "follow"])
    chosen = ["--state", "last", "--timestamp", "value.seen:s", "--where", f"age > {age}", "--columns", "key"]
    assert run(["export", name, *chosen, "--to", "old"]) == 0
    before = keys_of(name, "before")
    assert run(["compact", name, "--state", "last", *rule, "--stopped", "--engine", "local"]) == 0
    old = {row["key"]["key"] for row in dataset("old/0.last").to_table().to_pylist()}
    after = keys_of(name, "after")
    assert old and len(before) > 1
    assert after == {table: keys - old for table, keys in before.items()}


def keys_of(checkpoint: str, place: str) -> dict[str, set[str]]:
    """Return the keys in each state."""
    assert run(["export", checkpoint, "--to", place]) == 0
    tables = [folder for folder in Path(place).iterdir() if folder.is_dir()]
    return {folder.name: {row["key"]["key"] for row in dataset(folder).to_table().to_pylist()} for folder in tables}
