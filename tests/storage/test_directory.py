"""The promises of every ``Directory``, on a disk, in an object store and in HDFS."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import pytest

from ttlsnap.errors import RefusedError, StorageError
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.open import open_directory
from ttlsnap.storage.uris import is_within

from .conftest import STORES
from .stores import Store


@pytest.fixture(params=["disk", "hdfs", *STORES])
def files(request: pytest.FixtureRequest, tmp_path: Path, store_of: Callable[[str], Store]) -> Directory:
    if request.param == "disk":
        (tmp_path / "in").mkdir()
        return open_directory(str(tmp_path / "in"))
    if request.param == "hdfs":
        return open_directory(f"{request.getfixturevalue('hdfs')}/{token_hex(6)}/some/where")
    return open_directory(f"{store_of(request.param).new_bucket()}/some/where")


def put(files: Directory, path: str, data: bytes = b"x") -> None:
    files.mkdirs(path.rpartition("/")[0])
    files.replace(path, data)


def test_written_files_are_listed_and_read(files: Directory) -> None:
    assert files.list("") == []
    assert files.stat("a/b") is None
    for path in ("a/b/2", "a/b/1.delta", "a/c", "other"):
        put(files, path, path.encode())
    assert [(info.name, info.is_dir) for info in files.list("")] == [("a", True), ("other", False)]
    assert [(info.name, info.size) for info in files.list("a/b")] == [("1.delta", 11), ("2", 5)]
    assert [info.name for info in files.list("a/b", (".delta",))] == ["1.delta"]
    assert [info.name for info in files.list("a")] == ["b", "c"]
    assert files.list("nowhere") == files.list("a/c") == []
    found, folder, root = files.stat("a/b/2"), files.stat("a/b"), files.stat("")
    assert found is not None and folder is not None and root is not None
    assert (found.name, found.size, found.is_dir) == ("2", 5, False)
    assert abs(found.mtime_ns - time.time_ns()) < 5e9
    assert folder.is_dir and root.is_dir
    assert files.stat("a/b/2x") is None
    assert files.read("a/b/2", 5) == b"a/b/2"
    with pytest.raises(StorageError, match=r"a/b/2 is longer than 4 bytes"):
        files.read("a/b/2", 4)


def test_special_characters_in_names_are_preserved(files: Directory) -> None:
    names = ["1_0.delta", "a b", "ä", "50%", "%41", "x=1", "a+b", "[1]", "#", "~", "{q}", "a&b;c"]
    for name in names:
        put(files, f"d/{name}", name.encode())
    assert [info.name for info in files.list("d")] == sorted(names)
    for name in names:
        assert files.read(f"d/{name}", 10) == name.encode()
    files.mkdirs("e")
    for name in names:
        files.rename(f"d/{name}", f"e/{name}")
    assert [info.name for info in files.list("e")] == sorted(names)


def test_a_file_is_read_from_any_position(files: Directory) -> None:
    data = bytes(range(256)) * 80_000  # more than two pieces
    with files.writer("large") as file:
        for begin in range(0, len(data), 3_000_000):
            file.write(data[begin : begin + 3_000_000])
    with files.open("large") as file:
        assert file.read() == data
        assert file.read(1) == b""
        file.seek(10_000_001)
        assert file.read(5) == data[10_000_001:10_000_006]
        file.seek(-3, 2)
        assert (file.tell(), file.read()) == (len(data) - 3, data[-3:])
    put(files, "empty", b"")
    with files.open("empty") as file:
        assert (file.read(), file.read(3)) == (b"", b"")
    with pytest.raises(StorageError, match=r"cannot open .*/missing"):
        files.open("missing")
    with pytest.raises(StorageError, match=r"cannot read .*/missing|cannot open .*/missing"):
        files.read("missing", 10)


def test_create_never_replaces_a_file(files: Directory) -> None:
    files.mkdirs("offsets")
    assert files.create("offsets/7", b"one")
    assert not files.create("offsets/7", b"another")
    assert files.read("offsets/7", 10) == b"one"


def test_a_failed_write_leaves_no_file(place: str) -> None:
    files = open_directory(place)
    with pytest.raises(ZeroDivisionError), files.writer("new") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert files.stat("new") is None


def test_files_are_renamed_removed_and_brought_in(files: Directory, tmp_path: Path) -> None:
    put(files, "a/1", b"one")
    put(files, "b/2", b"two")
    files.rename("a/1", "b/1")
    assert (files.stat("a/1"), files.read("b/1", 3)) == (None, b"one")
    files.remove("b/2")
    files.remove("b/2")
    assert [info.name for info in files.list("b")] == ["1"]
    outside = tmp_path / "outside"
    outside.write_bytes(b"brought")
    files.move_in(str(outside), "b/3")
    assert (files.read("b/3", 10), outside.exists()) == (b"brought", False)
    put(files, "bb/1")
    files.remove_tree("b")
    files.remove_tree("b")
    assert files.stat("b") is None
    assert files.stat("bb/1") is not None
    files.mkdirs("c/d")
    for folder in ("bb", "c", "c/d", "c", "none"):
        files.remove_folder(folder)
    assert files.stat("bb/1") is not None
    assert files.stat("c") is None
    with pytest.raises(StorageError, match="cannot rename"):
        files.rename("gone", "there")


@pytest.mark.parametrize("path", ["../other", "/etc/passwd", "a/../../b", "a\0b"])
def test_paths_that_lead_outside_are_refused(files: Directory, path: str) -> None:
    for work in (files.stat, files.list, files.open, files.remove, files.remove_tree):
        with pytest.raises(RefusedError, match="leads outside"):
            work(path)
    with pytest.raises(RefusedError, match="leads outside"):
        files.replace(path, b"")


def test_reading_fails_if_the_object_was_replaced(bucket: str) -> None:
    files = open_directory(bucket)
    files.replace("a", b"1" * (20 << 20))
    with files.open("a") as file:
        file.read(1)
        files.replace("a", b"2" * (20 << 20))
        file.seek(12 << 20)
        with pytest.raises(StorageError, match=r"cannot read .*://.*/a"):
            file.read(1)


def test_complete_rename_removes_the_source_of_a_finished_copy(bucket: str) -> None:
    files = open_directory(bucket)
    files.replace("staged", b"new")
    files.replace("place", b"new")
    files.complete_rename("staged", "place")
    assert (files.stat("staged"), files.read("place", 3)) == (None, b"new")
    files.replace("staged", b"NEW")
    files.complete_rename("staged", "place")  # of the same length, but not a copy
    files.complete_rename("place", "nowhere")
    assert (files.read("staged", 3), files.read("place", 3)) == (b"NEW", b"new")


def test_special_characters_in_uris_are_taken_literally(bucket: str) -> None:
    for name in ("a b", "50%", "%41", "a?b", "a#b", "ä"):
        files = open_directory(f"{bucket}/{name}/")
        files.replace("x", name.encode())
        assert files.root == f"{bucket}/{name}"
        assert files.read("x", 10) == name.encode()
    assert [info.name for info in open_directory(bucket).list("")] == ["%41", "50%", "a b", "a#b", "a?b", "ä"]


def test_a_directory_is_within_another_by_any_scheme() -> None:
    for inner, outer, wanted in (
        ("s3a://b/x/y", "s3://b/x", True),
        ("s3://b//x/", "s3a://b/x", True),
        ("s3://b/xy", "s3://b/x", False),
        ("s3://other/x/y", "s3://b/x", False),
        ("s3://b/x", "s3://b", True),
        ("gs://b/x/y", "s3://b/x", False),
        ("/x/y", "/x", True),
        ("/xy", "/x", False),
        ("/x", "s3://b", False),
    ):
        assert is_within(inner, outer) is wanted, (inner, outer)


def test_slashes_in_uris_count_once(bucket: str) -> None:
    open_directory(f"{bucket}//a//b/").replace("x", b"1")
    assert open_directory(f"{bucket}/a/b").read("x", 10) == b"1"


# An interrupt that comes while Python calls back for a weak reference cannot be raised, so pytest would report it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_awaits_running_work_after_a_failure_and_starts_no_more(bucket: str) -> None:
    # This also holds if the user interrupts several times.
    begun: list[int] = []
    ended: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 0:
            raise ZeroDivisionError
        for interrupt in interrupts:  # on a busy machine, they come late
            interrupt.join()
        time.sleep(0.3)
        ended.append(number)
        return number

    files = open_directory(bucket)
    interrupts = [threading.Timer(after, _thread.interrupt_main) for after in (1, 1.2)]
    for timer in interrupts:
        timer.start()
    with pytest.raises(ZeroDivisionError):
        each(files, work, range(100))  # all of them are submitted before the first interrupt
    assert 1 < len(begun) < 100
    assert set(begun) == {0, *ended}
    assert each(files, lambda number: -number, range(1000)) == [-number for number in range(1000)]


def test_now_is_the_time_of_the_store(place: str) -> None:
    files = open_directory(place)
    assert abs(files.now_ns() - time.time_ns()) < 5e9
    assert files.list("_ttlsnap") == []
