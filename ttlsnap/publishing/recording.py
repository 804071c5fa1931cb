"""The writing of a run's journal. Only a transaction and ``recover`` do that."""

from __future__ import annotations

import json
from dataclasses import replace
from secrets import token_bytes

from ttlsnap.checkpoint import layout
from ttlsnap.errors import BusyError
from ttlsnap.interrupts import note_run
from ttlsnap.publishing.journal import MAX_JOURNAL_BYTES, Journal, Status, parse_document
from ttlsnap.storage.directory import SCRATCH, Directory


def write_journal(files: Directory, journal: Journal) -> None:
    """Write the journal of a new run whole and durably."""
    files.mkdirs(layout.run_directory(journal.run))
    _write(files, journal, instead_of=b"")


def reserve_space(files: Directory, journal: Journal) -> None:
    """Write a file as large as what the end of a run writes, so that a run on a full disk fails before it begins."""
    if files.failures_are_final:  # a disk
        with files.writer(_reserve_path(journal.run)) as file:
            # Random bytes, because a file system may compress others, or store zeros as a hole.
            file.write(token_bytes(len(_serialize(journal)) + len(journal.planned or "")))
        files.sync(layout.run_directory(journal.run))


def free_space(files: Directory, journal: Journal) -> None:
    """Remove the file that ``reserve_space`` wrote. ``recover`` removes it, too, as a scratch file."""
    if files.failures_are_final:
        files.remove(_reserve_path(journal.run))
        files.sync(layout.run_directory(journal.run))


def _reserve_path(run: str) -> str:
    return f"{layout.run_directory(run)}/reserve{SCRATCH}"


def _serialize(journal: Journal) -> bytes:
    return json.dumps(journal.to_json(), indent=1).encode()


def rewrite_journal(files: Directory, journal: Journal) -> Journal:
    """Replace the journal of an open run. Raise BusyError if another process has closed it or taken the run over."""
    old_bytes = files.read(journal.path, MAX_JOURNAL_BYTES)
    old_fields = parse_document(old_bytes, journal.path)
    if (old_fields.get("status"), old_fields.get("takeovers", 0)) not in {
        ("open", journal.takeovers),
        ("open", journal.takeovers - 1),
    }:
        raise BusyError(
            f"{files.root}: another process has taken over run {journal.run}. This process changes nothing more"
        )
    _write(files, journal, instead_of=old_bytes)
    return journal


def close_journal(files: Directory, journal: Journal, status: Status) -> Journal:
    """Mark a run as ended."""
    return rewrite_journal(files, replace(journal, status=status))


def _write(files: Directory, journal: Journal, instead_of: bytes) -> None:
    note_run(files.root, journal.run, "open")
    files.replace(journal.path, _serialize(journal), instead_of=instead_of)
    note_run(files.root, journal.run, journal.status)
