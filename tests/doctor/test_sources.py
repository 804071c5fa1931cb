"""What sources say they have read: damage is found, and what only another kind of source understands is left alone."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from ttlsnap.diagnosis.logs import examine_logs
from ttlsnap.filesystem import open_directory

from ..samples import sample
from .asked import doctor

LZ4 = "agg-deltas-lz4-4.2"
NINES = "9" * 4400


def offset(target: Path, line: str | None, *batches: int) -> None:
    """Have the one source's offset at some batches be ``line``; with None there is none."""
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
def test_a_file_source_s_offset_that_is_none(line: str | None, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    offset(target, line, 6)
    found = doctor(target)
    assert (found.code, found.codes) == (1, ["damaged-log"])
    assert found.problem("damaged-log")["where"] == "offsets/6"
    assert "source 0" in found.problem("damaged-log")["message"]


@pytest.mark.parametrize("line", ['{ "logOffset" : 5 }', '{"logOffset":5.0}'])
def test_a_file_source_s_offset_may_be_written_in_other_ways(line: str, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    offset(target, line, 6)
    assert doctor(target).code == 0


def test_a_file_source_s_offset_that_broke_off_in_a_batch_that_was_not_committed(tmp_path: Path) -> None:
    target = sample("uncommitted-batch-4.2", tmp_path)
    assert doctor(target).codes == ["uncommitted-batch"]
    offset(target, '{"logOffset":', 4)
    found = doctor(target)
    assert (found.code, found.codes) == (1, ["torn-offset"])
    assert doctor(target, "--fix", "torn-offset", "--quiet-period", "0").code == 0


@pytest.mark.parametrize(
    "line",
    [
        "garbage", "5", "-", "", "{topic=5}", "[1", '{"topic":{"0":5}}', '{"x": NaN}', '{"a":1,"a":2}', '{"a":"\t"}',
        f'{{"x":{NINES}}}', '{"a":' + "[" * 20_000 + "]" * 20_000 + "}", '{"logOffset":"5","of":"another"}',
    ],
)  # fmt: skip
def test_what_another_source_writes_is_its_own(line: str, tmp_path: Path) -> None:
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
