"""The journal of a run: its renames, so that an interrupted run can be finished or undone.

    _ttlsnap/runs/<run>/journal.json   the moves, in order, and how far the run has come
    _ttlsnap/runs/<run>/report.json    the run's report, for ``history``
    _ttlsnap/runs/<run>/staged/...     new files, under the paths they will have
    _ttlsnap/runs/<run>/backup/...     the files they replaced

Whoever takes over an interrupted run gives the last two folders new names, such as ``backup-2`` (see
``publishing.takeover``).

Every change to a checkpoint is a list of renames within it. The disk shows which of them are done. So the journal is
written only twice: ``open`` before the first change, and ``done`` or ``undone`` after the last one. It also records the
identity of the files that the run publishes and replaces, and of the logs of its batch (see ``FileFacts``). If a file
differs, another program has written it since, most likely Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import xxhash

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.own_paths import own_paths
from ttlsnap.checkpoint.source_logs import log_number
from ttlsnap.documents import ReadableDocument
from ttlsnap.errors import CorruptionError
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.storage.directory import OWN, Directory, FileInfo, each
from ttlsnap.storage.local import forget_cached
from ttlsnap.storage.trees import stat_files

Status = Literal["open", "done", "undone"]
BACKUP, STAGED = "backup", "staged"
_FOLDER = re.compile(rf"({re.escape(layout.RUNS)}/[^/]+/(?:{BACKUP}|{STAGED}))(?:-[1-9]\d{{0,8}})?(?=/)")
MAX_JOURNAL_BYTES = 1 << 30
_MAX_REPORT_BYTES = 64 << 20
_MAX_NUMBER = 1 << 63
_PIECE = 1 << 20


@dataclass(frozen=True)
class FileMove:
    """One rename within the checkpoint, from ``source`` to ``target`` (relative paths)."""

    source: str
    target: str


@dataclass(frozen=True)
class FileFacts:
    """The identity of a file: ``size`` in bytes, ``mtime_ns`` since the epoch, and the XXH3 (128 bits) of its bytes.

    ``digest`` is None for a file that the run only moved: size and time are enough if moving keeps the time.
    """

    path: str
    size: int
    mtime_ns: int
    digest: str | None = None


@dataclass(frozen=True)
class Journal(ReadableDocument):
    """The changes of one run. ``fence`` is the offset file that keeps Spark out, ``batch`` the batch of the state.

    ``number`` counts the journals of a checkpoint from 1: the order of the runs, independent of clocks.
    ``published`` identifies the files that the run publishes, and ``logs`` the logs of ``batch``. ``preserved`` are
    files that stay in their place, and that the backup has as well. ``planned`` is the text of the batch that replaces
    the fence, or None. ``replaces`` is the text of the planned batch that the fence replaces. ``leftovers`` identify
    the state files of later batches that were there before the run. ``replaced`` identify the old files, by their
    paths before the run; older journals have none. ``kept_logs`` are the other files in the folders of logs of sources
    that the run changes, or None if it changes none. ``takeovers`` counts the processes that have taken over the run
    from another one, if a rename takes two steps.
    """

    run: str
    number: int
    kind: Literal["compact", "import", "migrate", "restore", "rollback", "repair", "sources"]
    batch: int
    fence: str
    moves: tuple[FileMove, ...]
    status: Status
    undoes: str | None = None
    published: tuple[FileFacts, ...] = ()
    logs: tuple[FileFacts, ...] = ()
    preserved: tuple[str, ...] = ()
    planned: str | None = None
    replaces: str | None = None
    longest_gap_ms: int | None = None
    leftovers: tuple[FileFacts, ...] = ()
    replaced: tuple[FileFacts, ...] = ()
    kept_logs: tuple[str, ...] | None = None
    takeovers: int = 0

    @property
    def path(self) -> str:
        return journal_path(self.run)

    @property
    def has_new_state(self) -> bool:
        """Whether the run wrote new state, and did not only move files."""
        return self.kind in ("compact", "import", "migrate", "restore")

    @property
    def replaces_logs(self) -> bool:
        """Whether the run gave its batch other logs."""
        return self.kind in ("migrate", "restore", "sources")

    @property
    def to_backup(self) -> tuple[FileMove, ...]:
        """The moves of old files to the backup, which are first."""
        return tuple(move for move in self.moves if move.target.startswith(f"{layout.RUNS}/"))

    @property
    def new(self) -> tuple[FileMove, ...]:
        """The moves of files to their places."""
        return tuple(move for move in self.moves if move.source.startswith(f"{layout.RUNS}/"))

    @property
    def fence_batch(self) -> int | None:
        """The batch whose offset file the fence is, or None."""
        folder, _, name = self.fence.rpartition("/")
        return layout.parse_number(name) if folder == layout.OFFSETS else None


def journal_path(run: str) -> str:
    """Return the path of a run's journal."""
    return f"{layout.run_directory(run)}/journal.json"


def report_path(run: str) -> str:
    """Return the path of a run's report."""
    return f"{layout.run_directory(run)}/report.json"


def read_report(files: Directory, run: str) -> dict[str, Any] | None:
    """Return a run's report, or None. Raise CorruptionError for a file that is not a report."""
    if files.stat(report_path(run)) is None:
        return None
    try:
        document = parse_json(files.read(report_path(run), _MAX_REPORT_BYTES), any_text=True)
    except ValueError as error:
        raise CorruptionError(f"the report of run {run} is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise CorruptionError(f"the report of run {run} is not a JSON object")
    totals = document.get("totals", {})
    numbers = [document.get("batch"), document.get("longest_gap_ms")]
    numbers += totals.values() if isinstance(totals, dict) else ()
    if not isinstance(totals, dict) or not all(
        number is None or (type(number) is int and 0 <= number < _MAX_NUMBER) for number in numbers
    ):
        raise CorruptionError(f"the report of run {run} has a number or totals that ttlsnap never writes")
    return document


def staged_path(run: str, path: str) -> str:
    """Return the staged path of the new file for ``path``."""
    return f"{layout.run_directory(run)}/{STAGED}/{path}".rstrip("/")


def scratch_path(run: str) -> str:
    """Return the folder for the work on a run's partitions."""
    return f"{layout.run_directory(run)}/scratch"


def backup_path(run: str, path: str) -> str:
    """Return the path of the old file of ``path`` in the backup of a new run (see ``find_backup`` for others)."""
    return f"{layout.run_directory(run)}/{BACKUP}/{path}"


def find_backup(files: Directory, run: str) -> str:
    """Return the folder of a run's backup, which need not exist."""
    directory = layout.run_directory(run)
    names = [info.name for info in files.list(directory) if info.is_dir]
    return f"{directory}/{layout.newest_folder(names, BACKUP)}"


def folders_of(files: Directory, run: str, kind: str) -> list[str]:
    """Return the folders of a run of a kind, also those that a late request has made after a takeover."""
    directory = layout.run_directory(run)
    names = [info.name for info in files.list(directory) if info.is_dir and layout.folder_number(info.name, kind)]
    return [f"{directory}/{name}" for name in names]


def relocate(journal: Journal, names: Mapping[str, str]) -> Journal:
    """Return a journal with other names for the folders of runs."""

    def relocate_path(path: str) -> str:
        folder_match = _FOLDER.match(path)
        return (
            path if folder_match is None else names.get(folder_match[1], folder_match[1]) + path[folder_match.end() :]
        )

    return replace(
        journal, moves=tuple(FileMove(relocate_path(move.source), relocate_path(move.target)) for move in journal.moves)
    )


def is_same(files: Directory, facts: FileFacts, info: FileInfo | None) -> bool:
    """Return whether the file with ``info`` is the one that ``facts`` identify.

    The same size and time are enough. With another time (a copy, or a store that sets it on a move) the bytes decide.
    """
    if info is None or info.is_dir or info.size != facts.size:
        return False
    return info.mtime_ns == facts.mtime_ns or facts.digest is None or digest_of(files, facts.path) == facts.digest


def digest_of(files: Directory, path: str, *, from_disk: bool = False) -> str:
    """Return the XXH3 (128 bits, hexadecimal) of a file's bytes.

    ``from_disk`` reads a local file from its disk, and not from memory, which has what was written lately.
    """
    digest = xxhash.xxh3_128()
    with files.open(path) as file:
        if from_disk:
            forget_cached(file)
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def leftovers_of(files: Directory, listing: Iterable[str], batch: int) -> tuple[FileFacts, ...]:
    """Return the identities of the state files in a listing that a batch after ``batch`` has written."""
    return facts_of(files, (path for path in listing if is_later(path, batch)))


def is_later(path: str, batch: int) -> bool:
    """Return whether a file is a state file of a batch after ``batch``."""
    parsed_name = layout.parse_state_file(path.rpartition("/")[2]) if path.startswith(f"{layout.STATE}/") else None
    return parsed_name is not None and parsed_name.version > batch + 1


def facts_of(files: Directory, paths: Iterable[str]) -> tuple[FileFacts, ...]:
    """Return the identities of these files, which are read; those that do not exist are omitted."""

    infos = stat_files(files, paths)
    digests = each(files, lambda path: digest_of(files, path), infos)
    return tuple(
        FileFacts(path, info.size, info.mtime_ns, digest)
        for (path, info), digest in zip(infos.items(), digests, strict=True)
    )


def find_migrated(journals: Iterable[Journal], path: str) -> list[FileFacts]:
    """Return the facts of every log that a run has put at ``path``, such as offsets with other settings."""
    migrations = (journal for journal in journals if journal.replaces_logs and journal.status == "done")
    return [facts for journal in migrations for facts in journal.published if facts.path == path]


def read_journal(files: Directory, run: str) -> Journal | None:
    """Return the journal of a run; None if the run did not reach publishing."""
    path = journal_path(run)
    infos = files.list(layout.run_directory(run))
    if path.rpartition("/")[2] not in (info.name for info in infos):
        return None
    where = f"{files.root}/{path}"
    document = parse_document(files.read(path, MAX_JOURNAL_BYTES), where)
    try:
        journal = relocate(Journal.from_json(document), {})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _not_a_journal(where, error) from error
    _check_facts(journal, run, where)
    _check_moves(journal, where)
    return relocate(journal, _present_names(files, journal, infos))


def parse_document(data: bytes, where: str) -> dict[str, Any]:
    """Return the fields of a journal. Raise CorruptionError if ``data`` is not a JSON object."""
    try:
        return dict(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise _not_a_journal(where, error) from error


def _not_a_journal(where: str, error: Exception) -> CorruptionError:
    return CorruptionError(f"{where} is not a journal that ttlsnap wrote ({error!r}). Nothing was changed")


def _present_names(files: Directory, journal: Journal, infos: Iterable[FileInfo]) -> dict[str, str]:
    """Return the folders that the moves of a journal use, with the names that a takeover has given them."""
    directory, names = layout.run_directory(journal.run), [info.name for info in infos if info.is_dir]
    present_names = {
        f"{directory}/{kind}": f"{directory}/{layout.newest_folder(names, kind)}" for kind in (BACKUP, STAGED)
    }
    if journal.undoes is not None:
        present_names[f"{layout.run_directory(journal.undoes)}/{BACKUP}"] = find_backup(files, journal.undoes)
    return present_names


def _check_facts(journal: Journal, run: str, where: str) -> None:
    """Raise CorruptionError for a field that ttlsnap never writes."""
    numbers = (journal.number, journal.batch, journal.longest_gap_ms or 0, journal.takeovers)
    checks = {
        "run": journal.run == run,
        "kind": journal.kind in ("compact", "import", "migrate", "restore", "rollback", "repair", "sources"),
        "status": journal.status in ("open", "done", "undone"),
        "number": all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers),
        "undoes": isinstance(journal.undoes, str) if journal.kind == "rollback" else journal.undoes is None,
        "fence": isinstance(journal.fence, str) and journal.fence_batch is not None,
        "planned": isinstance(journal.planned, str | None),
        "replaces": isinstance(journal.replaces, str | None),
        "published": all(map(_is_valid, (*journal.published, *journal.logs, *journal.leftovers, *journal.replaced))),
        "kept_logs": all(isinstance(path, str) and _is_plain(path) for path in journal.kept_logs or ()),
        "preserved": all(
            isinstance(path, str) and _may_move(journal, path.split("/")) and _is_plain(path)
            for path in journal.preserved
        ),
    }
    wrong_fields = [name for name, is_right in checks.items() if not is_right]
    if wrong_fields:
        raise CorruptionError(f"{where}: its {wrong_fields[0]} is not what ttlsnap writes. Nothing was changed")


def _check_moves(journal: Journal, where: str) -> None:
    """Raise CorruptionError for a move that ttlsnap never makes."""
    for move in journal.moves:
        live_path = move.source if not move.source.startswith(f"{layout.RUNS}/") else move.target
        allowed_moves = [
            FileMove(live_path, backup_path(journal.run, live_path)),
            FileMove(staged_path(journal.run, live_path), live_path),
            *([FileMove(backup_path(journal.undoes, live_path), live_path)] if journal.undoes else []),
        ]
        if not (move in allowed_moves and _may_move(journal, live_path.split("/")) and _is_plain(live_path)):
            raise CorruptionError(
                f"{where} moves {move.source!r} to {move.target!r}, which ttlsnap never does. Nothing was changed"
            )


def _is_valid(facts: FileFacts) -> bool:
    numbers = (facts.size, facts.mtime_ns)
    return (
        isinstance(facts.path, str)
        and all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
        and isinstance(facts.digest, str | None)
    )


def _is_plain(path: str) -> bool:
    return {"", ".", ".."}.isdisjoint(path.split("/"))


def _may_move(journal: Journal, parts: list[str]) -> bool:
    """Return whether a run of this kind may move a file.

    A compaction and an import move state files, ledgers and a stale checksum of their fence. All other kinds also move
    logs, and one that changes sources moves the logs of these. A repair and its rollback also move files with paths of
    the checkpoint. A restore and its rollback move everything but ttlsnap's own files.
    """
    path = "/".join(parts)
    if journal.kind in ("restore", "rollback") and parts[0] != OWN:
        return True
    if parts[0] == layout.STATE or path.startswith(f"{layout.LEDGERS}/"):
        return True
    if journal.kind == "repair" and own_paths(layout.strip_checksum(path)) is not None:
        return True
    if journal.kind == "sources" and len(parts) == 3 and parts[0] == layout.SOURCES:
        return log_number(layout.strip_checksum(parts[2])) is not None
    is_log = len(parts) == 2 and parts[0] in (layout.OFFSETS, layout.COMMITS)
    if journal.kind in ("compact", "import"):
        return is_log and path in layout.checksum_files(journal.fence)
    return is_log and layout.parse_number(layout.strip_checksum(parts[1])) is not None
