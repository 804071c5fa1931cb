"""The logs of sources that read files; see ``ttlsnap.checkpoint.source_logs``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.source_logs import (
    describe_log_problem,
    describe_missing,
    find_sources,
    list_source_log,
    open_source_log,
)
from ttlsnap.diagnosis.problems import Problem, leads_outside, problem
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.storage.directory import Directory

_MAX_LINE = 1 << 20
# Nearly all lines, perhaps millions, have this form. To match them takes an eighth of the time of parsing.
_PLAIN = re.compile(r'\{"path":"[^"\\\x00-\x1f]+","timestamp":[0-9]+,"batchId":[0-9]+\}\n?')


def examine_file_logs(files: Directory, positions: Mapping[str, int]) -> Iterator[Problem]:
    """Yield the problems in the logs of the sources in ``positions``, which has the last log number of each."""
    for source, last_number in find_sources(files, positions).items():
        try:
            log = list_source_log(files, source, last_number)
        except RefusedError:
            yield leads_outside(files.root, f"{layout.SOURCES}/{source}")
            continue
        if (missing_file := describe_missing(files, log)) is not None:
            yield problem(files.root, "damaged-log", *missing_file)
        for name in log.read:
            path = f"{log.folder}/{name}"
            try:
                _read(files, path, log.files[name].is_dir)
            except CorruptionError as error:
                yield problem(files.root, "damaged-log", path, describe_log_problem(path, error))
            except UnsupportedError as error:
                yield problem(files.root, "unsupported", path, error)
            except RefusedError:
                yield leads_outside(files.root, path)


def _read(files: Directory, path: str, is_dir: bool) -> None:
    """Read a whole log in pieces. Raise CorruptionError, or UnsupportedError for an unknown version."""
    where = f"{files.root}/{path}"
    if is_dir:
        raise CorruptionError(f"{where} is a folder, not a file")
    with open_source_log(files, path) as log:
        line_number = 1
        while line := log.readline(_MAX_LINE):
            line_number += 1
            try:
                _require_entry(line.decode("utf-8"))
            except (ValueError, TypeError, KeyError) as error:
                raise CorruptionError(
                    f"{where}: line {line_number} is truncated, or does not name a file ({error!r})"
                ) from error
    if line_number == 1:
        raise CorruptionError(f"{where} does not name a file")


def _require_entry(line: str) -> None:
    if not _PLAIN.fullmatch(line):
        require_type(parse_json(line)["path"], str)
