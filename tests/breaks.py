"""Faults put into ttlsnap on purpose. For each of them, some test must fail.

    python -m tests.breaks                     all of them
    python -m tests.breaks 3 17                some of them, by their numbers
    python -m tests.breaks avro stores/hdfs    those in some folders
    python -m tests.breaks --list              list them by folder, and try none
    python -m tests.breaks --jobs 2            try two at a time

Each fault is put into a copy of the repository. There the tests of its folder run, as ``make test`` selects them: first
those that need no Spark, and only if none of them fails, the others. A fault that no test finds is an error, and so is
one whose code no longer exists.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from .matrix import seed

ROOT = Path(__file__).parents[1]
SLICES = ("not spark and not wide", "spark and not wide")
"""The tests that try a fault, one slice after the other."""

_IGNORED = shutil.ignore_patterns(".git", ".venv*", "build", ".*_cache", ".hypothesis", "site")
_NO_TESTS = 5  # pytest's exit code if the slice has no tests


@dataclass(frozen=True)
class Break:
    """The code ``old`` of a ``file`` of ttlsnap replaced by ``new``. A test in the folder of tests of that name fails.

    ``found_by`` narrows the folder to some of its files or folders.
    """

    what: str
    file: str
    old: str
    new: str
    found_by: str | Sequence[str] = ()

    @property
    def folder(self) -> str:
        """The folder of the broken file, such as ``stores/hdfs``."""
        return self.file.rpartition("/")[0]

    @property
    def tests(self) -> list[str]:
        """The paths of the tests that try it."""
        found = [self.found_by] if isinstance(self.found_by, str) else self.found_by
        folder = f"tests/{self.file.partition('/')[0]}"
        return [f"{folder}/{name}" for name in found] or [folder]


BREAKS = (
    Break(
        "bytes after the last field of an Avro row are ignored",
        "avro/decode.py",
        "if bytes_left.any():",
        "if False:",
        "test_damage.py",
    ),
    Break(
        "old Avro values are read with the new schema",
        "avro/values.py",
        "schema = schemas.by_id.get(number)",
        "schema = schemas.by_id.get(number) and schemas.current",
        "test_damage.py",
    ),
    Break(
        "negative times come after all others in an index",
        "avro/keys.py",
        "np.where(nulls, _NULL, np.where(numbers < 0, _NEGATIVE, _POSITIVE))",
        "np.where(nulls, _NULL, _POSITIVE)",
        "test_layouts.py",
    ),
    Break(
        "columns that changed places are not reported",
        "check/schemas.py",
        "        _add_other_order(comparison, place, how, old, new)\n",
        "",
        "test_counterexamples.py",
    ),
    Break(
        "a list of another type reuses a buffer",
        "check/groups.py",
        "if new_buffer is not None and old_buffer.layout != new_buffer.layout:",
        "if False:",
        "test_counterexamples.py",
    ),
    Break(
        "a cast back and forth changes nothing",
        "check/expressions.py",
        "_is_harmless_cast(old) and not old.has_cast",
        "_is_harmless_cast(old)",
        "test_expressions.py",
    ),
    Break(
        "two texts in parentheses are one expression",
        "check/trees.py",
        "*(part.digest for part in self.parts)",
        "*(part.digest for part in self.parts[1:])",
        "test_trees.py",
    ),
    Break(
        "an ignored finding also covers another change",
        "check/ignores.py",
        "self.digest in (None, finding.digest)",
        "True",
        "test_ignores.py",
    ),
    Break(
        "all time zones without an offset that stays the same are one",
        "check/time_zones.py",
        "else _read_rules(name)",
        'else b""',
        "test_time_zones.py",
    ),
    Break(
        "an ignored finding of one store hides findings of others",
        "check/ignores.py",
        'place.startswith(f"{self.where}.")',
        "place.startswith(self.where)",
        "test_ignores.py",
    ),
    Break(
        "the verdict of a check is that of its mildest finding",
        "check/findings.py",
        "return max(verdicts,",
        "return min(verdicts,",
        "test_check.py",
    ),
    Break(
        "the text of a finding becomes a command of GitHub",
        "check/report_github.py",
        'return text.replace("%", "%25").replace("\\r", "%0D").replace("\\n", "%0A")',
        "return text",
        "test_reports.py",
    ),
    Break(
        "Hadoop's checksums are not compared",
        "checkpoint/file_checksums.py",
        "if wrong_index is not None:",
        "if False:",
        "test_checkpoint.py",
    ),
    Break(
        "a fence counts as a batch",
        "checkpoint/logs.py",
        "if first_line.startswith(FENCE_MARK.encode()):",
        "if False:",
    ),
    Break(
        "a planned batch has the watermark of the batch before it",
        "checkpoint/logs.py",
        "max(batch.watermark_ms or 0, batch.next_watermark_ms or 0)",
        "batch.watermark_ms or 0",
    ),
    Break(
        "a missing partition is not noticed",
        "checkpoint/checkpoint.py",
        "if not first_gap == len(partitions) == expected_count:",
        "if False:",
        "test_checkpoint.py",
    ),
    Break(
        "the failure of one of several targets gives the exit code 0",
        "cli/compact.py",
        "code = max(code, error.exit_code)",
        "code = 0",
        "test_commands.py",
    ),
    Break(
        "an option that does not apply to a table is ignored",
        "cli/groups.py",
        "return [option for option, value in values_of(group, *names).items() if value != defaults[option]]",
        "return []",
        "test_options_of_tables.py",
    ),
    Break(
        "a full disk below the standard output is not reported",
        "cli/output.py",
        'raise OutputError(f"cannot write to the standard output: {error.strerror or error}") from error',
        "return",
        "test_exit_codes.py",
    ),
    Break(
        "a run is published although its user says no",
        "cli/progress.py",
        "return ask_person(_question(report), stopped=self._stopped or report.output is not None)",
        "return ask_person(_question(report), stopped=True) or True",
        "test_commands.py",
    ),
    Break(
        "check succeeds although some things could not be compared",
        "cli/check.py",
        "if not code and self.strict and report.unseen and not report.is_new:",
        "if False:",
        "test_check.py",
    ),
    Break(
        "a run may drop every entry",
        "compaction/drop_limit.py",
        "return self.dropped > _ALMOST_ALL * self.entries and",
        "return False and",
        "test_max_drop.py",
    ),
    Break(
        "a store in which a migration drops nothing is lost",
        "compaction/linked.py",
        "if changed or task.whole else None",
        "if changed else None",
        "test_publish.py",
    ),
    Break(
        "an incremental run visits the same partitions every time",
        "compaction/incremental.py",
        "tasks_left = [task for task in tasks if _visit(task) not in self._visited_before]",
        "tasks_left = list(tasks)",
        "test_publish.py",
    ),
    Break(
        "the deltas of a new snapshot stay",
        "compaction/planned_run.py",
        "set_aside=[*self._replaced_deltas([file.target for file in staged]), *self._later_snapshots()],",
        "set_aside=self._later_snapshots(),",
        "test_publish.py",
    ),
    Break(
        "a file that changed during the work is not noticed",
        "transaction/steps.py",
        "        refuse_if_changed(files, run.before, fence=journal.fence)\n",
        "",
        "../compaction/test_publish.py",
    ),
    Break(
        "a copy lacks the checksums of its state files",
        "transaction/copy.py",
        "for path in paths for name in (path, *layout.all_checksums(path))])",
        "for path in paths for name in (path,)])",
        "../compaction/test_publish.py",
    ),
    Break(
        "the output of a run in an object store has no fence while it is not complete",
        "transaction/copy.py",
        '            self.files.replace(self.fence, f"{words}\\n".encode())\n',
        "            pass\n",
        "../storage/test_outputs.py",
    ),
    Break(
        "a run that fails leaves what it has written in an object store",
        "transaction/copy.py",
        "        if self.files.stat(self.fence) is None:\n            return\n",
        "        return\n",
        "../storage/test_outputs.py",
    ),
    Break(
        "rows of a join that have not matched are dropped",
        "compaction/runner.py",
        "if not unmatched or self._options.drop_unmatched:",
        "if True:",
        "test_max_drop.py",
    ),
    Break(
        "a copy has newer entries in the log of a source",
        "copies/selection.py",
        "_log_number(path) > limit",
        "_log_number(path) > 1 << 62",
        "test_copy.py",
    ),
    Break(
        "everybody can read a copy that is not complete",
        "copies/access.py",
        '    target.set_access("", own_access(PRIVATE_FOLDER))\n',
        "    pass\n",
        "test_copy.py",
    ),
    Break(
        "a copy does not notice a file that was replaced",
        "copies/selection.py",
        "and (info.size, info.mtime_ns) != (file.info.size, file.info.mtime_ns)",
        "and info.size != file.info.size",
        "test_copy.py",
    ),
    Break(
        "a copy is complete without a comparison of contents",
        "copies/verify.py",
        "None if digest == file.digest else",
        "None if digest else",
        "test_copy.py",
    ),
    Break(
        "only the planned batch gets another position",
        "positions/setting.py",
        "with_offsets(batch_start(source, batch.id).text, offsets).encode()",
        "batch_start(source, batch.id).text.encode()",
        "test_setting.py",
    ),
    Break(
        "a batch that has written state runs again on other rows",
        "positions/setting.py",
        "*foresee(self._refuse_written, dry_run=dry_run),",
        "",
        "test_setting.py",
    ),
    Break(
        "one of two offsets of a source that is used twice is set alone",
        "positions/setting.py",
        "pairs = [pair for pair in product(names, offsets) if may_be_one(*pair)]",
        "pairs: list[tuple[str, str]] = []",
        "test_meaning.py",
    ),
    Break(
        "a query with names reads the settings of one without, and takes its sources for new ones",
        "checkpoint/logs.py",
        'metadata["conf"][SOURCE_EVOLUTION] = str(have_names).lower()',
        "pass",
        "../positions/test_new_names.py",
    ),
    Break(
        "a version that Delta has removed counts as one that can be read",
        "positions/delta_tables.py",
        "not start <= version <= end",
        "not version <= end",
        "test_delta_tables.py",
    ),
    Break(
        "a whole table counts as readable as of each version that has its changes",
        "positions/delta_tables.py",
        "start, end = self.first_whole, self.newest",
        "start, end = self.first, self.newest",
        "test_delta_tables.py",
    ),
    Break(
        "the rest of a table that is read in parts is lost without a word",
        "positions/meaning.py",
        'if before["isStartingVersion"] and not after["isStartingVersion"]:',
        "if False:",
        "test_meaning.py",
    ),
    Break(
        "files that are gone are read again",
        "backups/source_logs.py",
        "        if lost_files:\n",
        "        if False:\n",
        "../positions/test_file_logs.py",
    ),
    Break(
        "the folder of a source with another name keeps its old name",
        "positions/renaming.py",
        'f"{layout.SOURCES}/{new}/{name}": f"',
        'f"{layout.SOURCES}/{folder}/{name}": f"',
        "test_new_names.py",
    ),
    Break(
        "entries that a retained batch may run again are trimmed",
        "positions/log_rules.py",
        "(lines.times_ms < cutoff_ms) & (lines.entries <= recorded.needed_after)",
        "lines.times_ms < cutoff_ms",
        "test_file_logs.py",
    ),
    Break(
        "files are trimmed that are young again after a rewind",
        "positions/edited_logs.py",
        "settled = lines.times_ms[(lines.entries >= 0) & (lines.entries <= needed_after)]",
        "settled = lines.times_ms",
        "test_file_logs.py",
    ),
    Break(
        "a file that was recorded is read when its entry runs again",
        "positions/edited_logs.py",
        "_NO_ENTRY = -1",
        "_NO_ENTRY = 0",
        "test_file_logs.py",
    ),
    Break(
        "a log that lost all of its lines looks truncated",
        "positions/edited_logs.py",
        '        if json.loads(last_text)["batchId"] < 0:',
        "        if False:",
        "test_file_logs.py",
    ),
    Break(
        "files that were moved are recorded with their old times",
        "positions/log_rules.py",
        "time_ms = found.get(readable(path), int(lines.times_ms[number]))",
        "time_ms = int(lines.times_ms[number])",
        "test_file_logs.py",
    ),
    Break(
        "a file that a batch will still read counts as recorded",
        "positions/log_rules.py",
        "if entry <= recorded.position:",
        "if True:",
        "test_file_logs.py",
    ),
    Break(
        "files that are to be read again after a source went back are trimmed",
        "positions/setting.py",
        "position, min(retained))",
        "position, retained[0])",
        "test_file_logs.py",
    ),
    Break(
        "a source that is used twice has the log of another one",
        "positions/file_logs.py",
        "if self.are_separate and name in self.last_numbers:",
        "if name in self.last_numbers:",
        "test_file_logs.py",
    ),
    Break(
        "the source reads trimmed files again when the newest one is forgotten",
        "positions/log_rules.py",
        "        return recorded.settled_ms\n",
        "        return 0\n",
        "test_file_logs.py",
    ),
    Break(
        "Spark does not start on a copy as of the oldest retained batch",
        "copies/selection.py",
        "infos |= dict.fromkeys(contents.keys() - infos, infos[layout.offset_file(checkpoint.batch.id)])",
        "pass",
        "test_copy.py",
    ),
    Break(
        "a position is set before entries that Spark has removed",
        "positions/file_logs.py",
        '            if not log.files.keys() & {str(number), f"{number}{COMPACT}"}:',
        "            if False:",
        "test_setting.py",
    ),
    Break(
        "a begun batch is replaced by one that Spark cannot run",
        "positions/setting.py",
        "replace(self._checkpoint, logs=Logs((batch,), (batch,), None)),",
        "self._checkpoint,",
        "test_meaning.py",
    ),
    Break(
        "a copy after another position has offsets with which Spark does not start",
        "copies/selection.py",
        "content = contents.get(path) or _content_for(",
        "content = _content_for(",
        "../positions/test_meaning.py",
    ),
    Break(
        "torn-offset removes the batch that Spark needs after another position",
        "diagnosis/repair.py",
        "        if runs.has_set_positions(report.batch):",
        "        if False:",
        "../positions/test_meaning.py",
    ),
    Break(
        "all files in a compact file of the log count as read again",
        "positions/file_logs.py",
        "found += int((lines.entries == number).sum())",
        "found += len(lines.entries)",
        "test_file_logs.py",
    ),
    Break(
        "a partition of Kafka loses its position without a word",
        "positions/meaning.py",
        "            if missing:",
        "            if False:",
        "test_meaning.py",
    ),
    Break(
        "a .compact file that a query has written after a run hides the log that a rollback brings back",
        "publishing/late_logs.py",
        "known_paths = ends.union(journal.kept_logs)",
        "return []",
        "test_late_logs.py",
    ),
    Break(
        "a .compact file that a query has written during a run hides the log that the run has changed",
        "publishing/late_logs.py",
        "if hiding_path := _find_hiding(files, journal):\n        raise BusyError(",
        "if False and (hiding_path := _find_hiding(files, journal)):\n        raise BusyError(",
        "test_late_logs.py",
    ),
    Break(
        "after another position, a missing file of the compaction before is not noticed",
        "publishing/missing.py",
        "has_its_batch(runs.files, last_run, valid_journals[:position])",
        "has_its_batch(runs.files, last_run)",
        "../positions/test_meaning.py",
    ),
    Break(
        "after another position, the batch of the compaction before seems to have run again",
        "publishing/hidden_batches.py",
        "known_facts = [offset_facts, *find_migrated(valid_journals, offset_path)]",
        "known_facts = [offset_facts]",
        "../positions/test_meaning.py",
    ),
    Break(
        "the positions of a batch that is not committed count as read",
        "positions/show.py",
        "    offsets = {} if batch is None else named_positions(files, batch)",
        "    offsets = named_positions(files, logs.offsets[-1])",
        "test_sources.py",
    ),
    Break(
        "a restored checkpoint goes back to the numbers of its backup",
        "backups/numbers.py",
        "        return Numbers(last_committed, logs.offsets",
        "        return Numbers(backup_batch, logs.offsets",
        "test_replace.py",
    ),
    Break(
        "an idle query finds its next number free after a newer backup was restored",
        "backups/numbers.py",
        "return Numbers(highest, False, tuple(number for number in blocked if number < highest), known)",
        "return Numbers(highest, False, (), known)",
        "test_replace.py",
    ),
    Break(
        "a migration frees the numbers that a restore has blocked",
        "migration/publish.py",
        "sorted({*logs.offsets}.difference(plan.taken))",
        "sorted({*logs.offsets})",
        "test_logs.py",
    ),
    Break(
        "a second restore frees the numbers that an earlier one has blocked",
        "backups/replacing.py",
        "if layout.strip_checksum(path) not in staying",
        "",
        "test_replace.py",
    ),
    Break(
        "the log of a source goes back to the number of a backup",
        "backups/source_logs.py",
        "if newest_number <= last_number or any(",
        "if True or any(",
        "test_replace.py",
    ),
    Break(
        "Spark does not start with the log of a source that goes on",
        "backups/source_logs.py",
        'filler = version + b"\\n" + line_of(path.removesuffix(UNREAD) + UNREAD, 0, 0)',
        'filler = version + b"\\n" + line_of(path.removesuffix(UNREAD) + UNREAD, 0, -1)',
        "test_replace.py",
    ),
    Break(
        "a checkpoint is restored from a copy of another query",
        "backups/replacing.py",
        "    if _related_ids(selection.query_id, manifest) & known_ids:",
        "    if True:",
        "test_replace.py",
    ),
    Break(
        "a checkpoint without the id of its query is restored from any copy",
        "backups/replacing.py",
        "        _require_same_origin(files, source, manifest)\n",
        "",
        "test_replace.py",
    ),
    Break(
        "a link to a backup counts as a backup",
        "backups/found.py",
        " and not folder.is_link(info.name)",
        "",
        "test_regular.py",
    ),
    Break(
        "a run after a backup does not make it an old one",
        "backups/regular.py",
        "same = [backup for backup in complete if (backup.batch, backup.last_run) == (batch, runs.last_published)]",
        "same = [backup for backup in complete if backup.batch == batch]",
        "test_regular.py",
    ),
    Break(
        "a backup is made again after the run that it was made for was undone",
        "backups/regular.py",
        "(backup.batch, backup.last_run) == (batch, runs.last_in_force)",
        "False",
        "test_regular.py",
    ),
    Break(
        "the current backup is removed if another one seems to be newer",
        "backups/regular.py",
        "if backup != found.current and backup.place != made]",
        "if backup.place != made]",
        "test_regular.py",
    ),
    Break(
        "a copy of a damaged copy is complete",
        "copies/run.py",
        'refuse_altered(self._source, selection, "The copy is not complete.", digests)',
        "list(digests)[:0]",
        "test_copy.py",
    ),
    Break(
        "a copy that has lost logs counts as one that a query has used",
        "copies/verify.py",
        "logs.offsets[-1] <= manifest.facts.batch)",
        "logs.offsets[-1] == manifest.facts.batch)",
        "test_copy.py",
    ),
    Break(
        "what a copy has instead of a file is shared as that file",
        "copies/transfer.py",
        "return file.info.mtime_ns if file.content is None and not file.parts else DERIVED",
        "return file.info.mtime_ns",
        "test_copy.py",
    ),
    Break(
        "an older record of a file in an unfinished copy counts",
        "copies/manifest.py",
        "    return sorted(number for number in numbers if number is not None)",
        "    return sorted((number for number in numbers if number is not None), key=str)",
        "test_copy.py",
    ),
    Break(
        "a backup is current although the checkpoint has other files",
        "backups/regular.py",
        "if _has_what_is_there(source, backup)), None)",
        "if source), None)",
        "test_regular.py",
    ),
    Break(
        "each copy keeps as many files open as all may",
        "storage/unsynced.py",
        "if not _room.acquire(blocking=False):\n            with",
        "if len(self._files) == _MOST:\n            with",
        "test_local.py",
    ),
    Break(
        "a copy that began with --verify is not verified by the next call",
        "copies/run.py",
        "verify=self._request.verify or (facts is not None and facts.verify)",
        "verify=self._request.verify",
        "test_copy.py",
    ),
    Break(
        "a copy is verified from memory, and not from its disk",
        "copies/verify.py",
        "from_disk=True",
        "from_disk=False",
        "test_copy.py",
    ),
    Break(
        "a file that is sent again may have another content",
        "copies/run.py",
        "            self._refuse_other_content(copied_files)\n",
        "            pass\n",
        "test_copy.py",
    ),
    Break(
        "a checkpoint without its log of commits is restored without the last batch of its sink",
        "backups/replacing.py",
        "if source is not self.files and request.last_batch is None:",
        "if False:",
        "test_replace.py",
    ),
    Break(
        "a backup that a later one has found damaged takes the place of an older good one",
        "backups/found.py",
        "if files.stat(DAMAGED) is not None:",
        "if False:",
        "test_regular.py",
    ),
    Break(
        "a checkpoint gets the id of its clone",
        "backups/replacing.py",
        "_lost_id(files, read_manifest(for_reading(source))) if source is not files else None",
        "None",
        "test_replace.py",
    ),
    Break(
        "a restored checkpoint does not go on after the last batch that the user knows",
        "backups/numbers.py",
        "-1 if last_batch is None else last_batch",
        "-1",
        "test_regular.py",
    ),
    Break(
        "the fence of an unfinished backup is removed before the offsets below it",
        "backups/found.py",
        "key=lambda info: layout.number_of_log(info.name)",
        "key=lambda info: -layout.number_of_log(info.name)",
        "../copies/test_copy.py",
    ),
    Break(
        "the fence of a later batch is removed before the offsets below it",
        "copies/run.py",
        "find_others(target, paths), key=layout.number_of_log)",
        "find_others(target, paths), key=lambda path: -layout.number_of_log(path))",
        "test_copy.py",
    ),
    Break(
        "a join of Spark 3.5 does not start with a planned batch",
        "transaction/change.py",
        "            documents |= nullable_schemas(files, before, staged_paths, documents)\n",
        "            nullable_schemas(files, before, staged_paths, documents)\n",
        "../compaction/test_joins.py",
    ),
    Break(
        "a policy removes a backup with files of others",
        "backups/found.py",
        "        if others:\n",
        "        if False:\n",
        "test_regular.py",
    ),
    Break(
        "a policy removes a backup that a query has used",
        "backups/found.py",
        "if not is_unused(manifest,",
        "if False and not is_unused(manifest,",
        "test_regular.py",
    ),
    Break(
        "a run changes a checkpoint before its backup is made",
        "maintenance/runs.py",
        "if agreed and self._backups is not None:",
        "if False and self._backups is not None:",
        "../backups/test_regular.py",
    ),
    Break(
        "what Python generates in a dataclass counts in its digest",
        "contract/makers.py",
        'return "__dataclass_fields__" in vars(kind) or "_fields" in vars(kind)',
        "return False",
        "test_functions.py",
    ),
    Break(
        "a contract has the aggregates in the order of the query",
        "contract/of_query.py",
        "    if not ids or not all(number in operator.aggregates for number in ids):",
        "    if True:",
        "test_executed.py",
    ),
    Break(
        "a changed default of a function is not noticed",
        "contract/functions.py",
        'yield "defaults", function.__defaults__',
        'yield "defaults", None',
        "test_functions.py",
    ),
    Break(
        "a contract does not say whether a state has a TTL",
        "contract/model.py",
        "ttl: bool | None = None",
        "ttl: bool | None = field(default=None, metadata=in_json(convert=lambda ttl: False))",
        "test_contract.py",
    ),
    Break(
        "null keys of a table match nothing",
        "delta/rewriting.py",
        'equal = "<=>" if self.null_keys else "="',
        'equal = "="',
        "test_statement.py",
    ),
    Break(
        "a row that another writer has changed is dropped",
        "delta/rewriting.py",
        'f"WHEN MATCHED AND s.gone{row_condition} THEN DELETE"',
        'f"WHEN MATCHED AND s.gone THEN DELETE"',
        "test_statement.py",
    ),
    Break(
        "a file is dropped although its newest row may be later",
        "delta/cutoff.py",
        "return _Range(micros, micros if exact else micros + _STATISTICS_US)",
        "return _Range(micros, micros)",
    ),
    Break(
        "a damaged deletion vector is used",
        "delta/vectors.py",
        'or struct.unpack(">I", checksum)[0] != zlib.crc32(data)',
        "",
    ),
    Break(
        "rows that a deletion vector marks as deleted come back",
        "delta/vectors.py",
        "kept[np.fromiter(self._bitmap & BitMap64(range(first_row, first_row + size)), np.int64) - first_row] = False",
        "pass",
    ),
    Break(
        "a name with a back-quote ends its quotes",
        "delta/cutoff.py",
        'return "`" + name.replace("`", "``") + "`"',
        'return "`" + name + "`"',
    ),
    Break(
        "a repair keeps the state of a batch that it gives up",
        "diagnosis/repair.py",
        "if name.version > batch + 1:",
        "if name.version > batch + 2:",
        "test_samples.py",
    ),
    Break(
        "doctor succeeds although it found warnings",
        "diagnosis/report.py",
        'return 1 if severities & {"error", "warning"} else',
        'return 1 if severities & {"error"} else',
        "test_samples.py",
    ),
    Break(
        "doctor offers a batch whose state is lost",
        "diagnosis/run.py",
        'restorable = "no" if version in reasons_of_versions else',
        'restorable = "yes" if version in reasons_of_versions else',
    ),
    Break(
        "a repair gives up batches without a question",
        "diagnosis/repair.py",
        "    if confirm is None:\n        raise RefusedError(",
        "    if False:\n        raise RefusedError(",
        "test_giving_up.py",
    ),
    Break(
        "a changed entry counts as removed and added",
        "reading/diff_entries.py",
        "changed_per_key = np.minimum(old_per_key, new_per_key)",
        "changed_per_key = np.zeros_like(old_per_key)",
    ),
    Break(
        "entries of different types count as equal",
        "reading/diff.py",
        "        if old_types != new_types:\n",
        "        if False:\n",
        "test_diff.py",
    ),
    Break(
        "only the last partition of a state counts",
        "reading/diff.py",
        "None if None in pair else sum(pair)",
        "pair[1]",
    ),
    Break(
        "a move continues although its check failed",
        "engines/local.py",
        "        move.check(source_results)\n",
        "",
        "test_moves.py",
    ),
    Break(
        "a run that failed ends while one of its tasks writes",
        "engines/local.py",
        "wait([future for future in futures if not future.cancel()])",
        "pass",
        "test_local.py",
    ),
    Break(
        "entries between two pieces of a shuffle are lost",
        "engines/shuffle.py",
        "            start = end\n",
        "            start = end + 1\n",
        "test_moves.py",
    ),
    Break(
        "workers with another ttlsnap apply their own rules",
        "engines/workers.py",
        "if code_digest(name) not in (digest, None):",
        "if code_digest(name) is None:",
        "test_workers.py",
    ),
    Break(
        "a large state stays on this machine",
        "engines/automatic.py",
        "is_large = work >= LARGE",
        "is_large = False",
    ),
    Break(
        "a time in nanoseconds is rounded down, and expires too early",
        "entries/timestamps.py",
        "raw // -self.scale + (raw % -self.scale != 0)",
        "raw // -self.scale",
    ),
    Break(
        "quotes in a key are not escaped",
        "entries/json_text.py",
        "_SPECIAL = r'[\"\\\\\\x00-\\x1f]'",
        "_SPECIAL = r'[\\\\\\x00-\\x1f]'",
    ),
    Break(
        "a group without a timeout has one in 1969",
        "entries/timestamps.py",
        "nulls = nulls | (raw == _NO_TIMEOUT)",
        "pass",
    ),
    Break(
        "values that do not fit their new type become null",
        "migration/struct_changes.py",
        "                misfits(place, cast_values.null_count - values.null_count)\n",
        "                pass\n",
    ),
    Break(
        "an entry that expires now gets a new TTL",
        "migration/expiry.py",
        "is_alive &= times > self.now_ms",
        "is_alive &= times >= self.now_ms",
        "test_expiry.py",
    ),
    Break(
        "a value that has expired comes back without its TTL",
        "migration/expiry.py",
        "is_alive &= times > self.now_ms",
        "pass",
        "test_expiry.py",
    ),
    Break(
        "the archive that only the checkpoint names is used without a question",
        "archives/places.py",
        "return receiver if self._answers[key] else None",
        "return receiver",
        "test_places.py",
    ),
    Break(
        "a file of the archive is overwritten",
        "archives/receivers.py",
        "if self._folder.stat(name) is not None and not self._are_same(hidden_name, name):",
        "if False:",
    ),
    Break(
        "a delivery that is repeated doubles the entries of a Delta table",
        "archives/receivers.py",
        "if delta_table.transaction_version(_application(run)) is not None:",
        "if False:",
    ),
    Break(
        "an archive that lacks dropped entries is accepted",
        "archives/writing.py",
        "if (archived_count := rows_in(files, paths)) != dropped:",
        "if (archived_count := rows_in(files, paths)) > dropped:",
        "test_archive.py",
    ),
    Break(
        "only the last column of a key is compared",
        "reading/explained_key.py",
        "is_match &= np.asarray(test.holds(column))",
        "is_match = np.asarray(test.holds(column))",
        "test_explained_keys.py",
    ),
    Break(
        "keys that old Spark placed elsewhere are not found",
        "reading/explain.py",
        "        elif not is_strict:\n",
        "        elif False:\n",
    ),
    Break(
        "the time of expiry lacks the TTL",
        "reading/explained_entries.py",
        "expires = moment + (summary.now_us - cutoff)",
        "expires = moment",
        "test_explain.py",
    ),
    Break(
        "the bound of a condition is exclusive",
        "reading/conditions.py",
        '">=": pc.greater_equal,',
        '">=": pc.greater,',
    ),
    Break(
        "an entry without a time is older than any age",
        "reading/conditions.py",
        "return is_true & ~nulls",
        "return is_true",
        "test_export_times.py",
    ),
    Break(
        "only the last condition counts",
        "reading/export_plan.py",
        "mask &= condition_filter(entries, self.source.partition)",
        "mask = condition_filter(entries, self.source.partition)",
    ),
    Break(
        "the time of a timer is a thousand times too early",
        "reading/state_table.py",
        "np.clip(milliseconds, MIN_INT64 // 1000 + 1, MAX_INT64 // 1000) * 1000",
        "np.clip(milliseconds, MIN_INT64 // 1000 + 1, MAX_INT64 // 1000)",
        "test_export_times.py",
    ),
    Break(
        "an age is rounded to zero",
        "reading/state_table.py",
        "return pa.array(ages // _SECOND, mask=nulls)",
        "return pa.array(np.trunc(ages / _SECOND).astype(np.int64), mask=nulls)",
        "test_export_times.py",
    ),
    Break(
        "the file of a table has its name before it is complete",
        "reading/export_sinks.py",
        'f"{table.name}/{name}", f"{table.name}/.{name}{SCRATCH}"',
        'f"{table.name}/{name}", f"{table.name}/{name}"',
        "test_export_times.py",
    ),
    Break(
        "an export that failed leaves its files",
        "reading/export_sinks.py",
        "        for table in self._tables:\n            for info in self._folder.list(table.name):\n",
        "        for table in ():\n            for info in self._folder.list(table.name):\n",
        "test_export.py",
    ),
    Break(
        "an export is more readable than its checkpoint",
        "reading/export_sinks.py",
        "access_outside([self._source], self._old_access)",
        "own_access(0o644)",
    ),
    Break(
        "Spark replaces variables in the names of tables",
        "delta/session.py",
        '("spark.sql.variable.substitute", "false")',
        '("spark.sql.variable.substitute", "true")',
        "test_variables.py",
    ),
    Break(
        "Spark's workers take modules of the current folder before all others",
        "engines/launch.py",
        '_SAFE_PATH = "PYTHONSAFEPATH", "1"',
        '_SAFE_PATH = "PYTHONSAFEPATH", ""',
        "test_user_code.py",
    ),
    Break(
        "PySpark looks for Spark in the folder above the current one",
        "engines/launch.py",
        'if "SPARK_HOME" not in os.environ:',
        "if False:",
        "test_user_code.py",
    ),
    Break(
        "the texts of dictionaries do not limit the rows of a batch",
        "storage/parquet.py",
        "of_a_row += longest",
        "of_a_row += 0",
        "test_parquet.py",
    ),
    Break(
        "a state file may expand to any size",
        "stores/codecs.py",
        "room.take(len(piece))",
        "room.take(0)",
        "test_codecs.py",
    ),
    Break(
        "a ledger may expand to any size",
        "written/ledger.py",
        "(size := expanded_size(stream)) > max(",
        "(size := expanded_size(stream)) < -max(",
        "test_ledger.py",
    ),
    Break(
        "a value in a CSV loses its last character",
        "reading/export_text.py",
        "pc.utf8_slice_codeunits(texts, 1, -1)",
        "pc.utf8_slice_codeunits(texts, 1, -2)",
    ),
    Break(
        "a value that does not fit its type becomes null",
        "imports/conforming.py",
        "if converted.null_count > values.null_count:",
        "if False:",
    ),
    Break(
        "a null is imported where the state has none",
        "imports/conforming.py",
        "if not struct_field.nullable and child.null_count:",
        "if False:",
        "test_import.py",
    ),
    Break(
        "a time with a zone becomes one without",
        "imports/conforming.py",
        "(state_type.tz is not None or table_type.tz is None)",
        "True",
    ),
    Break(
        "imported rows are not in the partition of their hash",
        "imports/partition.py",
        "places = find_partitions(state, keys, self.partitions)",
        "places = find_partitions(state, keys, self.partitions) * 0",
    ),
    Break(
        "an import overwrites a key that the state has",
        "imports/partition.py",
        'if self._mode == "insert":',
        "if False:",
        "test_import.py",
    ),
    Break(
        "rows of one key are imported twice",
        "imports/partition.py",
        "if self._table.is_list or len(self._index) == len(self.keys):",
        "if True:",
        "test_import.py",
    ),
    Break(
        "a merge keeps the old entries of imported keys",
        "imports/partition.py",
        "is_kept: np.ndarray = ~is_imported",
        "is_kept: np.ndarray = np.ones_like(is_imported)",
        "test_import.py",
    ),
    Break(
        "rows that an import lost are not noticed",
        "imports/run.py",
        "            require_all(self.checkpoint.target,",
        "            _ = (self.checkpoint.target,",
        "test_complete.py",
    ),
    Break(
        "the expiry index of a list has its latest time",
        "imports/derived.py",
        "earliest = np.minimum.reduceat(times, firsts)",
        "earliest = np.maximum.reduceat(times, firsts)",
    ),
    Break(
        "the counts of imported lists are zero",
        "imports/derived.py",
        "entries.append((link.counts, owners, long_rows(np.diff(firsts, append=len(keys))), None))",
        "entries.append((link.counts, owners, long_rows(0 * firsts), None))",
    ),
    Break(
        "a timer that is due at the last batch is imported",
        "imports/timely.py",
        "due_rows = np.flatnonzero(times <= clock)",
        "due_rows = np.flatnonzero(times < clock)",
        "test_complete.py",
    ),
    Break(
        "an import is published although its user says no",
        "transaction/steps.py",
        "        if not run.is_wanted():\n",
        "        if not run.is_wanted() and False:\n",
        "../imports/test_import.py",
    ),
    Break(
        "an import publishes a copy of an older state",
        "transaction/steps.py",
        "        refuse_if_changed(files, run.before)\n",
        "",
        "../imports/test_complete.py",
    ),
    Break(
        "an age of exactly an hour is more than an hour",
        "entries/ages.py",
        "np.searchsorted(self._highest, ages)",
        'np.searchsorted(self._highest, ages, "right")',
        "../reading/test_ages.py",
    ),
    Break(
        "an entry that is exactly as old as the cut-off counts as kept",
        "entries/ages.py",
        "end - (end == self.cutoff_us)",
        "end",
        "../reading/test_ages.py",
    ),
    Break(
        "the ages of a run are those of its last batches",
        "transform/chain.py",
        "AgeCounts.merged((self._ages, AgeCounts.of(self._buckets, known_moments)))",
        "AgeCounts.of(self._buckets, known_moments)",
        "../compaction/test_ages.py",
    ),
    Break(
        "a run counts ages that nobody asked for",
        "compaction/results.py",
        "ages=task.ages",
        "ages=True",
        "test_ages.py",
    ),
    Break(
        "a percentile is one rank too low",
        "reading/distribution.py",
        "rank = -(-int(counts_up_to[-1]) * percent // 100)",
        "rank = int(counts_up_to[-1]) * percent // 100",
    ),
    Break(
        "only the last batch of rows counts for a key",
        "reading/rows_by_key.py",
        "self._counts[:, slots[is_known]] += added_counts[:, is_known]",
        "self._counts[:, slots[is_known]] = added_counts[:, is_known]",
    ),
    Break(
        "the growth of a state shows as many entries after a run as before it",
        "reading/growth.py",
        "entries_before - dropped if entries_before is not None",
        "entries_before if entries_before is not None",
    ),
    Break(
        "maintain reports success when a target failed",
        "maintenance/runs.py",
        "return max((result.exit_code for result in results), default=0)",
        "return min((result.exit_code for result in results), default=0)",
    ),
    Break(
        "a plan is applied to files that have changed",
        "maintenance/plans.py",
        "        if planned_facts != facts:\n",
        "        if False:\n",
    ),
    Break(
        "a rule decides about the entries of an earlier one",
        "maintenance/rules.py",
        "            is_seen &= ~is_taken(entries)\n",
        "            pass\n",
        "test_rules.py",
    ),
    Break(
        "a target has every status but its own in the metrics",
        "maintenance/metrics.py",
        "int(status == result.status)",
        "int(status != result.status)",
    ),
    Break(
        "hooks get the keys of entries",
        "maintenance/runs.py",
        "result.error.text.without_keys if result.error",
        "str(result.error) if result.error",
        "test_on_failure.py",
    ),
    Break(
        "a webhook follows redirects",
        "maintenance/on_failure.py",
        "build_opener(_NoRedirect)",
        "build_opener()",
        "test_on_failure.py",
    ),
    Break(
        "check compares with HEAD although pre-commit names another commit",
        "check/revisions.py",
        "environment.get(_OF_PRE_COMMIT) or _HEAD",
        "_HEAD",
        "test_examples.py",
    ),
    Break(
        "a contract is new if git cannot read the commit",
        "check/revisions.py",
        "if done.returncode or (done.stderr and not done.stdout):",
        "if False:",
        "test_revisions.py",
    ),
    Break(
        "an output replaces an input of its command",
        "cli/written_files.py",
        "if _is_same(path, name):",
        "if False:",
        "test_written_files.py",
    ),
    Break(
        "a plan restores options that it must not have",
        "cli/planned_options.py",
        "if unknown := sorted(recorded.keys() - set(names)):",
        "if unknown := []:",
        "test_planned_options.py",
    ),
    Break(
        "excluded targets are compacted",
        "maintenance/targets.py",
        "names = [name for name in _find_folders(path) if place_of(name) not in excluded_places]",
        "names = list(_find_folders(path))",
        "test_runs.py",
    ),
    Break(
        "an entry is in the partition of another number of partitions",
        "migration/sorting.py",
        "return partitions_of(hashes, old_partition.partitions)",
        "return partitions_of(hashes, old_partition.before) % old_partition.partitions",
    ),
    Break(
        "a migration keeps the entries that its transformers change",
        "migration/sorting.py",
        "self._sorter.add(self._partition.change(batch, self._sorter.states[batch.state], kept, rewritten, values))",
        "self._sorter.add(batch)",
    ),
    Break(
        "entries that a migration dropped are not archived",
        "migration/run.py",
        "return self._runner.deliver(files) if self._runner is not None else []",
        "return []",
        "test_transformers.py",
    ),
    Break(
        "entries that a migration mixes up are not noticed",
        "engines/proof.py",
        " or sent_set != received_set",
        "",
        "../migration/test_work.py",
    ),
    Break(
        "keys that do not show how Spark places them are moved",
        "migration/run.py",
        "if keys and proven_bits[store.operator] < PROOF:",
        "if False:",
        "test_work.py",
    ),
    Break(
        "a changed key is in the partition of its old hash",
        "migration/sorting.py",
        "            hashes = hash_keys(self.converter.new_states[converted.of], converted.new_rows)",
        "            pass",
    ),
    Break(
        "values that do not fit their new type are lost",
        "migration/run.py",
        "            misfits.update(part.misfits)",
        "            pass",
    ),
    Break(
        "the planned batch of a migration has the old settings",
        "migration/publish.py",
        "planned=plan_next(files, checkpoint.batch, plan.target.pinned)",
        "planned=plan_next(files, checkpoint.batch)",
        "test_logs.py",
    ),
    Break(
        "the logs of a migration have the old settings",
        "migration/publish.py",
        "documents = {layout.offset_file(number): with_conf(files, number, conf).encode() for number in kept_batches}",
        "documents = {layout.offset_file(number): with_conf(files, number, {}).encode() for number in kept_batches}",
    ),
    Break(
        "batches from before a migration stay",
        "migration/publish.py",
        "*older_logs(plan), *old_ledgers",
        "*old_ledgers",
        "test_logs.py",
    ),
    Break(
        "a migration moves keys from the wrong partition",
        "migration/run.py",
        "            if misplaced:\n",
        "            if False:\n",
        "test_refusals.py",
    ),
    Break(
        "the library in C finds no wrong checksum",
        "native/__init__.py",
        "return None if place < 0 else place",
        "return None",
    ),
    Break(
        "the first piece may be outside its buffer",
        "native/loops.py",
        "return None if number < 0 else number",
        "return None if number <= 0 else number",
    ),
    Break(
        "an index entry of a removed map entry is damage",
        "operators/variables.py",
        "is_stale: Mask = expected_values[key_codes] != stored_values",
        "is_stale: Mask = np.zeros(len(key_codes), np.bool_)",
        "test_decisions.py",
    ),
    Break(
        "counts of a join stay as they were",
        "operators/join_rows.py",
        "changed = (of_counts > 0) & (of_counts != counts)",
        "changed = np.zeros(len(counts), np.bool_)",
        "test_decisions.py",
    ),
    Break(
        "timers and variables that follow are dropped from keys that still have state",
        "operators/followers.py",
        "    return had & ~has\n",
        "    return had\n",
        "test_decisions.py",
    ),
    Break(
        "an index that contradicts its variable is accepted",
        "operators/variables.py",
        "        if is_wrong.any():\n",
        "        if False:\n",
    ),
    Break(
        "a page quotes the keys of entries",
        "pages/privacy.py",
        "if show_keys or code in SAFE_PROBLEMS:",
        "if True:",
        "test_pages.py",
    ),
    Break(
        "a page runs the script in a name",
        "pages/render.py",
        "autoescape=True,",
        "autoescape=False,",
        "test_pages.py",
    ),
    Break(
        "a page with a failed target looks good",
        "pages/targets.py",
        "for tone in (Tone.BAD, Tone.WARNING, Tone.GOOD)",
        "for tone in (Tone.GOOD, Tone.WARNING, Tone.BAD)",
        "test_targets.py",
    ),
    Break(
        "a query with a global limit gets a planned batch",
        "publishing/preflight.py",
        "if global_limit is not None:",
        "if False:",
        "test_preflight.py",
    ),
    Break(
        "a batch is planned although Spark has not recorded the number of partitions",
        "publishing/preflight.py",
        "if SHUFFLE_PARTITIONS not in checkpoint.batch.conf:",
        "if False:",
        "test_preflight.py",
    ),
    Break(
        "a run moves away the state of a batch that the sink may have",
        "publishing/in_progress.py",
        "return batch if finished_folders and folders <= finished_folders else None",
        "return None",
        "test_batch_in_progress.py",
    ),
    Break(
        "torn-offset moves away the state of a batch that the sink may have",
        "diagnosis/repair.py",
        'if "torn-offset" in names:',
        "if False:",
        "../publishing/test_batch_in_progress.py",
    ),
    Break(
        "the number of a batch is used again if one of its state files is lost",
        "publishing/in_progress.py",
        "if any(name is not None and name.version == version for name in names)",
        "if names and all(name is not None and name.version == version for name in names)",
        "../backups/test_rewind.py",
    ),
    Break(
        "a batch that was begun is nothing to go back from",
        "publishing/liveness.py",
        "return begins_more or find_written(logs, listing) is not None",
        "return begins_more",
        "../backups/test_rewind.py",
    ),
    Break(
        "a rollback takes no lock",
        "transaction/rollback.py",
        "    with files.lock():\n",
        "    if True:\n",
        "../publishing/test_two_hosts.py",
    ),
    Break(
        "the names of staged files are not synced before the journal has them",
        "publishing/swap.py",
        '    sync_names(files, [move.source for move in journal.moves if move.source.startswith(f"{layout.RUNS}/")])\n',
        "",
        "test_durability.py",
    ),
    Break(
        "the journal of an undone run is gone when its fence arrives late",
        "publishing/cleanup.py",
        '(journal.status == "undone" and files.failures_are_final)',
        'journal.status == "undone"',
        "../storage/test_late_requests.py",
    ),
    Break(
        "the journal follows the fence",
        "publishing/swap.py",
        "write_journal(files, journal)\n        fence = Fence.MAYBE\n        if not raise_fence(files, journal)",
        "raised = raise_fence(files, journal)\n        write_journal(files, journal)\n        if not raised",
        "protocol",
    ),
    Break(
        "the files are not compared behind the fence",
        "publishing/swap.py",
        "        check()\n        _require_sources(files, journal)\n",
        "        _require_sources(files, journal)\n",
        "test_moving_on.py",
    ),
    Break(
        "the fence replaces an offset file",
        "publishing/fence.py",
        "    return files.create(journal.fence, data)",
        "    files.replace(journal.fence, data)\n    return True",
        "test_moving_on.py",
    ),
    Break(
        "the names of moved files are not synced before new files are moved",
        "publishing/moves.py",
        "without the old one in the backup.\n        sync_names(",
        "without the old one in the backup.\n        (lambda *_: None)(",
        "test_durability.py",
    ),
    Break(
        "new files move before the old ones are in the backup",
        "publishing/moves.py",
        "    for moves in (journal.to_backup, journal.new):\n        present_paths",
        "    for moves in (journal.new, journal.to_backup):\n        present_paths",
        "protocol",
    ),
    Break(
        "a move overwrites a file that has appeared",
        "publishing/moves.py",
        "        if move.target in present_paths:\n            raise RefusedError(\n",
        "        if False:\n            raise RefusedError(\n",
        "test_moving_on.py",
    ),
    Break(
        "the folder of a partition that no longer exists remains",
        "storage/trees.py",
        "        if _is_empty(files, folder):\n",
        "        if False:\n",
        "../publishing/test_folders.py",
    ),
    Break(
        "the files are not compared again after the moves",
        "publishing/swap.py",
        "        recheck()\n",
        "",
        "protocol",
    ),
    Break(
        "a published file that Spark overwrote is not noticed",
        "publishing/swap.py",
        "        if infos[facts.path].size != facts.size:\n",
        "        if False:\n",
        "test_written_since.py",
    ),
    Break(
        "no planned batch takes the place of the fence",
        "publishing/swap.py",
        "        replace_fence(files, journal)\n        fence = ",
        "        undo_fence(files, journal)\n        fence = ",
        "protocol",
    ),
    Break(
        "a published run stays open",
        "publishing/swap.py",
        '        return close_journal(files, journal, "done")\n',
        "        return journal\n",
        "protocol",
    ),
    Break(
        "recover finishes a run although a batch was committed since",
        "publishing/recover.py",
        'return journal.kind != "repair" and max(',
        "return False and max(",
        "test_interleavings.py",
    ),
    Break(
        "recover finishes a run with files that Spark overwrote",
        "publishing/recover.py",
        "        _refuse_rewritten(files, journal, can_undo)\n",
        "",
        "test_written_since.py",
    ),
    Break(
        "recover restores old files before it removes the new ones",
        "publishing/swap.py",
        "    for moves in (journal.new, journal.to_backup):\n        present_paths",
        "    for moves in (journal.to_backup, journal.new):\n        present_paths",
        "protocol",
    ),
    Break(
        "an undone run leaves its fence",
        "publishing/recover.py",
        "    undo(files, journal)\n    undo_fence(files, journal)\n",
        "    undo(files, journal)\n",
        "test_interleavings.py",
    ),
    Break(
        "recover fences a checkpoint on which the query has continued",
        "publishing/recover.py",
        "if _has_gone_on(files, journal) or files.stat(journal.fence) is not None:",
        "if files.stat(journal.fence) is not None:",
        "test_interleavings.py",
    ),
    Break(
        "a rollback restores the state of a batch before the last one",
        "transaction/rollback.py",
        "if last_committed > last_run.batch:",
        "if False:",
        "test_rollback.py",
    ),
    Break(
        "a rollback restores a state whose files are missing",
        "transaction/rollback.py",
        "            _require_loadable(self.files)\n",
        "            pass\n",
        "../publishing/test_interleavings.py",
    ),
    Break(
        "the backup of an undone run is removed although it has the only copy of a file",
        "publishing/cleanup.py",
        "    if had_backup and only_copies(files, run, journal):\n        return False\n",
        "",
        "test_two_hosts.py",
    ),
    Break(
        "pruning removes a table that a snapshot needs",
        "transaction/pruning.py",
        "    for table in find_held_tables(files, [journal.run for journal in ended_journals]):\n        raise",
        "    for table in ():\n        raise",
        "test_prune.py",
    ),
    Break(
        "pruning removes the only undo of the last run without a question",
        "transaction/pruning.py",
        "needed_to_undo=run == undoable",
        "needed_to_undo=False",
        "test_prune.py",
    ),
    Break(
        "a checkpoint with young logs is changed",
        "publishing/liveness.py",
        "    if age_s < limit_s:\n",
        "    if False:\n",
        "test_moving_on.py",
    ),
    Break(
        "a running query with long batches looks stopped",
        "publishing/liveness.py",
        "limit_s = max(YOUNGEST_S, GAPS * max(gap_ms or 0, _longest_gap_of_files_ms(files)) / _MS)",
        "limit_s = YOUNGEST_S",
        "test_moving_on.py",
    ),
    Break(
        "a run forgets that batches were slow",
        "publishing/liveness.py",
        "recorded_ms = [journal.longest_gap_ms or 0 for journal in recent]",
        "recorded_ms = [0 for journal in recent]",
        "test_slow_batches.py",
    ),
    Break(
        "a query of one batch looks stopped",
        "publishing/liveness.py",
        "    if not gap_ms:\n",
        "    if False:\n",
        "test_slow_batches.py",
    ),
    Break(
        "a copy forgets that batches were slow",
        "publishing/liveness.py",
        "before_copy_ms: int = (report_of_copy or {}).get(LONGEST_GAP, 0)",
        "before_copy_ms: int = 0",
        "test_slow_batches.py",
    ),
    Break(
        "a batch in progress is taken for one that crashed",
        "publishing/in_progress.py",
        "if (layout.batch_of(path) or 0) > last_committed",
        "if False",
        "test_batch_in_progress.py",
    ),
    Break(
        "a query in real-time mode looks stopped",
        "publishing/in_progress.py",
        "    if any(name is not None and name.unique_id is not None for name in parsed_names):\n        return True\n",
        "",
        "test_batch_in_progress.py",
    ),
    Break(
        "a watermark in the future is the clock of a TTL",
        "compaction/plan.py",
        "    if clock.ahead is not None:\n",
        "    if False:\n",
        "test_future_watermark.py",
    ),
    Break(
        "a glob matches the backups of a checkpoint",
        "maintenance/targets.py",
        "if folder_of_ttlsnap(name) is None]",
        "]",
        "test_runs.py",
    ),
    Break(
        "a backup is taken for a checkpoint",
        "checkpoint/recognize.py",
        "    if own_folder is not None:\n",
        "    if False:\n",
        "test_recognize.py",
    ),
    Break(
        "a required column of a new query gets null",
        "new_query/schemas.py",
        "if not new_field.nullable or is_key(place):",
        "if is_key(place):",
        "test_refusals.py",
    ),
    Break(
        "existing values keep the length of their old TTL",
        "new_query/plan.py",
        "plus_ms=new.ttl_ms - old.ttl_ms",
        "plus_ms=0",
        "test_ttl.py",
    ),
    Break(
        "columns that changed places stay where they are",
        "new_query/schemas.py",
        "columns.append(Take(source, self._match_types(field_place, old_field.type, new_field.type)))",
        "columns.append(Take(len(columns), self._match_types(field_place, old_field.type, new_field.type)))",
        "test_refusals.py",
    ),
    Break(
        "two grouping columns get different values in two states",
        "new_query/schemas.py",
        "if self.answers.fills[first_answer] != self.answers.fills[answer]:",
        "if False:",
        "test_ttl.py",
    ),
    Break(
        "a name that occurs twice in JSON is accepted",
        "schema/strict_json.py",
        "if len(result) != len(pairs):",
        "if False:",
    ),
    Break(
        "a MiB has a million bytes",
        "schema/units.py",
        "(1024 if match[3] else 1000)",
        "1000",
    ),
    Break(
        "an ambiguous field is the first one",
        "schema/fields.py",
        "if number is None and len(matching_ordinals) > 1:",
        "if False:",
    ),
    Break(
        "NOT NULL in DDL is ignored",
        "schema/ddl.py",
        "            nullable = False\n",
        "",
    ),
    Break(
        "a path may lead outside the checkpoint",
        "storage/local.py",
        'if path.startswith("/") or ".." in names or "\\0" in path:',
        "if False:",
        "test_directory.py",
    ),
    Break(
        "a new file is not synced",
        "storage/local.py",
        "            if later is None:\n                os.fsync(file.fileno())",
        "            if later is None:\n                pass",
        "test_local.py",
    ),
    Break(
        "the last small files of a copy are not synced",
        "storage/unsynced.py",
        "        _sync(files, close_only=error is not None)",
        "        _sync(files, close_only=True)",
        "test_local.py",
    ),
    Break(
        "an error of the disk is lost when files are synced together",
        "storage/unsynced.py",
        "    if failure is not None:\n        raise failure",
        "    if failure is not None:\n        pass",
        "test_local.py",
    ),
    Break(
        "a snapshot of a withdrawn batch is copied",
        "copies/selection.py",
        "    warnings = refuse_stale_snapshots(checkpoint, list_activity(files), runs)\n",
        "    warnings = []\n",
        "../publishing/test_set_back.py",
    ),
    Break(
        "a copy shares files with one that is known to be damaged",
        "copies/run.py",
        "        if earlier.is_marked() and not has_begun(request.target):",
        "        if False:",
        "test_copy.py",
    ),
    Break(
        "only the last of the backups that share a damaged file is marked",
        "backups/regular.py",
        ", *_mark_others(found, report)",
        "",
        "test_regular.py",
    ),
    Break(
        "a later run frees the number that an earlier one has planned",
        "publishing/runs.py",
        "        return sorted({*logs.blocked, *(batch for batch in logs.offsets if batch in planned)})\n",
        "        return sorted(logs.blocked)\n",
        "../backups/test_restart.py",
    ),
    Break(
        "what is derived from a variable that follows stays behind",
        "compaction/plan.py",
        "            changing.update(link.followers)\n",
        "",
        "test_whole_keys.py",
    ),
    Break(
        "a copy records that files have arrived before they are on the disk",
        "copies/transfer.py",
        "        with Unsynced() as self._unsynced:\n",
        "        if True:\n",
        "test_copy.py",
    ),
    Break(
        "a new folder replaces the one that another process has just made",
        "storage/local.py",
        "        fcntl.flock(descriptor, fcntl.LOCK_EX)\n",
        "",
        "test_local.py",
    ),
    Break(
        "a lost conditional write to an object store overwrites",
        "storage/objects.py",
        'obstore.put(self._store, self._key(path), data, mode="create")',
        'obstore.put(self._store, self._key(path), data, mode="overwrite")',
        "test_directory.py",
    ),
    Break(
        "a store that has left a request unanswered gets as much time again",
        "storage/patience.py",
        "            self.is_hurried = time.monotonic() - started >= longest_s\n",
        "",
        "test_patience.py",
    ),
    Break(
        "a late deletion removes a file that was restored",
        "storage/conditional.py",
        'headers={"If-Match": e_tag}',
        "headers={}",
        "test_late_requests.py",
    ),
    Break(
        "recover leaves the staged files of a run that it has undone before",
        "publishing/cleanup.py",
        'journal.status != "undone" or not folders_of',
        'journal.status == "undone" or not folders_of',
        "../storage/test_denied.py",
    ),
    Break(
        "the files of two states are read while a run is interrupted",
        "publishing/reading.py",
        "journal.moves))) == 2:",
        "journal.moves))) == 3:",
        "test_reading.py",
    ),
    Break(
        "recover judges a run whose files are in two folders",
        "publishing/recover.py",
        "    if not is_half_taken_over(files, journal):\n",
        "    if True:\n",
        "../storage/test_faults.py",
    ),
    Break(
        "a late rename changes a run that was taken over",
        "publishing/takeover.py",
        "            files.move_folder(",
        "            str(",
        "test_two_hosts.py",
    ),
    Break(
        "a process changes files after it lost its lease",
        "storage/lease.py",
        "if self._lost or _now() > self._held_until - LEASE / 2:",
        "if False:",
        "test_lease.py",
    ),
    Break(
        "a lock of a process that lives is taken over",
        "storage/lease.py",
        "if age_s <= LEASE:",
        "if age_s < 0:",
        "test_local.py",
    ),
    Break(
        "a lock that another owner took over is renewed",
        "storage/local_lock.py",
        "if self._read(version) != data:",
        "if False:",
        "test_local.py",
    ),
    Break(
        "entries that are converted wrongly are not noticed",
        "stores/convert.py",
        "if not is_same:",
        "if False:",
        "test_convert.py",
    ),
    Break(
        "a deleted key comes back from an older snapshot",
        "stores/hdfs/entries.py",
        "_take(batch, ~deltas.written.has(batch.keys)) if len(deltas.written) else batch",
        "batch",
        "test_hdfs.py",
    ),
    Break(
        "a deleted key is an entry",
        "stores/hdfs/entries.py",
        "is_last & (batch.records.value_size != DELETED)",
        "is_last",
        "test_hdfs.py",
    ),
    Break(
        "rewritten rows get the checksum of something else",
        "stores/hdfs/snapshot_writer.py",
        "row_checksums(keys, values)",
        "row_checksums(values, keys)",
    ),
    Break(
        "a staged snapshot is not compared with what was written",
        "stores/hdfs/partition.py",
        "count != self._writer.entries or digest_read.hexdigest() != digest",
        "False",
    ),
    Break(
        "a state file without its end mark is accepted",
        "stores/hdfs/records.py",
        '    raise CorruptionError(\n        f"{where} is truncated:',
        '    _ = str(\n        f"{where} is truncated:',
    ),
    Break(
        "staged tables are not compared with what was written",
        "stores/rocksdb/writer.py",
        "digest_read.count != expected_count or digest_read != self._digest",
        "digest_read.count != expected_count",
        "test_rocksdb.py",
    ),
    Break(
        "tombstones are not looked up again",
        "stores/rocksdb/writer.py",
        "new_database.get(list[Any](keys)) != values",
        "False",
        "test_rocksdb.py",
    ),
    Break(
        "a changelog without its end mark is accepted",
        "stores/rocksdb/changelog.py",
        'raise CorruptionError(f"{where} is truncated: it ends without the end mark")',
        "return",
    ),
    Break(
        "a transformer may return entries that it did not receive",
        "transform/chain.py",
        "if len(after) and not (_is_part(after.index, before.index) and after.are_of(before)):",
        "if False:",
    ),
    Break(
        "the strategy of a user's factory is ignored",
        "transform/adapters.py",
        'getattr(self.given, "strategy", super().strategy)',
        "super().strategy",
        "test_adapters.py",
    ),
    Break(
        "a new value loses its fraction without an error",
        "transform/exact.py",
        "if _is_same(returned, stored_value):",
        "if True:",
    ),
    Break(
        "a converter may leave out entries",
        "transform/converters.py",
        "or len(structs) != len(entries) or structs.null_count",
        "or structs.null_count",
    ),
    Break(
        "an entry lives for a microsecond too long",
        "transformers/ttl.py",
        "np.minimum(ttl, room) <= now",
        "np.minimum(ttl, room) < now",
    ),
    Break(
        "an entry without a timestamp expires",
        "transformers/ttl.py",
        "is_expired = expired(moments, self._ttl, self._now) & ~nulls",
        "is_expired = expired(moments, self._ttl, self._now)",
    ),
    Break(
        "negative zero is in another partition than zero",
        "unsaferow/murmur3.py",
        "doubles = np.asarray(column) + 0.0",
        "doubles = np.asarray(column)",
    ),
    Break(
        "a row without its last field has the old offsets",
        "unsaferow/project.py",
        "    _move(new_rows, fields[:-1], bits, np.int64(-shift))\n",
        "",
    ),
    Break(
        "a map with more keys than values is read",
        "unsaferow/decode_containers.py",
        "bad = counts != value_counts",
        "bad = counts > value_counts + 2**40",
    ),
    Break(
        "an interval is a thousand times too long",
        "unsaferow/decode_values.py",
        'target["nanos"] = micros * 1000',
        'target["nanos"] = micros',
    ),
    Break(
        "a ledger counts although a later run changed the state",
        "written/history.py",
        "if newest_number >= facts.number and newest_run != facts.run:",
        "if False:",
    ),
    Break(
        "a damaged ledger is used",
        "written/ledger.py",
        'if header["checksum"] != _checksum(path, facts, stream_bytes):',
        "if False:",
    ),
    Break(
        "the first write of a key counts, not the last one",
        "written/history.py",
        "known_parts = list(parts)",
        "known_parts = list(parts)[::-1]",
    ),
    Break(
        "a ledger counts although its batch ran again",
        "written/history.py",
        "return facts.digest in (retained_batch.digest, retained_batch.whole)",
        "return True",
    ),
    Break(
        "a run that does not ask for the times of entries forgets them",
        "written/keeping.py",
        "for candidate in (*part.states, *part.others) if history.keeps(candidate)]",
        "for candidate in (*part.states, *part.others) if False]",
    ),
    Break(
        "a migration forgets the times of entries",
        "migration/times.py",
        "        if state not in self._times or new_state not in self._numbers:\n",
        "        if True:\n",
        "../written/test_written.py",
    ),
    Break(
        "a ledger of a run that was rolled back excludes the restored one",
        "publishing/runs.py",
        "return [journal for journal in done_journals if journal.run not in undone_runs]",
        "return done_journals",
        "../written/test_written.py",
    ),
    Break(
        "a folder in the place of the next batch is not seen",
        "checkpoint/starting.py",
        "            if info.is_dir:\n",
        "            if False:\n",
        "test_starting.py",
    ),
    Break(
        "a gap in the offsets is not seen",
        "checkpoint/starting.py",
        "if last_batch > 0 and last_batch - 1 not in logs.offsets:",
        "if False:",
        "test_starting.py",
    ),
    Break(
        "a checkpoint that lost its commits has no state",
        "checkpoint/starting.py",
        "    if not newest_state or (newest_state == 1 and len(offsets) < 2):\n",
        "    if True:\n",
        "test_starting.py",
    ),
    Break(
        "what a contract cannot decide is incompatible",
        "new_query/findings.py",
        "return replace(finding, verdict=Verdict.UNKNOWN, fix=fix)",
        "return finding",
        "../check/test_quality.py",
    ),
    Break(
        "a question about the name of a key makes the other changes incompatible",
        "new_query/findings.py",
        "return replace(finding, verdict=Verdict.UNKNOWN, fix=question)",
        "return finding",
        "../check/test_check.py",
    ),
    Break(
        "doctor finds a copy with old and new stores damaged",
        "diagnosis/partition.py",
        "folders = [self._task.directory(store) for store in stores]",
        "folders = [self._task.directory(store) for store in self._task.stores]",
        "../transaction/test_output.py",
    ),
    Break(
        "Spark 4.2 is expected to find keys with -0.0",
        "check/key_order.py",
        "NORMALIZED_SINCE = (4, 2)",
        "NORMALIZED_SINCE = (9, 0)",
        "test_floats.py",
    ),
    Break(
        "the days of an interval always count in its hash",
        "unsaferow/murmur3.py",
        '("days", "months") if with_days else ("months",)',
        '("days", "months")',
        "test_murmur3.py",
    ),
    Break(
        "a failed export removes the files of others",
        "reading/export_sinks.py",
        "if self._run in info.name:",
        "if not info.is_dir:",
        "test_export.py",
    ),
    Break(
        "a switched-off TTL drops entries",
        "transformers/ttl.py",
        "self.config.update_type is UpdateType.DISABLED",
        "False",
        "test_ttl.py",
    ),
    Break(
        "a file that Spark does not write proves a layout",
        "reading/proof.py",
        "        if not _is_known(checkpoint, path):\n",
        "        if False:\n",
        "test_proof.py",
    ),
    Break(
        "keys in wrong partitions prove a layout",
        "reading/proof.py",
        "if misplaced is not None and misplaced.interpreted:",
        "if False:",
        "test_proof.py",
    ),
    Break(
        "entries that no schema describes prove a layout",
        "reading/proof.py",
        "        look,\n        refuse,\n",
        "        look,\n",
        "test_proof.py",
    ),
    Break(
        "snapshots that count no entries prove a layout",
        "reading/proof.py",
        "lineage.snapshot is not None and not lineage.counted",
        "False",
        "test_proof.py",
    ),
    Break(
        "doctor repairs the checkpoint of another provider",
        "diagnosis/repair.py",
        "    if name not in PROVIDERS:\n",
        "    if False:\n",
        "../reading/test_proof.py",
    ),
    Break(
        "a listener warns after each batch",
        "spark/listener.py",
        "    if limit in state.warned and amount < 2 * state.warned[limit]:\n",
        "    if False:\n",
    ),
    Break(
        "a listener counts the rows of a batch again when the query is idle",
        "spark/listener.py",
        "progress.batchId > query.batch",
        "True",
    ),
)


def folders_with_code() -> set[str]:
    """Return the folders of ttlsnap with a module of their own, such as ``stores/hdfs``."""
    found = set()
    for folder, _, names in os.walk(ROOT / "ttlsnap", followlinks=True):
        if any(name.endswith(".py") and name != "__init__.py" for name in names):
            found.add(str(Path(folder).relative_to(ROOT / "ttlsnap")))
    return found - {"."}


def main(arguments: Sequence[str]) -> int:
    """Try or list the chosen faults. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.breaks")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the number of a fault, or a folder of ttlsnap")
    parser.add_argument("--list", action="store_true", help="list the faults by folder, and try none")
    parser.add_argument("--jobs", type=int, default=1, help="how many faults to try at a time")
    given = parser.parse_args(arguments)
    chosen = list(_choose(given.names))
    if given.list:
        for folder, numbers in groupby(sorted(chosen, key=_folder), _folder):
            print(folder)
            for number in numbers:
                print(f"  {number:3} {BREAKS[number - 1].what}")
        return 0
    began = time.monotonic()
    with ThreadPoolExecutor(given.jobs) as pool:
        unseen = sum(not found for found in pool.map(_try, chosen))
    print(f"{len(chosen) - unseen} of {len(chosen)} faults were found, in {(time.monotonic() - began) / 60:.0f} min")
    return 1 if unseen else 0


def _folder(number: int) -> str:
    return BREAKS[number - 1].folder


def _choose(named: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of the faults that are named by number or by folder; all of them without a name."""
    for name in named:
        if not (name.isdigit() and 1 <= int(name) <= len(BREAKS)) and name not in folders_with_code():
            raise SystemExit(f"{name} is neither the number of a fault nor a folder of ttlsnap")
    for number, one in enumerate(BREAKS, 1):
        if not named or str(number) in named or any(f"{one.folder}/".startswith(f"{name}/") for name in named):
            yield number


def _try(number: int) -> bool:
    """Try a fault, and print which test found it. Return whether one did."""
    wrong, started = BREAKS[number - 1], time.monotonic()
    found = find(wrong)
    told = "NO TEST FAILED" if found is None else f"found by {found}"
    print(f"{number:3} {wrong.folder}: {wrong.what} ({time.monotonic() - started:.0f} s): {told}", flush=True)
    return found is not None


def find(wrong: Break) -> str | None:
    """Return the name of a test that fails with this fault; None if none does."""
    with tempfile.TemporaryDirectory(prefix="ttlsnap-break-") as folder:
        copy = Path(folder, "copy")
        shutil.copytree(ROOT, copy, ignore=_IGNORED)
        file = copy / "ttlsnap" / wrong.file
        text = file.read_text()
        if text.count(wrong.old) != 1:
            raise SystemExit(f"{wrong.file} has this code {text.count(wrong.old)} times: {wrong.old}")
        file.write_text(text.replace(wrong.old, wrong.new))
        found = next(filter(None, (_first_failure(copy, wrong.tests, chosen) for chosen in SLICES)), None)
        file.write_text(text)
        if found is not None and _first_failure(copy, [found], "spark or not spark") is not None:
            raise SystemExit(f"{found} fails without the fault, too")
        return found


def _first_failure(copy: Path, tests: Sequence[str], chosen: str) -> str | None:
    """Return the name of the first test of a slice that fails; None if none does."""
    # The copy has no commit of its own, so it gets the seed of this one: the cases that rotate are those of make test.
    given = {"PYTHONPATH": str(copy), "TTLSNAP_SEED": seed()}
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", chosen]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(command, cwd=copy, env=os.environ | given, capture_output=True, text=True, check=False)
    failed = [
        line.partition(" ")[2].partition(" - ")[0]
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    if done.returncode == 1 and failed:
        return failed[0]
    if done.returncode not in (0, _NO_TESTS):
        raise SystemExit(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
