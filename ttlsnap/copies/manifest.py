"""The manifest of a copy: its files with their sizes and digests. It is written last, and a copy without it is not one.

    _ttlsnap/copy.json          the manifest
    _ttlsnap/copying/begun.json what an unfinished copy is of
    _ttlsnap/copying/<n>.json   the files that it already has

While a copy is unfinished, there is also a fence in the place of its next batch, so that Spark refuses to start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import xxhash

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import is_copy_fence, read_logs
from ttlsnap.documents import ReadableDocument
from ttlsnap.errors import CorruptionError
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.storage.directory import OWN, Directory
from ttlsnap.versions import VERSION, refuse_newer

MANIFEST = f"{OWN}/copy.json"
DAMAGED = f"{OWN}/damaged"
"""A mark in a complete copy. A later copy that had shared its files has found damage in them."""
UNFINISHED = f"{OWN}/copying"
BEGUN = f"{UNFINISHED}/begun.json"
FORMAT = 2
"""In format 1, files with another content than the original have its time."""
DERIVED = -1
"""The time of a file whose content is not that of the original. No file has it."""
_MAX_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copy. ``digest`` is the XXH3 (128 bits, hexadecimal) of its bytes.

    ``changed_ns`` is when the file in the source was last changed, or ``DERIVED``. ``size`` and ``digest`` are those in
    the copy.
    """

    path: str
    size: int
    digest: str
    changed_ns: int

    def to_line(self) -> list[Any]:
        """Return the file as a line of the manifest."""
        return [self.path, self.size, self.digest, self.changed_ns]

    @classmethod
    def of_line(cls, line: Any) -> CopiedFile:
        """Return the file of such a line. Raise ValueError for anything else."""
        kinds = (str, int, str, int)
        if not isinstance(line, list) or tuple(map(type, line)) != kinds:
            raise ValueError(f"{str(line)[:80]} does not describe a file")
        return cls(*line)


@dataclass(frozen=True, kw_only=True)
class CopyFacts(ReadableDocument):
    """What a copy is of. ``source`` is the place of the checkpoint, and ``query_id`` the id that the copy has.

    ``source_query_id`` is the id of the query in the source, and ``last_run`` the run that was published there last.
    ``verify`` is whether everything is read again before the copy is complete. ``state_at`` is the last time at which
    the checkpoint is known to have had this state.
    """

    format: int = FORMAT
    made_by: str = VERSION
    made_at: str
    source: str
    batch: int
    query_id: str | None
    source_query_id: str | None
    last_run: str | None = None
    verify: bool = False
    state_at: str | None = None


@dataclass(frozen=True)
class Manifest:
    """The facts about a copy, and its files by their paths."""

    facts: CopyFacts
    files: dict[str, CopiedFile]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files.values())

    def to_bytes(self) -> bytes:
        """Return the content of the manifest's file. Its last line has the digest of everything before."""
        lines = [json.dumps(self.files[path].to_line()) for path in sorted(self.files)]
        head = json.dumps(self.facts.to_json())
        body = (f'{{"copy": {head},\n"files": [\n' + ",\n".join(lines) + "\n],\n").encode()
        return body + f'"digest": "{xxhash.xxh3_128_hexdigest(body)}"}}\n'.encode()


def read_manifest(files: Directory) -> Manifest | None:
    """Return the manifest of a copy; None if the directory has none.

    Raise CorruptionError if it is damaged or was changed, and UnsupportedError if a newer version wrote it.
    """
    if files.stat(MANIFEST) is None:
        return None
    data = files.read(MANIFEST, _MAX_BYTES)
    try:
        document = require_type(parse_json(data, any_text=True), dict)
        facts = _read_facts(document["copy"], f"{files.root}/{MANIFEST}")
        body = data[: data.rindex(b'"digest"')]
        if document["digest"] != xxhash.xxh3_128_hexdigest(body):
            raise ValueError("its digest is that of another content")
        copied_files = [CopiedFile.of_line(line) for line in require_type(document["files"], list)]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"{files.root}/{MANIFEST} is not a manifest as ttlsnap wrote it: it is damaged, or was changed ({error})"
        ) from error
    return Manifest(facts, {file.path: file for file in copied_files})


def read_begun(files: Directory) -> tuple[CopyFacts, dict[str, CopiedFile]] | None:
    """Return what an unfinished copy is of, and the files that it has; None if there is no unfinished copy.

    A copy with a manifest and without its fence is complete, and a query may have used it: the command that made it
    may have failed to remove the record. With the fence, it is unfinished also without the record.
    """
    if files.stat(MANIFEST) is not None and not is_copy_fence(read_logs(files).fence):
        return None
    if files.stat(BEGUN) is None:
        manifest = read_manifest(files)
        return None if manifest is None else (manifest.facts, manifest.files)
    copied_files: dict[str, CopiedFile] = {}
    try:
        facts = _read_facts(parse_json(files.read(BEGUN, _MAX_BYTES), any_text=True), f"{files.root}/{BEGUN}")
        for number in part_numbers(files):  # the last record of a file counts
            data = files.read(f"{UNFINISHED}/{number}.json", _MAX_BYTES)
            lines = require_type(parse_json(data, any_text=True), list)
            copied_files |= {file.path: file for file in map(CopiedFile.of_line, lines)}
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"{files.root}/{UNFINISHED} does not describe an unfinished copy of ttlsnap ({error}). Remove "
            f"{files.root}, and copy again"
        ) from error
    return facts, copied_files


def _read_facts(document: Any, where: str) -> CopyFacts:
    facts: dict[str, Any] = require_type(document, dict)
    refuse_newer(facts.get("made_by"), where)
    if facts.get("format") not in range(1, FORMAT + 1):
        raise ValueError(f"format {facts.get('format')!r} is unknown")
    kinds = {"source": str, "made_at": str, "batch": int}
    for name, kind in kinds.items():
        require_type(facts[name], kind)
    return CopyFacts.from_json(facts)


def write_begun(files: Directory, facts: CopyFacts) -> None:
    """Record what an unfinished copy is of."""
    files.mkdirs(UNFINISHED)
    files.replace(BEGUN, json.dumps(facts.to_json(), indent=1).encode())


def part_numbers(files: Directory) -> list[int]:
    """Return the numbers of the records of an unfinished copy, oldest first."""
    numbers = (layout.parse_number(info.name.removesuffix(".json")) for info in files.list(UNFINISHED))
    return sorted(number for number in numbers if number is not None)


def write_part(files: Directory, number: int, copied_files: Iterable[CopiedFile]) -> None:
    """Record files that are complete, and on the disk."""
    lines = [file.to_line() for file in copied_files]
    files.replace(f"{UNFINISHED}/{number}.json", json.dumps(lines).encode())


def write_manifest(files: Directory, manifest: Manifest) -> None:
    """Write the manifest: the copy is complete."""
    files.replace(MANIFEST, manifest.to_bytes())
