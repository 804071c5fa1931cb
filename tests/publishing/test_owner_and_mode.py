"""New files have the owner, group and mode of the old files, for every user and umask."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ttlsnap import LocalEngine, compact, rollback
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..cli.running import Ttlsnap
from ..compaction.stories import BATCHES, MORE, drop_expired, rocksdb, settled, unwanted
from ..damage.confined import Confinement
from ..judge.processes import NEWEST, JudgeError
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL
from ..samples import COMPACTABLE, bytes_of, sample
from .hosts import Host, moves_of
from .owners import NOBODY, THEIRS, Owned, give, kinds, make_reachable, owned, owners, require_root, umask
from .trees import copy

GROUP = 4321


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Yield Spark as another user with umask 077, so that nobody else may read its files."""
    require_root()
    try:
        THEIRS.python(NEWEST)
    except JudgeError as error:
        pytest.skip(str(error))
    with Judge(tmp_path_factory.mktemp("theirs"), THEIRS) as judge:
        yield judge


@pytest.fixture(scope="module")
def nobody() -> Iterator[Confinement]:
    """Yield a process that is not root."""
    require_root()
    confined = Confinement(user=NOBODY)
    yield confined
    confined.close()


@pytest.fixture
def reachable(tmp_path: Path) -> Path:
    """Return a folder that other users can reach."""
    return make_reachable(tmp_path)


def compacting(target: Path, *options: str | Path) -> list[str | Path]:
    """Return the command that drops some entries of a sample, and keeps others."""
    words = ["--ttl", "2d", "--timestamp", COMPACTABLE[target.name], "--engine", "local", "--stopped", "--yes"]
    return ["compact", target, *words, *options]


PRIVATE = ({Owned(NOBODY, NOBODY, "0o600")}, {Owned(NOBODY, NOBODY, "0o700")})


@pytest.mark.wide
@pytest.mark.parametrize(
    "query",
    [rocksdb("agg_update", changelog=False), Query(), rocksdb("agg_update", changelog=True)][: 3 if FULL else 1],
    ids=["rocksdb", "hdfs", "changelog"][: 3 if FULL else 1],
)
def test_spark_restarts_as_its_user_on_files_that_root_wrote(theirs: Judge, query: Query) -> None:
    layout = "snapshot" if query.provider == "rocksdb" and not query.changelog else "both"
    written = theirs.write(query, BATCHES, layout=layout)
    settled(written.path)
    assert kinds(written.path) == PRIVATE
    before = owners(written.path)
    new = written.path.with_name(f"{written.path.name}-new")
    report = drop_expired(written.path, query, output=new)
    assert report.totals.dropped > 0 and not report.warnings
    assert kinds(new) == PRIVATE
    assert owners(written.path) == before

    drop_expired(written.path, query)
    assert kinds(written.path) == PRIVATE
    rollback(str(written.path), stopped=True)
    assert kinds(written.path) == PRIVATE
    assert {path: owner for path, owner in owners(written.path).items() if not path.startswith("_ttlsnap")} == before
    drop_expired(written.path, query)
    assert kinds(written.path) == PRIVATE

    for checkpoint in (theirs.at(written, new), written):
        model = checkpoint.expected
        assert model.drop(unwanted(query)) == report.totals.dropped
        assert theirs.restart(checkpoint, MORE) == checkpoint.expected.run(MORE)
        assert kinds(checkpoint.path) == PRIVATE


MODES = [(0o644, 0o755), (0o660, 0o2770), (0o600, 0o700)]
UMASKS = [
    (name, *modes, mask)
    for name in ("agg-snapshot-zstd-4.1", "rocksdb-4.2", "rocksdb-changelog-3.5")
    for modes in MODES
    for mask in (0o077, 0o000)
]
SLICE = [("agg-snapshot-zstd-4.1", 0o644, 0o755, 0o077), ("rocksdb-4.2", 0o660, 0o2770, 0o000)]


@pytest.mark.wide
@pytest.mark.parametrize(("name", "files", "folders", "mask"), UMASKS if FULL else SLICE)
def test_the_umask_does_not_change_owners_and_modes(
    ttlsnap: Ttlsnap, reachable: Path, name: str, files: int, folders: int, mask: int
) -> None:
    require_root()
    target = give(sample(name, reachable), NOBODY, GROUP, files=files, folders=folders)
    wanted = ({Owned(NOBODY, GROUP, oct(files))}, {Owned(NOBODY, GROUP, oct(folders))})
    copy = reachable / "above" / "copy"
    for argv in (
        compacting(target, "--output", copy),
        compacting(target),
        ["rollback", target, "--stopped"],
        compacting(target),
        ["history", target, "--prune", "--yes"],
        ["migrate", target, "--partitions", "5", "--stopped", "--yes"],
        ["migrate", target, "--partitions", "1", "--stopped", "--yes"],
        ["rollback", target, "--stopped"],
    ):
        with umask(mask):
            assert ttlsnap(*argv).code == 0
        assert kinds(target) == wanted, argv
    assert kinds(copy) == wanted
    assert owned(copy.parent) == Owned(NOBODY, GROUP, oct(folders))


def test_killed_and_recovered_runs_keep_owners_and_modes(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    require_root()
    name = "agg-snapshot-zstd-4.1"
    target = give(sample(name, tmp_path), NOBODY, GROUP, files=0o640, folders=0o750)
    wanted = ({Owned(NOBODY, GROUP, "0o640")}, {Owned(NOBODY, GROUP, "0o750")})
    twin = copy(target, tmp_path / "twin" / name)
    ttlsnap(*compacting(twin))
    staged, moved = moves_of(twin)
    with Host(*compacting(target), at=staged + moved // 2, elsewhere=False) as killed:
        killed.kill()
    assert list(target.glob("_ttlsnap/runs/*/journal.json"))
    assert kinds(target, scratch=False) == wanted
    with umask(0o077):
        assert ttlsnap("recover", target).code == 0
    assert kinds(target) == wanted


def test_each_new_file_gets_the_owner_of_the_file_that_it_replaces(tmp_path: Path) -> None:
    # The owners of partitions can differ, for example if several users have run the query.
    require_root()
    name = "agg-snapshot-zstd-4.1"
    target = give(sample(name, tmp_path), NOBODY, GROUP, files=0o640, folders=0o750)
    for number, path in enumerate(sorted(target.glob("state/0/[0-9]*"))):
        for file in path.iterdir():
            os.chown(file, 1000 + number, GROUP)
            if file.is_file():
                file.chmod(0o600 + number * 0o010)
    before = owners(target)
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration("2d")), COMPACTABLE[name])
    report = compact(str(target), [factory], engine=LocalEngine(1), stopped=True)
    published = json.loads((target / f"_ttlsnap/runs/{report.run}/journal.json").read_text())["published"]
    assert len(published) > 1
    for facts in published:
        assert owned(target / facts["path"]) == before[facts["path"]], facts


@pytest.mark.parametrize("name", ["agg-snapshot-zstd-4.1", "rocksdb-4.2"])
@pytest.mark.parametrize(
    ("owner", "group", "whom"), [(0, NOBODY, "root"), (NOBODY, 0, "nobody"), (1234567, NOBODY, "user 1234567")]
)
def test_a_user_who_may_not_set_owners_is_refused(
    nobody: Confinement, reachable: Path, name: str, owner: int, group: int, whom: str
) -> None:
    # The user is refused although all modes allow writing.
    target = give(sample(name, reachable), owner, group, files=0o666, folders=0o777)
    before, bytes_before = owners(target), bytes_of(target)
    dry = nobody.run(*compacting(target), "--dry-run")
    assert dry.code == 0 and f"would be refused now: the files in {target}" in " ".join(dry.err.split()), dry
    refused = nobody.run(*compacting(target))
    assert refused.code == 4, refused
    told = " ".join(refused.err.split())
    assert f"belong to {whom}" in told and f"Run ttlsnap as {whom}, or as root" in told
    assert "Nothing was changed" in told
    assert (owners(target), bytes_of(target)) == (before, bytes_before)


@pytest.mark.parametrize("at", ["offsets", "state/0/1"])
def test_one_file_of_another_user_is_enough_for_a_refusal(nobody: Confinement, reachable: Path, at: str) -> None:
    name = "agg-snapshot-zstd-4.1"
    target = give(sample(name, reachable), NOBODY, NOBODY, files=0o666, folders=0o777)
    newest = max((path for path in (target / at).iterdir() if path.is_file()), key=lambda path: path.stat().st_mtime_ns)
    for path in (target / at).iterdir():
        os.utime(path, (0, 0) if path != newest else None)
        os.chown(path, 0 if path == newest or at != "offsets" else NOBODY, NOBODY)
    before, bytes_before = owners(target), bytes_of(target)
    refused = nobody.run(*compacting(target))
    assert refused.code == 4 and f"the files in {target / at} belong to root" in " ".join(refused.err.split()), refused
    assert (owners(target), bytes_of(target)) == (before, bytes_before)


@pytest.mark.parametrize(
    ("files", "folders", "above", "wanted"),
    [
        (0o644, 0o755, 0o700, 0o600),
        (0o640, 0o750, 0o755, 0o640),
        (0o644, 0o755, 0o755, 0o644),
        (0o600, 0o700, 0o755, 0o600),
        (0o600, 0o755, 0o755, 0o600),
    ][: 5 if FULL else 1],
)
@pytest.mark.parametrize("receiver", ["folder", "table", "copy"])
def test_copies_and_archives_are_no_more_readable_than_their_source(
    ttlsnap: Ttlsnap, reachable: Path, files: int, folders: int, above: int, wanted: int, receiver: str
) -> None:
    # In one case, only a folder above the checkpoint keeps other users out.
    require_root()
    name = "agg-deltas-lz4-4.2"
    home = reachable / "home"
    home.mkdir(0o755)
    target = give(sample(name, home), NOBODY, GROUP, files=files, folders=folders)
    os.chown(home, NOBODY, GROUP)
    home.chmod(above)
    place = reachable / "elsewhere"
    option, value = {"copy": "--output"}.get(receiver, "--expired-to"), f"{'delta:' * (receiver == 'table')}{place}"
    commands = [compacting(target, option, value)]
    if receiver != "copy":
        commands += [["rollback", target, "--stopped"], compacting(target, option, value)]
    for argv in commands:
        with umask(0):
            assert ttlsnap(*argv).code == 0
    assert reaching(place) == wanted & 0o044
    assert any(path.is_file() for path in place.rglob("*"))
    for path in (place, *place.rglob("*")):
        assert path.stat().st_uid == NOBODY and path.stat().st_gid == GROUP


def reaching(folder: Path) -> int:
    """Return the bits with which group and others can read files below a folder, as far as its folders allow."""
    found = 0
    for path in folder.rglob("*"):
        if path.is_file():
            mode = path.stat().st_mode & 0o044
            for between in (path.parent, *path.parent.parents):
                if not between.is_relative_to(folder):
                    break
                through = between.stat().st_mode
                mode &= ~(0o040 * (not through & 0o010) | 0o004 * (not through & 0o001))
            found |= mode
    return found


def test_a_copy_by_another_user_belongs_to_that_user_with_a_warning(nobody: Confinement, reachable: Path) -> None:
    name = "agg-deltas-lz4-4.2"
    target = give(sample(name, reachable), 0, GROUP, files=0o664, folders=0o775)
    mine = reachable / "mine"
    mine.mkdir()
    os.chown(mine, NOBODY, NOBODY)
    done = nobody.run(*compacting(target, "--output", mine / "copy"))
    assert done.code == 0, done
    assert f"{mine / 'copy'} belongs to nobody, who cannot give files to the owner of the source (root)" in " ".join(
        done.err.split()
    )
    # The group differs from that of the source, so it gets no more permissions than others.
    assert kinds(mine / "copy") == ({Owned(NOBODY, NOBODY, "0o644")}, {Owned(NOBODY, NOBODY, "0o755")})
