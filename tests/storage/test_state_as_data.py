"""export, import, diff, explain, the sizes and the ledger give the same results in an object store as on a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ttlsnap.checkpoint.layout import LEDGERS
from ttlsnap.cli.app import run
from ttlsnap.transaction.rollback import rollback

from ..matrix import FULL
from ..samples import sample
from .commands import run_json
from .places import download, files_of, objects_of, upload

pytestmark = pytest.mark.slow

NAMES = ["agg-deltas-lz4-4.2", "rocksdb-changelog-3.5"]
TTL = ("--ttl", "7d", "--timestamp", "value.max")


def same(capsys: pytest.CaptureFixture[str], places: tuple[str, str], command: str, *words: str) -> Any:
    """Run a command that reads on both places, and return its result, which must be the same."""
    found = [lasting(run_json(capsys, command, place, *words)) for place in places]
    assert found[0] == found[1]
    return found[0]


def lasting(document: Any) -> Any:
    """Return a document without what differs between two places."""
    if isinstance(document, list):
        return [lasting(item) for item in document]
    if isinstance(document, dict):
        return {name: lasting(item) for name, item in document.items() if name not in ("target", "seconds")}
    return document


@pytest.mark.parametrize("name", NAMES if FULL else NAMES[1:])
def test_what_is_read_is_the_same_as_on_a_disk(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    local = sample(name, tmp_path)
    uri = upload(local, f"{place}/query/checkpoint")
    old = objects_of(uri)
    both = (uri, str(local))
    key = same(capsys, both, "inspect", "--entries", "1", "--age")["entries"][0]["key"]["key"]
    sizes = same(capsys, both, "inspect", "--sizes", *TTL)
    assert "sizes" in sizes
    assert same(capsys, both, "explain", "--key", f'"{key}"', *TTL)["found"] == 1
    assert same(capsys, both, "explain", "--key", f'"{key}"', "--ttl", "1h", "--timestamp", "@written")["found"] == 1
    assert run(["diff", uri, str(local)]) == 0
    assert objects_of(uri) == old


@pytest.mark.wide
@pytest.mark.parametrize("name", NAMES if FULL else NAMES[:1])
def test_an_export_in_the_store_is_imported_there(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    local = sample(name, tmp_path)
    uri = upload(local, f"{place}/query/checkpoint")
    old = objects_of(uri)
    exports = (f"{place}/exported", str(tmp_path / "exported"))
    exported = [
        run_json(capsys, "export", target, "--to", to) for target, to in zip((uri, str(local)), exports, strict=True)
    ]
    assert exported[0]["tables"] == exported[1]["tables"] != []

    def content(target: str) -> dict[str, str]:
        return objects_of(uri) if target == uri else files_of(local)

    for target, table in ((uri, exports[0]), (uri, exports[1]), (str(local), exports[0])):
        words = ("--from", table, "--mode", "replace", "--stopped", "--yes")
        before = content(target)
        report = run_json(capsys, "import", target, *words)
        assert report["published"]
        assert run(["diff", target, uri if target != uri else str(local)]) == 0
        capsys.readouterr()
        rollback(target, stopped=True)
        assert content(target) == before
    assert objects_of(uri) == old


def test_the_ledger_of_maintenance_is_in_the_store(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = sample("dedup-watermark-4.2", tmp_path)
    uri = upload(local, f"{place}/query/checkpoint")
    policy = tmp_path / "policy.toml"
    policy.write_text(
        "".join(
            f'[[target]]\npath = "{target}"\nstopped = true\nttl = "1s"\ntimestamp = "@written"\nmax_drop = 1.0\n'
            for target in (uri, local)
        )
    )
    results = run_json(capsys, "maintain", str(policy))["targets"]
    assert results[0]["totals"]["dropped"] == results[1]["totals"]["dropped"] > 0
    below = download(f"{uri}/{LEDGERS}", tmp_path / "ledgers"), local / LEDGERS
    ledgers = [{str(path.relative_to(folder)) for path in folder.rglob("*.ledger")} for folder in below]
    assert ledgers[0] == ledgers[1] != set()
    words = ("--ttl", "1s", "--timestamp", "@written", "--dry-run", "--engine", "local")
    dry = [run_json(capsys, "compact", target, *words)["stores"] for target in (uri, str(local))]
    assert dry[0] == dry[1]
