"""The logs of sources that read files; see ``ttlsnap.checkpoint.source_logs``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.source_logs import (
    check_source_log,
    describe_log_problem,
    describe_missing,
    find_sources,
    list_source_log,
)
from ttlsnap.diagnosis.problems import Problem, leads_outside, problem
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError
from ttlsnap.storage.directory import Directory


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
                check_source_log(files, path, log.files[name])
            except CorruptionError as error:
                yield problem(files.root, "damaged-log", path, describe_log_problem(path, error))
            except UnsupportedError as error:
                yield problem(files.root, "unsupported", path, error)
            except RefusedError:
                yield leads_outside(files.root, path)
