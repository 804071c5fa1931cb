"""Files with the path of the checkpoint itself: a copy and a moved checkpoint start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ttlsnap import doctor, inspect, migrate, rollback
from ttlsnap.checkpoint.own_paths import SOURCE_PATHS, find_own_paths, own_paths
from ttlsnap.errors import UnsupportedError
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import open_directory

from ..diagnosis.asked import doctor as ask
from ..judge.processes import Server
from ..samples import sample

# As Delta 4.4 wrote it, with other schemas.
LOGGED = {
    "tableId": "65bc61cb-055a-4959-b2ea-b11310c89976",
    "deltaCommitVersion": 2,
    "dataSchemaJson": '{"type":"struct","fields":[]}',
    "partitionSchemaJson": '{"type":"struct","fields":[]}',
    "sourceMetadataPath": "file:/old/ck/sources/0",
    "tableConfigurations": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"},
    "protocolJson": '{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}',
}
NAME = "_schema_log_65bc61cb-055a-4959-b2ea-b11310c89976"


def with_schema_log(tmp_path: Path, folder: str = "logs", head: str = "v1") -> Path:
    checkpoint = sample("agg-snapshot-zstd-4.1", tmp_path)
    log = checkpoint / folder / NAME
    log.mkdir(parents=True)
    (log / "0").write_text(f"{head}\n{json.dumps(LOGGED, separators=(',', ':'))}")
    return checkpoint


def recorded(checkpoint: Path, folder: str = "logs") -> str:
    head, _, body = (checkpoint / folder / NAME / "0").read_text().partition("\n")
    document = json.loads(body)
    path = document["sourceMetadataPath"]
    assert (head, {**document, "sourceMetadataPath": LOGGED["sourceMetadataPath"]}) == ("v1", LOGGED)
    return str(path)


@pytest.mark.wide
def test_a_delta_source_with_a_schema_log_starts_on_a_copy_and_on_a_moved_checkpoint(
    delta_server: Server, tmp_path: Path
) -> None:
    package, table, checkpoint = str(Path(__file__).parent), str(tmp_path / "table"), tmp_path / "a checkpoint"

    def call(name: str, **order: object) -> object:
        return delta_server.ask("call", package=package, function=f"tracked.{name}", order={"table": table, **order})

    def run(path: Path) -> object:
        return call("run", checkpoint=str(path), schema_log=str(path / "logs"))

    call("create")
    call("put", column="v", values=[1, 2])
    assert run(checkpoint) == [["k0", 1], ["k1", 2]]
    call("rename")
    call("put", column="w", values=[10, 20])
    assert run(checkpoint) == [["k0", 11], ["k1", 22]]
    (log,) = (checkpoint / "logs").iterdir()
    assert len(list(find_own_paths(LocalDirectory(str(checkpoint))))) >= 2

    copied, moved = tmp_path / "copied", tmp_path / "moved to"
    report = migrate(str(checkpoint), partitions=3, output=str(copied), stopped=True)
    assert [f'.option("schemaTrackingLocation", "{copied}/logs")' in warning for warning in report.warnings] == [True]
    assert doctor(str(copied)).exit_code == 0
    shutil.copytree(checkpoint, moved)
    call("put", column="w", values=[100, 200])
    wanted = [["k0", 111], ["k1", 222]]
    assert run(copied) == wanted
    assert "is different from the one persisted" in str(run(moved))
    found = ask(moved)
    assert (found.code, set(found.codes) - {"uncommitted-batch"}) == (1, {"moved-source-paths"})
    assert "schemaTrackingLocation" in found.document["problems"][0]["fix"]
    assert ask(moved, "--fix", "moved-source-paths", "--stopped").code == 0
    assert run(moved) == wanted
    assert log.exists()


@pytest.mark.parametrize("folder", ["", "logs", "a/b"])
def test_a_copy_has_its_own_path_wherever_the_schema_log_is(tmp_path: Path, folder: str) -> None:
    checkpoint, copied = with_schema_log(tmp_path, folder), tmp_path / "x y"
    assert ask(checkpoint).codes[0] == SOURCE_PATHS
    migrate(str(checkpoint), partitions=3, output=str(copied), stopped=True)
    assert recorded(copied, folder) == f"file:{copied}/sources/0"
    assert doctor(str(copied)).exit_code == 0
    assert ask(checkpoint, "--fix", SOURCE_PATHS, "--stopped").code == 0
    assert recorded(checkpoint, folder) == f"file:{checkpoint}/sources/0"
    rollback(str(checkpoint), stopped=True)
    assert recorded(checkpoint, folder) == LOGGED["sourceMetadataPath"]


def test_an_unknown_version_of_the_schema_log_is_refused(tmp_path: Path) -> None:
    checkpoint = with_schema_log(tmp_path, head="v2")
    with pytest.raises(UnsupportedError, match="expected v1"):
        migrate(str(checkpoint), partitions=3, output=str(tmp_path / "copy"), stopped=True)
    assert not (tmp_path / "copy").exists()
    assert inspect(str(checkpoint)).checkpoint
    assert ask(checkpoint).codes == ["unsupported"]


def test_links_to_other_places_are_not_followed(tmp_path: Path) -> None:
    checkpoint = with_schema_log(tmp_path)
    (checkpoint / "logs").rename(tmp_path / "elsewhere")
    (checkpoint / "logs").symlink_to(tmp_path / "elsewhere")
    (checkpoint / "again").symlink_to(checkpoint)
    assert not list(find_own_paths(open_directory(str(checkpoint))))


@pytest.mark.parametrize(
    ("old", "home", "new"),
    [
        ("file:/old/sources/1", "/new", "file:/new/sources/1"),
        ("s3://old/ck/sources/0", "s3://new/x", "s3://new/x/sources/0"),
        ("s3a://old/ck/sources/0", "s3://new/x", "s3a://new/x/sources/0"),
        ("hdfs://name:8020/old/sources/0", "hdfs://other/new", "hdfs://name:8020/new/sources/0"),
        ("file:/old/sources/0", "gs://new/x", "gs://new/x/sources/0"),
    ],
)
def test_the_scheme_and_the_name_node_stay(tmp_path: Path, old: str, home: str, new: str) -> None:
    checkpoint = with_schema_log(tmp_path)
    (checkpoint / "logs" / NAME / "0").write_text(f"v1\n{json.dumps({**LOGGED, 'sourceMetadataPath': old})}")
    own = own_paths(f"logs/{NAME}/0")
    assert own is not None
    _, _, body = own.moved_to(LocalDirectory(str(checkpoint)), home).partition(b"\n")
    assert json.loads(body)["sourceMetadataPath"] == new


def test_only_files_of_a_schema_log_have_its_name() -> None:
    names = (f"{NAME}/0", f"x/{NAME}/12", f"{NAME}/x", f"{NAME}/.0.crc", f"state/{NAME}/0", "logs/0", "offsets/0")
    assert [own_paths(name) is not None for name in names] == [True, True, False, False, False, False, False]
