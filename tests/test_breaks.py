"""The faults of ``tests/breaks.py`` are in every folder of ttlsnap, and each can be put in."""

from __future__ import annotations

from pathlib import Path

import pytest

from .breaks import BREAKS, ROOT, folders_with_code, main


def test_every_folder_with_code_has_a_fault() -> None:
    assert {one.folder for one in BREAKS} == folders_with_code()
    assert len(BREAKS) >= 60


def test_the_code_of_each_fault_exists_once_and_its_tests_exist() -> None:
    wrong = []
    for one in BREAKS:
        file = ROOT / "ttlsnap" / one.file
        text = file.read_text()
        compile(text.replace(one.old, one.new), file, "exec")
        if text.count(one.old) != 1 or one.old == one.new or not all((ROOT / tests).exists() for tests in one.tests):
            wrong.append(one.what)
    assert wrong == []


def test_no_two_faults_are_the_same() -> None:
    assert len({(one.file, one.old, one.new) for one in BREAKS}) == len({one.what for one in BREAKS}) == len(BREAKS)


def test_the_list_names_every_fault_below_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == sorted(folders_with_code())
    assert sorted(line.strip().partition(" ")[2] for line in lines if line.startswith(" ")) == sorted(
        one.what for one in BREAKS
    )


def test_the_folder_of_a_fault_has_tests_of_its_own() -> None:
    names = {Path(one.tests[0]).parts[1] for one in BREAKS}
    assert names == {folder.partition("/")[0] for folder in folders_with_code()}
