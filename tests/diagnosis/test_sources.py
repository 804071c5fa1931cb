"""Offsets and logs of sources: damage is found in those of file sources, and other sources' content is left alone."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from ttlsnap import compact
from ttlsnap.diagnosis.logs import examine_logs
from ttlsnap.diagnosis.sources import examine_file_logs
from ttlsnap.errors import UnsupportedError
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers.keep import KeepTransformerFactory

from ..judge.processes import NEWEST
from ..judge.spark import Judge
from ..samples import bytes_of, sample
from .asked import doctor

LZ4 = "agg-deltas-lz4-4.2"
NINES = "9" * 4400


def offset(target: Path, line: str | None, *batches: int) -> None:
    """Set the source's offset in some batches to ``line``. With None, remove it."""
    for batch in batches:
        path = target / f"offsets/{batch}"
        path.write_text("\n".join([*path.read_text().split("\n")[:2], *([] if line is None else [line])]))
        path.with_name(f".{batch}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "line",
    [
        '{"logOffset":', "{", '{"', '{"topic":{"0":5}', '{"logOffset":5}{', '{"logOffset":"5"}', '{"logOffset":true}',
        '{"logOffset":1e30}', '{"logOffset":null}', '{"logOffset":05}', '{"logOffset":-5}', '{"logOffset":3}',
        f'{{"logOffset":{NINES}}}', "garbage", "-", '{"topic":{"0":5}}', "", None,
    ],
)  # fmt: skip
def test_an_invalid_offset_of_a_file_source_is_damage(line: str | None, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    offset(target, line, 6)
    found = doctor(target)
    assert (found.code, found.codes) == (1, ["damaged-log"])
    assert found.problem("damaged-log")["where"] == "offsets/6"
    assert "source 0" in found.problem("damaged-log")["message"]


def test_a_batch_that_was_begun_with_another_store_is_unknown(tmp_path: Path) -> None:
    target = sample("uncommitted-batch-4.2", tmp_path)
    begun = target / "offsets/4"
    begun.write_text(begun.read_text().replace("org.apache.spark.sql.execution.streaming", "com.vendor"))
    begun.with_name(".4.crc").unlink()
    found = doctor(target)
    assert (found.code, found.codes) == (3, ["unsupported"])
    assert found.problem("unsupported")["where"] == "offsets/4"
    before = bytes_of(target)
    with pytest.raises(UnsupportedError, match="names another class of the state store"):
        compact(str(target), [KeepTransformerFactory()], stopped=True)
    assert bytes_of(target) == before


@pytest.mark.parametrize("line", ["0:{", '0:{"logOffset":', '0:{"logOffset":2}', '../0:{"logOffset":4}'])
def test_an_invalid_offset_of_a_named_source_is_damage(line: str, tmp_path: Path) -> None:
    target = sample("offsets-v2-4.2", tmp_path)
    offset(target, line, 4)
    found = doctor(target)
    assert (found.code, found.codes) == (1, ["damaged-log"])


def test_a_missing_log_of_a_named_source_is_found(tmp_path: Path) -> None:
    target = sample("offsets-v2-4.2", tmp_path)
    (target / "sources/0/2").unlink()
    found = doctor(target)
    assert (found.code, found.codes) == (1, ["damaged-log"])
    assert found.problem("damaged-log")["where"] == "sources/0/2"


@pytest.mark.parametrize("line", ['{ "logOffset" : 5 }', '{"logOffset":5.0}'])
def test_an_offset_of_a_file_source_may_have_another_spelling(line: str, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    offset(target, line, 6)
    assert doctor(target).code == 0


def test_a_truncated_offset_of_an_uncommitted_batch_is_a_torn_offset(tmp_path: Path) -> None:
    target = sample("uncommitted-batch-4.2", tmp_path)
    assert doctor(target).codes == ["uncommitted-batch"]
    offset(target, '{"logOffset":', 4)
    found = doctor(target)
    assert (found.code, found.codes) == (1, ["torn-offset"])
    assert doctor(target, "--fix", "torn-offset", "--stopped").code == 0


@pytest.mark.parametrize(
    "line",
    [
        "garbage", "5", "-", "", "{topic=5}", "[1", '{"topic":{"0":5}}', '{"x": NaN}', '{"a":1,"a":2}', '{"a":"\t"}',
        f'{{"x":{NINES}}}', '{"a":' + "[" * 20_000 + "]" * 20_000 + "}", '{"logOffset":"5","of":"another"}',
    ],
)  # fmt: skip
def test_offsets_of_other_sources_are_not_checked(line: str, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    offset(target, line, *range(7))
    found = doctor(target)
    assert (found.code, found.codes) == (0, [])


@pytest.mark.parametrize(
    ("start", "end", "codes"),
    [("[", "]", []), ('{"a":[', "]}", []), ('{"a":[', "]", ["damaged-log"]), ('{"logOffset":[', "]}", ["damaged-log"])],
)
def test_a_very_long_offset_is_not_parsed(start: str, end: str, codes: list[str], tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    length = 8 << 20
    offset(target, "5", 5)
    offset(target, start + "[]," * (length // 3) + "[]" + end, 6)
    tracemalloc.start()
    try:
        found = examine_logs(open_directory(str(target)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [problem.code for problem in found.problems] == codes
    assert peak < (64 << 20) + 5 * length, "a read of a log makes room for 64 MB"


ENTRY = '{"path":"file:///in/00003.json","timestamp":1700000003000,"batchId":3}'


def _written(name: str, text: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        (folder / f".{name}.crc").unlink(missing_ok=True)
        (folder / name).write_bytes(text.encode("latin-1"))

    return do


def _torn(folder: Path) -> None:
    _written("5", (folder / "5").read_text()[:-20])(folder)


def _folder(folder: Path) -> None:
    (folder / "5").unlink()
    (folder / "5").mkdir()


def _compacted(text: str) -> Callable[[Path], None]:
    """Return a function that compacts the log as Spark does: one file for all up to 3, and older files stay."""

    def do(folder: Path) -> None:
        _written("2", "")(folder)
        (folder / "3").unlink()
        (folder / "3.compact").write_text(text)

    return do


@pytest.mark.parametrize(
    ("damage", "where"),
    [
        (_written("5", ""), "5"),
        (_torn, "5"),
        (_folder, "5"),
        (_written("0", "v1"), "0"),
        (_written("0", "v1\n"), "0"),
        (_written("0", "\0" * 99), "0"),
        (_written("0", ENTRY), "0"),
        (_written("3", f"v1\n{ENTRY}\n\n{ENTRY}"), "3"),
        (_written("3", f"v1\n{ENTRY[:-5]}\n{ENTRY}"), "3"),
        (_written("3", "v1\n" + ENTRY.replace("in", "\xff")), "3"),
        (_written("3", 'v1\n{"topic":{"0":5}}'), "3"),
        (_written("3", f"v1\n{ENTRY}{ENTRY}"), "3"),
        (_written(".3.crc", "crc\0\0\0\x02\0aaaa"), "3"),
        (_written("6", ""), "6"),
        (_compacted(f"v1\n{ENTRY}\n{ENTRY[:40]}"), "3.compact"),
    ],
)
def test_a_damaged_log_of_a_file_source_is_found(damage: Callable[[Path], None], where: str, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    damage(target / "sources/0")
    found = doctor(target)
    assert (found.code, found.codes) == (1, ["damaged-log"])
    assert found.problem("damaged-log")["where"] == f"sources/0/{where}"


@pytest.mark.parametrize(
    "change",
    [
        _written("6", f"v1\n{ENTRY}"),
        _written("3", f"v1\n{ENTRY}\n{ENTRY}\n"),
        _written("3", 'v1\n{"path": "file:///\xc3\xa9 \\\\ \\" x", "timestamp": 1, "batchId": 3}'),
        _written("x", "a stray"),
        _compacted(f"v1\n{ENTRY}\n{ENTRY}"),
    ],
)
def test_a_sound_log_of_a_file_source_is_not_a_problem(change: Callable[[Path], None], tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    change(target / "sources/0")
    found = doctor(target)
    assert (found.code, found.codes) == (0, [])


def test_a_source_log_of_an_unknown_version_is_unsupported(tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    _written("3", f"v2\n{ENTRY}")(target / "sources/0")
    found = doctor(target)
    assert (found.code, found.codes) == (3, ["unsupported"])


def test_a_source_log_is_read_line_by_line(tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    whole, endless = "v1" + f"\n{ENTRY}" * 100_000, "v1\n" + ENTRY[:-40] * 200_000
    for text, codes in ((whole, []), (endless, ["damaged-log"])):
        _written("3", text)(target / "sources/0")
        tracemalloc.start()
        try:
            found = list(examine_file_logs(open_directory(str(target)), {"0": 5}))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert [problem.code for problem in found] == codes
        assert peak < 4 << 20


def test_a_source_that_is_used_twice_has_one_log(judge: Judge, tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"
    judge.call_in(Path(__file__).parent, NEWEST, "twice.run", events=str(tmp_path / "events"), checkpoint=str(target))
    assert len((target / "offsets/0").read_text().splitlines()) == 5
    assert {path.name for path in (target / "sources").iterdir()} == {"0", "1"}
    assert doctor(target).code == 0
    (target / "sources/0/0").unlink()
    assert doctor(target).codes == ["damaged-log"]


def test_a_lost_log_of_a_source_is_found(tmp_path: Path) -> None:
    target = sample("join-4.2", tmp_path)
    offset(target, '{"logOffset":4}\n{"logOffset":5}', 5)
    shutil.rmtree(target / "sources/1")
    assert "damaged-log" in doctor(target).codes
