"""The logs of sources that read files: without them, a source does not know which files it has read.

    sources/<source>/<n>           "v1" (LF {"path": "...", "timestamp": n, "batchId": n})+
    sources/<source>/<n>.compact   the same, for 0 to n together

When the query starts, Spark reads them from the last ``.compact`` to the end. Spark records a file before it plans the
batch that reads it, so the logs may have more files than the offsets name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.diagnosis.problems import Problem, leads_outside, problem
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.storage.directory import Directory

_COMPACT = ".compact"
_MAX_LINE = 1 << 20
# Nearly all lines, perhaps millions, have this form. To match them takes an eighth of the time of parsing.
_PLAIN = re.compile(r'\{"path":"[^"\\\x00-\x1f]+","timestamp":[0-9]+,"batchId":[0-9]+\}\n?')


def examine_file_logs(files: Directory, known: Mapping[int, int]) -> Iterator[Problem]:
    """Yield the problems in the logs of the sources in ``known``, which has the last log number of each."""
    for source, last in _with_logs(files, known).items():
        folder = f"sources/{source}"
        try:
            listed = {file.name: file for file in files.list(folder)}
        except RefusedError:
            yield leads_outside(files.root, folder)
            continue
        numbers = {name: layout.parse_number(name.removesuffix(_COMPACT)) for name in listed}
        batches = {name: number for name, number in numbers.items() if number is not None}
        compacted = [number for name, number in batches.items() if name.endswith(_COMPACT)]
        first = max((number for number in compacted if number <= last), default=-1)
        # Spark reads all of them, up to the newest.
        last = max((last, *(number for name, number in batches.items() if name.isdigit() and not listed[name].is_dir)))
        # The search ends at the first missing file, even if a damaged offset names a huge number.
        missing = next((number for number in range(first + 1, last + 1) if str(number) not in listed), None)
        if missing is not None:
            yield _problem(files, f"{folder}/{missing}", f"{files.root}/{folder}/{missing} is missing")
        for name, number in batches.items():
            if number > first or name == f"{first}{_COMPACT}":
                try:
                    _read(files, f"{folder}/{name}", listed[name].is_dir)
                except CorruptionError as error:
                    yield _problem(files, f"{folder}/{name}", error)
                except UnsupportedError as error:
                    yield problem(files.root, "unsupported", f"{folder}/{name}", error)
                except RefusedError:
                    yield leads_outside(files.root, f"{folder}/{name}")


def _with_logs(files: Directory, known: Mapping[int, int]) -> Mapping[int, int]:
    """Return the last log number of each source that has a log.

    A source that the query uses twice has two offsets and one log, and later sources then have lower numbers. So if
    there are fewer logs than offsets, but as many as different positions, each log has at least the lowest position.
    """
    try:
        numbers = (layout.parse_number(info.name) for info in files.list("sources") if info.is_dir)
        logs = sorted(number for number in numbers if number is not None)
    except RefusedError:
        return known  # reported for each source
    positions = set(known.values())
    if logs == list(range(len(logs))) and len(positions) <= len(logs) and set(known) - set(logs):
        return {source: min(positions) for source in logs if source in known}
    return known


def _problem(files: Directory, path: str, what: object) -> Problem:
    words = (
        f"{what}; source {path.split('/')[1]} records in it what it has read. Without it Spark does not start, or "
        "reads the input again"
    )
    return problem(files.root, "damaged-log", path, words)


def _read(files: Directory, path: str, is_dir: bool) -> None:
    """Read a whole log in pieces. Raise CorruptionError, or UnsupportedError for an unknown version."""
    where = f"{files.root}/{path}"
    if is_dir:
        raise CorruptionError(f"{where} is a folder, not a file")
    with open_checked(files, path) as log:
        version = log.readline(_MAX_LINE).decode("utf-8", "replace").strip()
        if re.fullmatch("v[0-9]+", version) and version != "v1":
            raise UnsupportedError(f"{where}: log version {version[:40]!r} is unknown (known: v1)")
        if version != "v1":
            raise CorruptionError(f"{where}: the first line is {version[:40]!r}, not a log version")
        number = 1
        while line := log.readline(_MAX_LINE):
            number += 1
            try:
                _require_entry(line.decode("utf-8"))
            except (ValueError, TypeError, KeyError) as error:
                raise CorruptionError(
                    f"{where}: line {number} is truncated, or does not name a file ({error!r})"
                ) from error
    if number == 1:
        raise CorruptionError(f"{where} does not name a file")


def _require_entry(line: str) -> None:
    if not _PLAIN.fullmatch(line):
        require_type(parse_json(line)["path"], str)
