"""``copy``: a checkpoint as of one batch, in another place, also while its query runs.

    choose    the batch, and the files that belong to it
    send      what the copy does not have yet
    compare   nothing that was sent may have changed in the source; otherwise choose a newer batch
    finish    remove what does not belong to the copy, write the manifest, remove the fence

Nothing is written to the source. Until the end, a fence keeps Spark from starting on the copy.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import xxhash

from ttlsnap.amounts import such_files
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import COPY_MARK, fenced, is_copy_fence, read_logs
from ttlsnap.checkpoint.starting import WITHOUT_METADATA
from ttlsnap.clock import iso, iso_of
from ttlsnap.copies.access import begin_copy, describe_copy, share_copy
from ttlsnap.copies.earlier import EarlierCopy
from ttlsnap.copies.manifest import (
    DERIVED,
    MANIFEST,
    UNFINISHED,
    CopiedFile,
    CopyFacts,
    Manifest,
    part_numbers,
    read_begun,
    read_manifest,
    write_begun,
    write_manifest,
    write_part,
)
from ttlsnap.copies.report import CopyReport
from ttlsnap.copies.selection import SelectedFile, Selection, find_changed, select_files
from ttlsnap.copies.transfer import Sender
from ttlsnap.copies.verify import find_differences, find_others, is_unused, refuse_altered
from ttlsnap.errors import (
    BusyError,
    CorruptionError,
    RefusedError,
    StorageError,
    TtlsnapError,
    UsageError,
    tidy_after_error,
)
from ttlsnap.printable import shell_word
from ttlsnap.publishing.liveness import planned_batch
from ttlsnap.storage.directory import OWN, Directory
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.storage.trees import stat_files, sync_names
from ttlsnap.storage.uris import is_within

_ATTEMPTS = 5
_PAUSE_S = 0.1
"""The pause before a further attempt, in seconds, times the number of attempts so far."""
PART = 1000
"""Files that are sent between two records of what has arrived."""


class CopyListener(Protocol):
    """Learns how far a copy is. ``confirm`` returns whether to replace the state of a checkpoint."""

    def chosen(self, batch: int, files: int, size: int) -> None: ...
    def arrived(self, files: int, size: int) -> None: ...
    def confirm(self, report: CopyReport) -> bool: ...


class SilentCopyListener:
    """A listener that ignores everything, and agrees."""

    def chosen(self, batch: int, files: int, size: int) -> None:
        pass

    def arrived(self, files: int, size: int) -> None:
        pass

    def confirm(self, report: CopyReport) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class CopyRequest:
    """The arguments of ``copy``.

    ``source`` is the checkpoint, and ``target`` the place of the copy: a path, or a URI of an object store or HDFS.

    ``batch`` is the batch that the copy continues from, by default the last committed one. ``new_id`` gives the copy
    another query id, so that it can run beside the original. ``verify`` reads everything in the copy again.

    ``onto`` is the place of an earlier copy of the same checkpoint, with which the new one shares files.
    ``parallelism`` is the number of files that are sent at the same time.

    With ``replace``, ``target`` may be a checkpoint of the same query, which gets the state and the positions of
    ``source``. Only then do ``stopped`` and ``planned_batch`` apply, which are as for ``compact``, and ``scratch``, a
    local folder for the work. ``parallelism`` is also the number of partitions that are built at the same time.
    ``last_batch`` is a batch that the query has run, as its sink knows it: the next ones get later numbers. With it,
    nothing needs to be left of the checkpoint.
    """

    source: str = field(kw_only=False)
    target: str = field(kw_only=False)
    batch: int | None = None
    new_id: bool = False
    verify: bool = False
    onto: str | None = None
    dry_run: bool = False
    replace: bool = False
    last_batch: int | None = None
    stopped: bool = False
    planned_batch: bool = True
    scratch: str | None = None
    parallelism: int | None = None
    listener: CopyListener | None = None


def make_copy(request: CopyRequest) -> CopyReport:
    """Copy a checkpoint to a new place; see ``ttlsnap.backups.run.copy``."""
    started = time.monotonic()
    source, target = open_directory(request.source), open_directory(request.target)
    require_apart(source, target)
    earlier = None
    if request.onto is not None:
        earlier = EarlierCopy.open(open_directory(request.onto))
        if earlier.is_marked() and not has_begun(request.target):
            raise RefusedError(
                f"{earlier.files.root} is damaged, as a later copy has found. Name another earlier copy, or leave out "
                "--onto"
            )
        for directory in (source, target):
            require_apart(directory, earlier.files)
    job = _Copy(source, target, request, earlier)
    if request.dry_run:
        report = job.foresee()
    else:
        is_new = target.stat("") is None
        with tidy_after_error(partial(target.remove_folder, "")) if is_new else nullcontext():
            target.mkdirs("")
            with target.lock():
                report = job.run()
    return replace(report, seconds=time.monotonic() - started)


def require_apart(source: Directory, target: Directory) -> None:
    """Raise UsageError if one of the directories is within the other, also by another mount of the same folder."""
    if is_within(source.root, target.root) or is_within(target.root, source.root) or _have_one_folder(source, target):
        raise UsageError(f"{target.root} and the checkpoint {source.root} must not contain each other")


def _begun_batch(selection: Selection) -> int | None:
    """Return the batch after that of a copy if Spark has begun and not committed it. ttlsnap's planned one is none."""
    logs = selection.checkpoint.logs
    is_begun = selection.batch == logs.commits[-1] < logs.offsets[-1] and planned_batch(selection.runs, logs) is None
    return logs.offsets[-1] if is_begun else None


def has_begun(place: str) -> bool:
    """Return whether a place has an unfinished copy; False if that cannot be read."""
    with suppress(TtlsnapError):
        return read_begun(open_directory(place)) is not None
    return False


def _command(source: str, target: Directory, *, new_id: bool) -> str:
    return f"ttlsnap copy {shell_word(source)} {shell_word(target.root)}{' --new-id' if new_id else ''}"


def _have_one_folder(first: Directory, second: Directory) -> bool:
    """Return whether one of two local directories is in the other, which has another path there."""
    if not (isinstance(first, LocalDirectory) and isinstance(second, LocalDirectory)):
        return False
    places = Path(first.root), Path(second.root)
    return any(
        folder.exists() and outer.exists() and folder.samefile(outer)
        for inner, outer in (places, places[::-1])
        for folder in (inner, *inner.parents)
    )


class _Copy:
    """One call of ``copy``. ``copied`` are the files that the copy has already."""

    def __init__(self, source: Directory, target: Directory, request: CopyRequest, earlier: EarlierCopy | None) -> None:
        self._onto = earlier
        # A command that was interrupted, and is repeated, may have marked the earlier copy itself.
        self._earlier = None if earlier is None or earlier.is_marked() else earlier
        self._damaged_onto: tuple[str, ...] = ()
        self._shared = list[CopiedFile]()
        self._source, self._target, self._request = source, target, request
        self._listener = request.listener or SilentCopyListener()
        self._copied: dict[str, CopiedFile] = {}
        self._sent = self._sent_bytes = self._kept = self._attempts = 0

    def foresee(self) -> CopyReport:
        """Return the report of a dry run."""
        facts, self._attempts = self._find_begun(), 1
        selection = self._choose(facts)
        warnings = refuse_altered(self._source, selection, "Nothing was copied.")
        self._kept = len(selection.files) - len(self._find_missing(selection))
        warnings += (*selection.warnings, *self._warn_of_skipping(selection))
        return replace(self._report(selection, None), warnings=tuple(warnings))

    def run(self) -> CopyReport:
        """Make the copy, or what is missing of it."""
        facts = self._find_begun()
        reason = ""
        for attempt in range(_ATTEMPTS):
            self._attempts = attempt + 1
            time.sleep(_PAUSE_S * attempt)
            try:
                selection = self._choose(facts)
                facts = self._begin(selection, facts)
                changed_path = self._send(selection) or find_changed(self._source, selection)
                if changed_path is None:
                    return self._finish(selection, facts)
                reason = f"{self._source.root}/{changed_path} was removed or replaced"
            except BusyError as error:  # the same, while the files were listed
                reason = error.message
        raise RefusedError(
            f"{self._source.root} changes faster than it can be copied: {_ATTEMPTS} attempts failed, the last one "
            f"because {reason}. Let the query keep more batches (spark.sql.streaming.minBatchesToRetain), or stop it, "
            "and repeat the command: it goes on with what has arrived"
        )

    def _find_begun(self) -> CopyFacts | None:
        """Return what the unfinished copy in the target is of. Raise RefusedError for anything else that is there."""
        target = self._target
        begun = read_begun(target)
        if begun is not None:
            facts, self._copied = begun
            self._refuse_used()
            if facts.source != self._source.root or (facts.query_id != facts.source_query_id) != self._request.new_id:
                command = _command(facts.source, target, new_id=facts.query_id != facts.source_query_id)
                raise RefusedError(
                    f"{target.root} has an unfinished copy of {facts.source}. To go on with it: {command}. Otherwise "
                    "name another place"
                )
            return facts
        if any(info.name != OWN for info in target.list("")) or target.stat(MANIFEST) is not None:
            raise RefusedError(self._describe_existing())
        return None

    def _refuse_used(self) -> None:
        """Raise RefusedError if somebody has removed the fence of an unfinished copy, and has worked on it."""
        logs = read_logs(self._target)
        is_fenced = is_copy_fence(logs.fence) or not logs.offsets
        if not is_fenced or self._target.list(layout.RUNS):
            raise RefusedError(
                f"{self._target.root} is an unfinished copy, but a query or a run of ttlsnap has worked on it. Nothing "
                "was changed. Name another place"
            )

    def _describe_existing(self) -> str:
        target, manifest = self._target, read_manifest(self._target)
        if manifest is not None:
            what = f"is a complete copy of {manifest.facts.source} as of batch {manifest.facts.batch}"
            return f"{target.root} exists already, and {what}. Name another place"
        fence = read_logs(target).fence
        if is_copy_fence(fence):
            return fenced(target, fence).message  # an unfinished --output
        words = f"{target.root} exists already, and is not an unfinished copy. Name another place"
        if target.stat(layout.STATE) is not None:
            words += f". To restore {target.root} from {self._source.root}, add --replace"
        return words

    def _choose(self, facts: CopyFacts | None) -> Selection:
        """Return the files of the wanted batch, or of the one that was begun, or of the newest one."""
        query_id = facts.query_id if facts is not None and self._request.new_id else None
        if query_id is None and self._request.new_id:
            query_id = str(uuid4())
        newest = read_logs(self._source).commits[-1:]
        wanted = self._request.batch
        if facts is not None and wanted is None and self._attempts == 1:
            with suppress(UsageError, CorruptionError):  # the batch can no longer be restored
                return self._select(facts.batch, query_id)
        try:
            return self._select(wanted, query_id)
        except (UsageError, CorruptionError) as error:
            if read_logs(self._source).commits[-1:] == newest:
                raise
            raise BusyError(error.message) from error

    def _select(self, batch: int | None, query_id: str | None = None) -> Selection:
        source = for_reading(self._source)
        selection = select_files(source, batch, self._target.root, query_id)
        if source.stat(layout.METADATA) is None:
            raise CorruptionError(f"{source.root}/{WITHOUT_METADATA}")
        if self._earlier is not None:
            self._earlier.require_original(self._source, selection.checkpoint.query_id)
        return selection

    def _begin(self, selection: Selection, facts: CopyFacts | None) -> CopyFacts:
        """Raise the fence, and record what is copied."""
        target = self._target
        if facts is None:
            begin_copy(self._source, target)
        facts = CopyFacts(
            made_at=iso_of(datetime.now(UTC)),
            source=self._source.root,
            batch=selection.batch,
            query_id=selection.query_id,
            source_query_id=selection.checkpoint.query_id,
            last_run=selection.runs.last_published,
            verify=self._request.verify or (facts is not None and facts.verify),
            state_at=self._state_at(selection),
        )
        write_begun(target, facts)
        fence = layout.offset_file(selection.batch + 1)
        command = _command(self._source.root, target, new_id=self._request.new_id)
        target.mkdirs(layout.OFFSETS)
        target.replace(fence, f"{COPY_MARK}; run `{command}`\n".encode())
        return facts

    @cached_property
    def _manifest_of_source(self) -> Manifest | None:
        """The manifest of the source, if that is a copy itself."""
        return read_manifest(for_reading(self._source))

    def _state_at(self, selection: Selection) -> str | None:
        """Return the last time at which the checkpoint is known to have had this state; that of a copy is recorded."""
        manifest = self._manifest_of_source
        if manifest is not None and is_unused(manifest, selection.runs, selection.checkpoint.logs):
            return manifest.facts.state_at
        if read_logs(self._source).commits[-1:] == (selection.batch,):
            return iso(time.time_ns() // 1000)
        return iso(selection.checkpoint.batch.timestamp_ms * 1000)

    def _send(self, selection: Selection) -> str | None:
        """Send what the copy does not have. Return the path of a file that has changed in the source, or None."""
        missing_files = self._find_missing(selection)
        self._kept = len(selection.files) - len(missing_files)
        self._listener.chosen(selection.batch, len(missing_files), sum(file.info.size for file in missing_files))
        # Without the id, Spark would write one of its own as soon as somebody starts it, even if the fence stops it.
        missing_files.sort(key=lambda file: (file.path != layout.METADATA, file.path))
        return self._send_files(missing_files)

    def _send_files(self, files: Sequence[SelectedFile]) -> str | None:
        """Send files, and record them. Return the path of a file that has changed in the source, or None."""
        sender = Sender(self._source, self._target, self._request.parallelism, self._earlier)
        first_part = max(part_numbers(self._target), default=-1) + 1
        for number, start in enumerate(range(0, len(files), PART), first_part):
            copied_files, changed_paths = sender.send(files[start : start + PART])
            self._refuse_other_content(copied_files)
            sync_names(self._target, [file.path for file in copied_files])
            self._copied |= {file.path: file for file in copied_files}
            write_part(self._target, number, copied_files)
            size = sum(file.size for file in copied_files)
            self._sent += len(copied_files) - len(sender.shared)
            self._sent_bytes += size - sum(file.size for file in sender.shared)
            self._listener.arrived(len(copied_files), size)
            self._shared, sender.shared = [*self._shared, *sender.shared], []
            if changed_paths:
                return changed_paths[0]
        return None

    def _refuse_other_content(self, copied_files: Sequence[CopiedFile]) -> None:
        """Raise StorageError if a file that has not changed in the source has another content than when it was sent."""
        for file in copied_files:
            earlier = self._copied.get(file.path)
            if earlier is None or file.changed_ns == DERIVED or earlier.digest == file.digest:
                continue
            if (earlier.size, earlier.changed_ns) == (file.size, file.changed_ns):
                raise StorageError(
                    f"{self._source.root}/{file.path} was read twice, and had another content the second time, "
                    "although it was not changed. The copy is not complete. Check the disk and the memory, and name "
                    "another place for the copy"
                )

    def _find_missing(self, selection: Selection) -> list[SelectedFile]:
        infos = stat_files(self._target, [file.path for file in selection.files if file.path in self._copied])

        def has(file: SelectedFile) -> bool:
            if file.path.startswith(f"{layout.OFFSETS}/"):
                return False  # the fence of an earlier attempt may have taken its place
            copied, info = self._copied.get(file.path), infos.get(file.path)
            if copied is None or info is None or info.size != copied.size:
                return False
            if file.content is not None:
                return copied.digest == xxhash.xxh3_128_hexdigest(file.content)
            return (copied.size, copied.changed_ns) == (file.info.size, file.info.mtime_ns)

        return [file for file in selection.files if not has(file)]

    def _finish(self, selection: Selection, facts: CopyFacts) -> CopyReport:
        target = self._target
        fence = layout.offset_file(selection.batch + 1)
        # Offsets of an attempt for a later batch go before its fence, so the newest file is always a fence.
        paths = {file.path for file in selection.files} | {fence}
        other_paths = sorted(find_others(target, paths), key=layout.number_of_log)
        for path in other_paths:
            target.remove(path)
        sync_names(target, other_paths)
        warnings = self._replace_wrong(selection, facts, fence) if facts.verify else []
        unchanged = (file.path for file in selection.files if file.content is None and not file.parts)
        digests = {path: self._copied[path].digest for path in unchanged}
        warnings += refuse_altered(self._source, selection, "The copy is not complete.", digests)
        manifest = self._manifest(selection, facts)
        write_manifest(target, manifest)
        warnings += (*self._lower_fence(fence), *selection.warnings, *self._warn_of_skipping(selection))
        report = self._report(selection, manifest)
        place = self._onto.files.root if self._onto is not None and report.onto_is_damaged else None
        if place is not None and not any(place in warning for warning in warnings):
            doctor = f"ttlsnap doctor {shell_word(place)}"
            warnings.append(f"{place} is damaged. Do not restore from it. To see what is wrong: {doctor}")
        return replace(report, warnings=tuple(warnings))

    def _manifest(self, selection: Selection, facts: CopyFacts) -> Manifest:
        return Manifest(facts, {file.path: self._copied[file.path] for file in selection.files})

    def _replace_wrong(self, selection: Selection, facts: CopyFacts, fence: str) -> list[str]:
        """Read everything in the copy, and send what is wrong once more. Return warnings."""
        target = self._target
        wrong = self._find_wrong(selection, facts, fence)
        if not wrong:
            return []
        path, words = wrong[0]
        warning = f"{target.root}/{path} {words}{such_files(len(wrong))}. It was copied again. Check the disk"
        wrong_paths = {path for path, _ in wrong}
        wrong_files = [file for file in selection.files if file.path in wrong_paths]
        shared_paths = set(self._earlier.find_damaged(wrong_files)) if self._earlier is not None else set()
        self._damaged_onto = tuple(sorted({*self._damaged_onto, *shared_paths}))
        if self._earlier is not None and shared_paths:
            earlier = self._earlier.files.root
            self._earlier.mark_damaged(target.root)  # first: a repeated command finds the right files in this copy
            warning = (
                f"{earlier}/{min(shared_paths)} is damaged{such_files(len(shared_paths))}, so it was copied from "
                f"{self._source.root}. Do not restore from {earlier}. To see what is wrong with it: ttlsnap doctor "
                f"{shell_word(earlier)}"
            )
        self._earlier = None
        self._shared = [file for file in self._shared if file.path not in wrong_paths]
        changed_path = self._send_files(wrong_files) or find_changed(self._source, selection)
        if changed_path is not None:
            raise BusyError(f"{self._source.root}/{changed_path} was removed or replaced")
        wrong = self._find_wrong(selection, facts, fence)
        if wrong:
            path, words = wrong[0]
            raise StorageError(
                f"{target.root}/{path} {words}, although it was copied twice{such_files(len(wrong))}. The copy is not "
                "complete. Check the disk, and repeat the command"
            )
        return [warning]

    def _find_wrong(self, selection: Selection, facts: CopyFacts, fence: str) -> list[tuple[str, str]]:
        """Read everything in the copy. Return the files that differ from what was sent, and what is wrong with each."""
        differences = find_differences(self._target, self._manifest(selection, facts))
        return [(path, words) for path, words in differences if path != fence]

    def _warn_of_skipping(self, selection: Selection) -> list[str]:
        """Return a warning if a backup is copied to the place of its original: sinks know the next batches."""
        manifest = None if self._request.new_id else self._manifest_of_source
        if manifest is None or manifest.facts.source != self._target.root:
            return []
        command = f"{_command(self._source.root, self._target, new_id=False)} --replace --last-batch N"
        return [
            f"if the query has run batches after {selection.batch}, a file sink or a Delta table skips new ones with "
            "the same numbers, and their rows are lost. Then, before you start the query, remove "
            f"{self._target.root}, and run: {command}, where N is the last batch that the sink has"
        ]

    def _lower_fence(self, fence: str) -> tuple[str, ...]:
        """Let others use a complete copy. Return warnings for the user.

        Once the fence is gone, a query may use the copy, and another call must not go on with it. So it goes last.
        """
        is_given = share_copy(self._source, self._target)
        warnings = describe_copy(self._source, self._target, given=is_given)
        self._target.remove_tree(UNFINISHED)
        self._target.remove(fence)
        self._target.sync(layout.OFFSETS)
        return warnings

    def _report(self, selection: Selection, manifest: Manifest | None) -> CopyReport:
        return CopyReport(
            source=self._source.root,
            target=self._target.root,
            batch=selection.batch,
            source_batch=selection.batch,
            begun_batch=_begun_batch(selection),
            query_id=selection.query_id,
            new_id=self._request.new_id,
            dry_run=self._request.dry_run,
            complete=manifest is not None,
            files=len(selection.files),
            bytes=selection.size,
            sent=self._sent,
            sent_bytes=self._sent_bytes,
            shared=len(self._shared),
            shared_bytes=sum(file.size for file in self._shared),
            onto_is_damaged=self._onto is not None and self._onto.is_marked(),
            damaged_onto=self._damaged_onto,
            kept=self._kept,
            attempts=max(self._attempts, 1),
            verified=manifest is not None and manifest.facts.verify,
        )
