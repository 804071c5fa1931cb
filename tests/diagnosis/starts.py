"""Damaged logs and metadata, what real Spark does when a query starts on them, and what doctor says.

    python -m tests.diagnosis.starts observe [VERSION...]    write Spark's outcomes to ``starts.json``
    python -m tests.diagnosis.starts document                write the table of docs/starting.md

A query runs three batches, something is damaged, and the query runs two more, with a reload of the state between them.
Spark's outcomes are:

``goes on``    the rows and the state are right
``again``      the same, after Spark has run a committed batch again
``wrong``      other rows or another state, without an error
``refuses``    an error, with its class
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..compaction.stories import BATCHES, MORE, rocksdb, settled
from ..judge.outcomes import Batch
from ..judge.processes import JudgeError
from ..judge.queries import Query
from ..judge.spark import Checkpoint, Judge

KEPT = Path(__file__).with_name("starts.json")
PAGE = Path(__file__).parents[2] / "docs" / "starting.md"
QUERIES = {"hdfs": Query(), "rocksdb": rocksdb("agg_update", True)}
VERSIONS = ("3.1", "3.2", "3.3", "3.4", "3.5", "4.0", "4.1", "4.2", "4.3")
LAST = len(BATCHES) - 1
Do = Callable[[Path], object]
"""Something that is done to a file, or to a checkpoint."""


def gone(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def put(path: Path, data: bytes) -> None:
    gone(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def twin(path: Path, new: Path) -> None:
    put(new, path.read_bytes())


def empty(path: Path) -> None:
    put(path, b"")


def cut(path: Path) -> None:
    put(path, path.read_bytes()[:-20])


def folder(path: Path) -> None:
    gone(path)
    path.mkdir(parents=True)


def line(number: int, text: str, path: Path) -> None:
    """Replace a line of a file."""
    lines = path.read_text().split("\n")
    lines[number:] = [text, *lines[number + 1 :]] if len(lines) > number else [text]
    put(path, "\n".join(lines).encode())


def setting(name: str, value: str | None, path: Path) -> None:
    """Replace a pinned setting, or remove it."""
    metadata = json.loads(path.read_text().split("\n")[1])
    (full,) = (key for key in metadata["conf"] if key.endswith(name))
    metadata["conf"].pop(full)
    if value is not None:
        metadata["conf"][full] = value
    line(1, json.dumps(metadata), path)


def change(old: bytes, new: bytes, path: Path) -> None:
    """Replace a part of a file."""
    data = path.read_bytes()
    assert old in data
    put(path, data.replace(old, new))


def operator_metadata(root: Path) -> Path:
    return root / "state/0/_metadata/metadata"


def schema(root: Path) -> Path:
    return root / "state/0/0/_metadata/schema"


def newest(root: Path, partition: int = 0) -> Path:
    """Return the file of the newest version of a partition."""
    names = f"{LAST + 1}.delta", f"{LAST + 1}.changelog"
    (found,) = (path for name in names if (path := root / f"state/0/{partition}" / name).exists())
    return found


def at(path: str, *actions: Do) -> Do:
    """Return what does something to a file of a checkpoint."""

    def do(root: Path) -> None:
        for action in actions:
            action(root / path)

    return do


def copied(path: str, *new: str) -> Do:
    """Return what copies a file of a checkpoint."""

    def do(root: Path) -> None:
        for name in new:
            twin(root / path, root / name)

    return do


def removed(*paths: str) -> Do:
    def do(root: Path) -> None:
        for path in paths:
            gone(root / path)

    return do


def on(find: Callable[[Path], Path], action: Do) -> Do:
    """Return what does something to a file that has another place in each store."""
    return lambda root: action(find(root))


def make_folder(_: Path, new: Path) -> None:
    folder(new)


def in_both(name: str, action: Callable[[Path, Path], object]) -> Do:
    """Return what is done to the newest file of each partition, and to a file ``name`` beside it."""

    def do(root: Path) -> None:
        for partition in (0, 1):
            file = newest(root, partition)
            action(file, file.with_name(name if "." in name else f"{name}{file.suffix}"))

    return do


@dataclass(frozen=True)
class Damage:
    """Something that is done to a checkpoint. ``codes`` are doctor's problems, or a part of the error.

    ``why`` says why doctor has no problem although Spark stops, or has one although it continues. ``stores`` are those
    on which it is tried. ``since`` is the first version of Spark that has the file.
    """

    area: str
    what: str
    do: Do
    codes: tuple[str, ...] | str = ()
    why: str = ""
    stores: tuple[str, ...] = ("hdfs",)
    since: str = "3.1"

    @property
    def name(self) -> str:
        return f"{self.area}: {self.what}"


BOTH, ROCKSDB = ("hdfs", "rocksdb"), ("rocksdb",)
OLD_FILE = "Spark does not read it"
UNKNOWN_QUERY = "only the query shows it"
WATERMARK = "Spark continues with the watermark 0"
LOG, LOST, UNKNOWN, META = ("damaged-log",), ("damaged-log", "last-batch-lost"), ("unsupported",), ("damaged-metadata",)
NOTHING = ("damaged-metadata", "nothing-restorable")
BLOCKED, TORN = ("blocked-batch",), ("torn-offset",)
N = {LAST + 2: "N + 2", LAST + 1: "N + 1", LAST: "N", LAST - 1: "N - 1", LAST - 2: "N - 2"}
Row = tuple[Any, ...]
"""The arguments ``what``, ``do``, ``codes`` and perhaps ``why`` of a ``Damage``."""


def _all(area: str, *rows: Row, **more: Any) -> list[Damage]:
    return [Damage(area, row[0], row[1], row[2], "".join(row[3:]), **more) for row in rows]


def _file(area: str, path: str, codes: dict[str, tuple[str, ...]], why: str = "") -> list[Damage]:
    """Return the damage that every file can have. ``codes`` are those of each kind, or of all ``others``."""
    head, _, number = path.rpartition("/")
    shown = f"{head}/{N[int(number)]}" if number.isdigit() else path
    done: dict[str, Do] = {"missing": gone, "empty": empty, "truncated": cut, "a folder": folder}
    return [
        Damage(area, f"`{shown}` is {what}", at(path, do), codes.get(what, codes["others"]), why)
        for what, do in done.items()
    ]


def _lines(area: str, path: str, shown: str, *rows: Row) -> list[Damage]:
    """Return damage to the lines of a file."""
    return _all(area, *((f"`{shown}` has {row[0]}", at(path, row[1]), *row[2:]) for row in rows))


OFFSETS, BEFORE, COMMIT = f"offsets/{LAST}", f"offsets/{LAST - 1}", f"commits/{LAST}"
NEXT = str(LAST + 2)  # the version of the state after the next batch
NO_NUMBER = partial(change, b'"batchWatermarkMs":', b'"batchWatermarkMs":"x","y":')

DAMAGES = [
    Damage("nothing", "nothing is damaged", lambda root: None, stores=BOTH),
    *_file("metadata", "metadata", {"others": META}),
    Damage("metadata", "`metadata` is not JSON", at("metadata", partial(line, 0, "x")), META),
    *_file("offsets", OFFSETS, {"a folder": (*BLOCKED, *LOST), "others": LOST}),
    *_file("offsets", BEFORE, {"others": LOG}),
    *_file("offsets", f"offsets/{LAST - 2}", {"missing": (), "a folder": (), "others": LOG}, OLD_FILE),
    *_all(
        "offsets",
        ("`offsets` is missing", removed("offsets"), "the offset log is missing"),
        ("`offsets` is empty", at("offsets", gone, Path.mkdir), ("damaged-log", "nothing-restorable")),
        ("`offsets/N + 2` follows `offsets/N`", copied(OFFSETS, f"offsets/{LAST + 2}"), (*LOG, "uncommitted-batch")),
        (
            "two batches were started and not committed",
            copied(OFFSETS, f"offsets/{LAST + 1}", f"offsets/{LAST + 2}"),
            ("missing-commit",),
        ),
        ("batch `N + 1` was started", copied(OFFSETS, f"offsets/{LAST + 1}"), ("uncommitted-batch",)),
        ("`offsets/N + 1` is a folder", at(f"offsets/{LAST + 1}", folder), BLOCKED),
        ("`offsets/N + 2` is a folder", at(f"offsets/{LAST + 2}", folder), BLOCKED),
        ("`offsets/N + 1` is empty", at(f"offsets/{LAST + 1}", empty), TORN),
        (
            "`offsets/N + 1` is truncated",
            lambda root: put(root / f"offsets/{LAST + 1}", (root / OFFSETS).read_bytes()[:60]),
            TORN,
        ),
        ("a copy has the name `offsets/007`", copied(OFFSETS, "offsets/007"), BLOCKED),
        ("a copy has the name `offsets/+7`", copied(OFFSETS, "offsets/+7"), BLOCKED),
        ("a copy has the name `offsets/02`", copied(OFFSETS, "offsets/02"), ()),
        ("a copy has the name `offsets/-1`", copied(OFFSETS, "offsets/-1"), ()),
        ("a copy has the name `offsets/2.bak`", copied(OFFSETS, "offsets/2.bak"), ()),
        ("a copy has a number that is too large as its name", copied(OFFSETS, "offsets/99999999999999999999"), ()),
    ),
    *_lines(
        "offsets",
        OFFSETS,
        "offsets/N",
        ("version 9", partial(line, 0, "v9"), ("unsupported", "last-batch-lost")),
        ("no version", partial(line, 0, "x"), LOST),
        ("a second line that is not JSON", partial(line, 1, "{x"), LOST),
        ("an empty second line", partial(line, 1, ""), LOST),
        ("no settings", partial(line, 1, "{}"), LOST),
        ("no source", lambda path: put(path, path.read_bytes().rsplit(b"\n", 1)[0]), LOG),
        ("one extra source", partial(line, 3, '{"logOffset":2}'), LOG),
        ("a source without an offset", partial(line, 2, "-"), LOG),
        ("an offset beyond the log of the source", partial(line, 2, '{"logOffset":9}'), LOG),
        ("an earlier offset of the source", partial(line, 2, '{"logOffset":1}'), (), "a source may have no new files"),
        ("an offset that is not valid", partial(line, 2, "garbage"), LOG),
        ("a watermark that is not a number", NO_NUMBER, LOST),
        (
            "more partitions",
            partial(setting, "shuffle.partitions", "3"),
            ("damaged-metadata", "last-batch-lost", "missing-delta"),
        ),
        ("fewer partitions", partial(setting, "shuffle.partitions", "1"), LOG),
        ("a number of partitions that is not a number", partial(setting, "shuffle.partitions", "x"), LOST),
        (
            "no number of partitions",
            partial(setting, "shuffle.partitions", None),
            LOST,
            "Spark takes the number of the session, which may be another",
        ),
        ("an unknown provider", partial(setting, "providerClass", "x.Y"), UNKNOWN),
        ("an unknown codec", partial(setting, "compression.codec", "x"), UNKNOWN),
    ),
    *_lines(
        "offsets",
        BEFORE,
        "offsets/N - 1",
        ("version 9", partial(line, 0, "v9"), UNKNOWN),
        ("an offset that is not valid", partial(line, 2, "garbage"), LOG),
    ),
    *_file(
        "commits",
        COMMIT,
        {"missing": ("uncommitted-batch",), "a folder": (*BLOCKED, "uncommitted-batch"), "others": LOST},
    ),
    *_file(
        "commits",
        f"commits/{LAST - 1}",
        {"missing": ("missing-commit",), "a folder": ("missing-commit",), "others": LOG},
        OLD_FILE,
    ),
    *_file("commits", f"commits/{LAST - 2}", {"missing": (), "a folder": (), "others": LOG}, OLD_FILE),
    *_all(
        "commits",
        ("`commits` is missing", removed("commits"), "the commit log is missing", "Spark continues"),
        ("`commits` is empty", at("commits", gone, Path.mkdir), "the commit log is missing", "Spark continues"),
        ("`commits` is a file", at("commits", gone, empty), "the commit log is missing"),
        (
            "the last two commits are missing",
            removed(COMMIT, f"commits/{LAST - 1}"),
            ("missing-commit",),
            "Spark would skip a batch that had not run",
        ),
        ("`commits/N + 1` is a folder", at(f"commits/{LAST + 1}", folder), BLOCKED),
        ("`commits/N + 2` is a folder", at(f"commits/{LAST + 2}", folder), BLOCKED),
        ("`commits/N + 1` has no offsets", copied(COMMIT, f"commits/{LAST + 1}"), LOST),
        ("a copy has the name `commits/007`", copied(COMMIT, "commits/007"), BLOCKED),
    ),
    *_lines(
        "commits",
        COMMIT,
        "commits/N",
        ("version 9", partial(line, 0, "v9"), ("unsupported", "last-batch-lost")),
        ("no version", partial(line, 0, "x"), LOST),
        ("a second line that is not JSON", partial(line, 1, "{x"), LOST),
        ("only a version", lambda path: put(path, path.read_bytes().split(b"\n")[0]), LOST, WATERMARK),
        ("no watermark", partial(line, 1, "{}"), LOST, WATERMARK),
    ),
    *_all(
        "both logs",
        ("both logs are missing", removed("offsets", "commits"), "the logs are missing"),
        (
            "both logs and `sources` are missing",
            removed("offsets", "commits", "sources"),
            "the logs are missing",
            "Spark reads everything again, if it is still there",
        ),
        ("batch `N` was removed from both", removed(OFFSETS, COMMIT), ()),
    ),
    *_file("sources", f"sources/0/{LAST}", {"others": LOG}),
    *_file("sources", f"sources/0/{LAST - 2}", {"others": LOG}),
    *_all(
        "sources",
        ("`sources` is missing", removed("sources"), LOG),
        ("a file in the middle is missing", removed("sources/0/1"), LOG),
        ("`sources/0/N` has version 9", at(f"sources/0/{LAST}", partial(line, 0, "v9")), UNKNOWN),
        ("`sources/0/N` has a line that is not JSON", at(f"sources/0/{LAST}", partial(line, 1, "x")), LOG),
        ("`sources/0/N + 1` is a folder", at(f"sources/0/{LAST + 1}", folder), LOG),
        ("`sources/0/N + 1` is not in the offsets", copied(f"sources/0/{LAST}", f"sources/0/{LAST + 1}"), ()),
        ("`sources/0/N + 2` follows `sources/0/N`", copied(f"sources/0/{LAST}", f"sources/0/{LAST + 2}"), LOG),
    ),
    *_all(
        "operators",
        ("operator metadata is missing", on(operator_metadata, gone), ()),
        ("operator metadata is empty", on(operator_metadata, empty), NOTHING, "Spark skips its check of operators"),
        ("operator metadata is truncated", on(operator_metadata, cut), NOTHING, "Spark skips its check of operators"),
        ("operator metadata is a folder", on(operator_metadata, folder), UNKNOWN, "Spark skips its check of operators"),
        (
            "operator metadata names another operator",
            on(operator_metadata, partial(change, b"stateStoreSave", b"dedupe")),
            ("nothing-restorable", "row-does-not-fit-schema"),
        ),
        ("one extra operator", lambda root: shutil.copytree(root / "state/0", root / "state/1"), ()),
        since="4.0",
    ),
    *_all(
        "schemas",
        ("the schema is missing", on(schema, gone), ("missing-schema",), "Spark checks nothing"),
        ("the schema is empty", on(schema, empty), NOTHING),
        ("the schema is truncated", on(schema, cut), NOTHING),
        ("the schema is a folder", on(schema, folder), UNKNOWN),
        (
            "the schema has another type",
            on(schema, partial(change, b'"count","type":"long"', b'"count","type":"date"')),
            (),
            UNKNOWN_QUERY,
        ),
    ),
    Damage("state", "`state` is missing", removed("state"), "has no state folder"),
    *_all(
        "state",
        ("a partition is missing", removed("state/0/1"), NOTHING),
        (
            "one extra partition",
            lambda root: shutil.copytree(root / "state/0/1", root / "state/0/2"),
            ("extra-partition",),
            OLD_FILE,
        ),
        ("the newest file is missing", on(newest, gone), ("last-batch-lost", "missing-delta")),
        ("the newest file is empty", on(newest, empty), ("damaged-file", "last-batch-lost")),
        ("the newest file is a folder", on(newest, folder), ("last-batch-lost", "missing-delta")),
        ("the next file is a folder", in_both(NEXT, make_folder), BLOCKED),
        ("the next file exists", in_both(NEXT, twin), ()),
        ("a file has the name `notes.txt`", at("state/0/0/notes.txt", empty), ()),
        stores=BOTH,
    ),
    *_all(
        "state",
        ("the next snapshot is a folder", in_both(f"{NEXT}.snapshot", make_folder), BLOCKED),
        ("a file has the name `old.snapshot`", at("state/0/0/old.snapshot", empty), ("stray-state",)),
    ),
    *_all(
        "state",
        ("the next zip is a folder", in_both(f"{NEXT}.zip", make_folder), BLOCKED),
        ("a file has the name `backup.zip`", at("state/0/0/backup.zip", empty), ("stray-state",)),
        stores=ROCKSDB,
    ),
]


def settle(written: Checkpoint) -> Checkpoint:
    """Make a checkpoint old enough for a command that publishes."""
    settled(written.path)
    return written


def observe(judge: Judge, written: Checkpoint, damage: Damage) -> str:
    """Return what Spark does with a damaged copy of a checkpoint."""
    damaged = judge.copy(written)
    damage.do(damaged.path)
    model = deepcopy(written.expected)
    wanted = _rows(model.run(MORE))
    try:
        first = judge.restart(damaged, MORE[:1])
        moved = judge.copy(damaged)  # another path, so that Spark loads the state again
        second = judge.restart(moved, MORE[1:])
    except JudgeError as error:
        return f"refuses: {_error(str(error))}"
    done = [*first, *second]
    rows = _rows(batch for batch in done if batch.batch > LAST)
    try:
        is_right = judge.state(moved) == model.state()
    except JudgeError:
        is_right = rows == wanted  # Spark's reader of states needs files that a query does not
    if not is_right:
        return "wrong"
    return "goes on" if rows == wanted and all(batch.batch > LAST for batch in done) else "again"


def _error(text: str) -> str:
    """Return the class of an error, or the beginning of its message."""
    classes = [name for name in re.findall(r"\[([A-Z][A-Z0-9_]{8,})(?:\.[A-Z_]+)?\]", text) if name != "STREAM_FAILED"]
    if classes:
        return str(classes[-1])
    begins = ("terminated with exception: ", "StreamingQueryException: ", "Exception: ", "Error: ")
    begin = next((begin for begin in begins if begin in text), "\n")
    words = text.strip().rpartition(begin)[2].split("\n")[0].split(" SQLSTATE")[0]
    words = re.sub(r"(?:file:)?/\S+", "PATH", words)
    return words[:80].strip() if words and "Python Proxy" not in words else "an error in a task"


def _rows(batches: Iterable[Batch]) -> list[Any]:
    return [batch.rows for batch in batches if batch.rows]


def observed() -> dict[str, dict[str, str]]:
    """Return Spark's outcomes: by damage, and by version and store."""
    found: dict[str, dict[str, str]] = json.loads(KEPT.read_text())
    return found


def write(versions: Iterable[str]) -> None:
    """Run all damage on some versions of Spark, and write the outcomes."""
    found = observed() if KEPT.exists() else {}
    for version in versions:
        for store, query in QUERIES.items():
            mine = [one for one in DAMAGES if store in one.stores and one.since <= version]
            if store == "rocksdb" and version < "3.5":
                continue
            with tempfile.TemporaryDirectory() as place, Judge(Path(place)) as judge:
                written = settle(judge.write(query, BATCHES, version=version))
                for damage in mine:
                    outcome = observe(judge, written, damage)
                    found.setdefault(damage.name, {})[f"{version} {store}"] = outcome
                    print(version, store, damage.name, outcome, sep="  ", flush=True)
            KEPT.write_text(json.dumps(found, indent=1) + "\n")


def stops(damage: Damage) -> bool:
    """Return whether a version of Spark does not start the query, or continues wrongly."""
    return any(outcome.startswith(("refuses", "wrong")) for outcome in observed()[damage.name].values())


def table() -> str:
    """Return all damage as the table of the docs."""
    lines = ["| what | Spark | `doctor` |", "| --- | --- | --- |"]
    for damage in DAMAGES:
        codes = damage.codes if isinstance(damage.codes, str) else ", ".join(f"`{code}`" for code in damage.codes)
        told = codes if not isinstance(damage.codes, str) else f"no checkpoint: {codes}"
        spark = _summary(observed()[damage.name]).replace("goes on", "continues")
        cells = (damage.what, spark, f"{told} ({damage.why})" if damage.why else told)
        lines.append("| " + " | ".join(cell.strip() for cell in cells).rstrip() + " |")
    return "\n".join(lines)


def _summary(outcomes: dict[str, str]) -> str:
    """Return the outcomes of all versions, those of neighbours with one kind of outcome together."""
    groups: list[tuple[list[str], str]] = []
    for version in VERSIONS:
        for outcome in {outcomes[key] for key in (f"{version} {store}" for store in BOTH) if key in outcomes}:
            kind = outcome.partition(":")[0]
            if groups and groups[-1][1].partition(":")[0] == kind:
                groups[-1] = ([*groups[-1][0], version], outcome)
            else:
                groups.append(([version], outcome))
    if len(groups) == 1:
        return groups[0][1]
    return "; ".join(f"{seen[0]}{f' to {seen[-1]}' if seen[1:] else ''} {outcome}" for seen, outcome in groups)


def page() -> str:
    """Return the page of the docs with the current table."""
    begin, end = "<!-- starts -->", "<!-- end of starts -->"
    head, _, rest = PAGE.read_text().partition(begin)
    return f"{head}{begin}\n{table()}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "observe":
        write(rest or VERSIONS)
    elif command == "document":
        PAGE.write_text(page())
