"""Checkpoints that Spark wrote once. Tests begin with them, so that Spark does not write the same input in every run.

``stored/<operator>-<digest>.tar.xz`` contains a checkpoint, the folder of its file sink, the times of all files, and
``input.json``: the description from which the checkpoint was made. The digest covers this description and the code that
made it. So a changed operator or setting has another digest, and the judge asks Spark to write the input again.

    TTLSNAP_STORE=1 python -m pytest tests/...    store the inputs of these tests that are not stored yet
    python -m tests.judge.renew --stale           write those again whose description or code has changed
    make samples                                  write all again

An archive has no ids and paths of the machine on which it was made: a copy gets its own query id, and its logs and
metadata name the files of the copy.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import tarfile
import threading
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .processes import NEWEST
from .queries import ENDLESS, OTHER_PROVIDERS, SCALA, Event, Query
from .reported import REPORTED

STORED = Path(__file__).with_name("stored")
_CHECKPOINT, _OUT, _EVENTS = "/ttlsnap/checkpoint", "/ttlsnap/out", "/ttlsnap/events"
_TIME = "TTLSNAP.mtime_ns"
_WITHOUT_PATHS = {".delta", ".snapshot", ".changelog", ".zip", ".sst", ".log", ".crc", ".parquet"}
_MOST_BYTES = 200_000
not_stored: set[str] = set()
"""The archives that Spark would have written in this run if they had been asked for, or that are too large."""
_PARSING = threading.Lock()
"""Python 3.11 cannot parse in two threads at the same time."""
_ID = re.compile(r'(?<="id":")[0-9a-f-]{36}(?=")')


@dataclass(frozen=True)
class Input:
    """The description of a checkpoint: the arguments of ``Judge.write``."""

    query: Query
    batches: tuple[tuple[Event, ...], ...]
    layout: str = "deltas"
    version: str = NEWEST
    uncommitted: tuple[Event, ...] | None = None

    @property
    def runs(self) -> list[tuple[Sequence[Sequence[Event]], bool, bool]]:
        """The runs that write it: the batches, whether Spark writes snapshots, and whether the last batch crashes."""
        # Spark itself writes a snapshot when variables are new.
        both_at_once = self.layout == "both" and self.query.operator in ENDLESS
        runs = _parts("deltas" if both_at_once else self.layout, self.batches)
        return runs if self.uncommitted is None else [*runs, ([self.uncommitted], False, True)]

    @property
    def can_be_stored(self) -> bool:
        """Whether a restart does not depend on the time at which Spark wrote it, nor on a table elsewhere."""
        return self.query.operator not in ENDLESS and "delta" not in (self.query.source, self.query.sink)

    @property
    def archive(self) -> Path:
        """The place of its archive."""
        with _PARSING:
            text = json.dumps([self.to_json(), _code(self.query.operator, self.query.provider)])
        return STORED / f"{self.query.operator}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.tar.xz"

    def to_json(self) -> dict[str, Any]:
        """Return the description as JSON."""

        def rows(events: Iterable[Event]) -> list[list[Any]]:
            return [[event.key, event.ts, event.value] for event in events]

        return {
            "query": asdict(self.query),
            "batches": [rows(events) for events in self.batches],
            "layout": self.layout,
            "version": self.version,
            "uncommitted": None if self.uncommitted is None else rows(self.uncommitted),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Input:
        """Return the input that ``to_json`` describes."""

        def events(rows: Iterable[Sequence[Any]]) -> tuple[Event, ...]:
            return tuple(Event(*row) for row in rows)

        settings = document["query"]
        query = Query(**{**settings, "conf": tuple((name, value) for name, value in settings["conf"])})
        last = document["uncommitted"]
        batches = tuple(events(rows) for rows in document["batches"])
        return cls(query, batches, document["layout"], document["version"], None if last is None else events(last))


def store(made: Input, checkpoint: Path, out: Path, events: Sequence[Path], folder: Path = STORED) -> bool:
    """Store a checkpoint, and the folder ``out`` of its file sink. Return False if it is too large.

    ``events`` are the folders with the events of its runs, in order. The archive is put into ``folder``.
    """
    placeholders = {str(checkpoint): _CHECKPOINT, str(out): _OUT}
    placeholders |= {str(folder): f"{_EVENTS}/{number}" for number, folder in enumerate(events)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "input.json", json.dumps(made.to_json()).encode(), 0)
        for top, root in (("checkpoint", checkpoint), ("out", out)):
            for path in sorted(root.rglob("*")):
                name = f"{top}/{path.relative_to(root)}"
                if path.is_file():
                    _add(archive, name, _replace(path, path.read_bytes(), placeholders), path.stat().st_mtime_ns)
                elif not any(path.iterdir()):
                    _add(archive, f"{name}/", b"", path.stat().st_mtime_ns)
    if len(packed.getvalue()) > _MOST_BYTES:
        return False
    folder.mkdir(exist_ok=True)
    place = folder / made.archive.name
    new = place.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    new.write_bytes(packed.getvalue())
    new.rename(place)
    return True


def unpack(archive: Path, checkpoint: Path, out: Path, events: Sequence[Path]) -> None:
    """Unpack a stored checkpoint, so that a query can restart on it. The arguments are those of ``store``."""
    places = {_CHECKPOINT: str(checkpoint), _OUT: str(out)}
    places |= {f"{_EVENTS}/{number}": str(folder) for number, folder in enumerate(events)}
    roots = {"checkpoint": checkpoint, "out": out}
    changed = []
    with tarfile.open(archive) as members:
        for member in members:
            top, _, name = member.name.partition("/")
            if top not in roots:
                continue
            path = roots[top] / name
            if not (member.isdir() or member.isfile()) or not path.resolve().is_relative_to(roots[top].resolve()):
                raise ValueError(f"{archive}: {member.name} is neither a file nor a folder of a checkpoint")
            if member.isdir():
                path.mkdir(parents=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            packed = members.extractfile(member)
            assert packed is not None
            before = packed.read()
            data = _replace(path, before, places)
            if (top, name) == ("checkpoint", "metadata"):
                # Spark stops a running query when another one with its id starts.
                data = _ID.sub(str(uuid.uuid4()), data.decode()).encode()
            path.write_bytes(data)
            time_ns = int(member.pax_headers[_TIME])
            os.utime(path, ns=(time_ns, time_ns))
            if data != before:
                changed.append(path)
    for path in changed:
        _write_crc(path)


def describe(archive: Path) -> Input:
    """Return the description of a stored checkpoint."""
    with tarfile.open(archive) as members:
        packed = members.extractfile("input.json")
        assert packed is not None
        return Input.from_json(json.loads(packed.read()))


def _add(archive: tarfile.TarFile, name: str, data: bytes, time_ns: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(data), time_ns // 10**9
    member.pax_headers = {_TIME: str(time_ns)}
    if name.endswith("/"):
        member.type = tarfile.DIRTYPE
    archive.addfile(member, io.BytesIO(data))


def _replace(path: Path, data: bytes, names: dict[str, str]) -> bytes:
    """Return a file's content with other paths."""
    if path.suffix in _WITHOUT_PATHS:
        return data
    # A longer path is first, because it may begin with a shorter one.
    for old, new in sorted(names.items(), key=lambda pair: -len(pair[0])):
        data = re.sub(re.escape(old.encode()) + rb"(?![\w.-])", lambda _, new=new: new.encode(), data)  # type: ignore[misc]
    return data


def take_home(copy: Path, home: str | None = None) -> None:
    """Make the operator metadata of a copied checkpoint name the schema files of the copy, or of its ``home``."""
    root = (home or f"file:{copy}").encode()
    for path in copy.glob("state/*/_metadata/v2/[0-9]*"):
        times = path.stat()
        path.write_bytes(re.sub(rb'(?<=")file:[^"]*(?=/state/)', lambda _: root, path.read_bytes()))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        _write_crc(path)


def _write_crc(path: Path) -> None:
    """Write Hadoop's checksum of a changed file, if the file has one: a CRC-32 for each 512 bytes."""
    beside = path.with_name(f".{path.name}.crc")
    if beside.exists():
        time_ns = beside.stat().st_mtime_ns
        data = path.read_bytes()
        sums = [zlib.crc32(data[at : at + 512]).to_bytes(4, "big") for at in range(0, len(data), 512)]
        beside.write_bytes(b"crc\0" + (512).to_bytes(4, "big") + b"".join(sums))
        os.utime(beside, ns=(time_ns, time_ns))


def _parts(layout: str, batches: Sequence[Sequence[Event]]) -> list[tuple[Sequence[Sequence[Event]], bool, bool]]:
    half = max(1, len(batches) // 2)
    return {
        "deltas": [(batches, False, False)],
        "snapshot": [(batches, True, False)],
        "both": [(batches[:half], True, False), (batches[half:], False, False)],
        "snapshots": [(batches[:half], True, False), (batches[half:], True, False)],
    }[layout]


@cache
def _code(operator: str, provider: str) -> str:
    """Return the code on which a checkpoint depends, without comments and docstrings."""
    here = Path(__file__).parent
    code = [
        code_of(here / "queries.py", operator, "Query", "Event", "EVENT_SCHEMA", "ENDLESS"),
        code_of(here / "runs.py", "run"),
        code_of(here / "server.py", "_session"),
        code_of(here / "sources.py", "put_events", "in_partitions", "event_files"),
        code_of(here / "layouts.py", "has_snapshots", "last_batch", "store_folders"),
        code_of(here / "inputs.py", "_parts"),
    ]
    if operator in REPORTED:
        code.append(code_of(here / "reported.py", operator))
    for source in filter(None, (SCALA.get(operator), OTHER_PROVIDERS.get(provider))):
        code.append((here / source).read_text())
    return "\n".join(code)


def code_of(module: Path, *roots: str) -> str:
    """Return the definitions of a module that are reachable from these names, without comments and docstrings."""
    text = module.read_text()
    tree = ast.parse(text)
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            defined |= {name.id: node for name in names}
    lines = text.splitlines()
    found: dict[str, list[str]] = {}
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name not in found and name in defined:
            found[name] = _lines(lines, defined[name])
            todo += [part.id for part in ast.walk(defined[name]) if isinstance(part, ast.Name)]
    return "\n".join(line for name in sorted(found) for line in found[name])


def _lines(lines: list[str], node: ast.stmt) -> list[str]:
    """Return the lines of a definition without comments, docstrings and empty lines."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    documented = (ast.FunctionDef, ast.ClassDef)
    omitted = {
        number
        for part in ast.walk(node)
        if isinstance(part, documented) and ast.get_docstring(part) is not None
        for number in range(part.body[0].lineno, (part.body[0].end_lineno or 0) + 1)
    }
    numbers = (number for number in range(first, (node.end_lineno or 0) + 1) if number not in omitted)
    found = (lines[number - 1].rstrip() for number in numbers)
    return [line for line in found if line and not line.lstrip().startswith("#")]
