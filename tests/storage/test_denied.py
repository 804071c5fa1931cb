"""A store that denies all requests while a command publishes: the message says what happened, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ttlsnap import export, history, recover
from ttlsnap.checkpoint import layout
from ttlsnap.storage.open import open_directory

from ..matrix import FULL, rotating
from ..samples import sample
from .denied import COMMANDS, Ended, after, change_of, denied_from, ended
from .late import copy_to
from .places import objects_of, upload
from .proxy import Proxy, Request, fine

pytestmark = [pytest.mark.parametrize("store", ["moto"], indirect=True), pytest.mark.slow]

MOMENTS: dict[str, tuple[Callable[[], Callable[[Request], bool]], str]] = {
    "the journal is written": (lambda: change_of("/journal.json"), "and Spark can start"),
    "the fence is created": (lambda: change_of("/checkpoint/offsets/"), "and Spark may refuse to start"),
    "the first file is moved": (lambda: change_of("/backup/state/"), "and Spark does not start"),
    "the batch is planned": (lambda: change_of("/checkpoint/offsets/", 2), "The new state is in place."),
    "the journal is closed": (lambda: change_of("/journal.json", 2), "and Spark can start"),
}


@pytest.mark.parametrize("moment", rotating(list(MOMENTS), 2, "denied requests"))
def test_a_run_that_cannot_be_undone_says_that_it_is_interrupted(
    proxy: Proxy, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/checkpoint")
    is_it, told = MOMENTS[moment]
    end = ended(proxy, capsys, uri, COMMANDS["compact"].on(uri, tmp_path), denied_from(is_it()))
    assert end.code == 5
    assert " is interrupted, " in end.err and told in end.err
    assert end.err.endswith(f"After fixing the error, run: ttlsnap recover {uri}\n")
    assert "journal.json" not in end.first or "journal" in moment


@pytest.mark.wide
@pytest.mark.parametrize("name", COMMANDS if FULL else ["compact", "doctor --fix", "rollback", "recover --undo"])
def test_a_message_says_what_the_checkpoint_needs_after_an_error_at_any_request(
    proxy: Proxy, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    command, first = COMMANDS[name], upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/first")
    export(first, str(tmp_path / "state"))

    def begin() -> str:
        uri = copy_to(first, f"{bucket}/checkpoint")
        command.before(proxy, uri)
        return uri

    uri = begin()
    words = command.on(uri, tmp_path / "state")
    well = ended(proxy, capsys, uri, words, fine)
    assert well.code == 0, well
    wrong = []
    # The first request once had no advice.
    for at in rotating(range(1, well.requests + 1), 5, f"denied requests of {name}", pinned=lambda at: at == 1):
        begin()
        end = ended(proxy, capsys, uri, words, denied_from(partial(has_come, proxy, at)))
        if end.code == 5 and not tells_well(end, uri, is_recovery=name.startswith("recover")):
            wrong.append((at, end))
        assert recover(uri).run == end.open_run
    assert not wrong, wrong


def has_come(proxy: Proxy, at: int, request: Request) -> bool:
    """Return whether the request with a number has arrived."""
    return len(proxy.seen) >= at


def tells_well(end: Ended, uri: str, *, is_recovery: bool) -> bool:
    """Return whether the message fits what the command has left."""
    if end.open_run is None and not end.is_fenced:
        return "is interrupted" not in end.err
    says_it = f"Run {end.open_run} is interrupted, and " in end.err or is_recovery
    does_not_start = "Spark does not start" in end.err or "Spark may refuse to start" in end.err
    return says_it and (does_not_start or not end.is_fenced) and f"run: ttlsnap recover {uri}\n" in end.err


def test_a_repair_that_is_published_stays_although_doctor_cannot_look_again(
    proxy: Proxy, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri, command = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/checkpoint"), COMMANDS["doctor --fix"]
    command.before(proxy, uri)
    closed = after(change_of("/journal.json", 2))
    end = ended(proxy, capsys, uri, command.on(uri, tmp_path), denied_from(closed))
    (run,) = history(uri)
    assert (end.code, end.open_run, run.status) == (5, None, "done")
    assert end.err.endswith(
        f"The repair was published as run {run.run}, and stays. To look again, run doctor without --fix.\n"
    )


def test_recover_removes_what_an_earlier_one_could_not_remove_after_the_undo(
    proxy: Proxy, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri, command = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/checkpoint"), COMMANDS["recover --undo"]
    old = objects_of(uri)
    command.before(proxy, uri)
    (run,) = history(uri)
    closed = after(change_of("/journal.json", 2))  # the first change is the takeover
    end = ended(proxy, capsys, uri, command.on(uri, tmp_path), denied_from(closed))
    files, folder = open_directory(uri), layout.run_directory(run.run)
    assert f"Run {run.run} was undone, so Spark can start.\nNothing is lost. After fixing " in end.err
    assert "staged-2" in [info.name for info in files.list(folder)]
    assert recover(uri).outcome == "nothing"
    assert {info.name for info in files.list(folder)} <= {"journal.json", "report.json"}
    assert objects_of(uri) == old
