"""The logs of sources that read files: without them such a source does not know what it has read.

    sources/<source>/<n>           "v1" (LF {"path": "...", "timestamp": n, "batchId": n})+
    sources/<source>/<n>.compact   the same, of 0 to n together

When the query starts, Spark reads them from the last ``.compact`` on to the very end: a file is taken note of before
the batch that reads it is planned, so there may be more than the offsets name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.diagnosis.problems import Problem, leads_outside, problem
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError
from ttlsnap.filesystem import Directory
from ttlsnap.strict_json import parse_json, typed

_COMPACT = ".compact"
_MAX_LINE = 1 << 20
# Nearly every line is of this form, and there may be millions: this takes an eighth of the time of parsing them.
_PLAIN = re.compile(r'\{"path":"[^"\\\x00-\x1f]+","timestamp":[0-9]+,"batchId":[0-9]+\}\n?')


def examine_file_logs(files: Directory, known: Mapping[int, int]) -> Iterator[Problem]:
    """What is wrong with the logs of the sources in ``known``, which is how far each had come."""
    for source, last in known.items():
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
        # However far the offset says it has come, no more is looked for than there is, and one.
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


def _problem(files: Directory, path: str, what: object) -> Problem:
    words = f"{what}; by it source {path.split('/')[1]} knows what it has read: Spark does not start, or reads it again"
    return problem(files.root, "damaged-log", path, words)


def _read(files: Directory, path: str, is_dir: bool) -> None:
    """Read a log through, in pieces; raises CorruptionError, or UnsupportedError for an unknown version."""
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
                raise CorruptionError(f"{where}: line {number} broke off, or names no file ({error!r})") from error
    if number == 1:
        raise CorruptionError(f"{where} names no file")


def _require_entry(line: str) -> None:
    if not _PLAIN.fullmatch(line):
        typed(parse_json(line)["path"], str)
