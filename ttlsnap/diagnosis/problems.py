"""Every kind of problem that ``doctor`` knows: a stable code, its severity, and what to do.

``error``     the query does not start, or continues with a wrong state
``warning``   the newest state can be restored; something else is damaged, or in the way
``unknown``   a format or a version that ttlsnap cannot examine
``note``      nothing is wrong
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ttlsnap.checkpoint.logs import FUTURE_ADVICE
from ttlsnap.documents import Document
from ttlsnap.errors import TtlsnapError, shorten
from ttlsnap.printable import shell_word

Severity = Literal["error", "warning", "unknown", "note"]

_RESTORE = "Restore the file from a copy of the checkpoint"


@dataclass(frozen=True)
class Kind:
    """A kind of problem: its default severity, the advice, and whether ``--fix`` can repair it."""

    severity: Severity
    fix: str
    fixable: bool = False


CODES: dict[str, Kind] = {
    "fence": Kind("error", "Run: ttlsnap recover {target}"),
    "cut-off-run": Kind("error", "Run: ttlsnap recover {target}"),
    "unfinished-repartition": Kind(
        "error",
        "Let Spark finish it, with the same number: spark._streamingCheckpointManager.repartition(checkpoint, "
        "{count}). Or stop the query, and go back to the state before it: ttlsnap doctor {target} --fix "
        "unfinished-repartition --stopped",
        True,
    ),
    "abandoned-repartition": Kind(
        "error",
        "Stop the query, and move what the repartition left to a backup: ttlsnap doctor {target} --fix "
        "abandoned-repartition --stopped",
        True,
    ),
    "resumed-repartition": Kind(
        "error",
        "The query continued over the files of an abandoned repartition. ttlsnap cannot tell which of its processes "
        "read the stale snapshots. Restore the checkpoint from a copy from before the repartition, or go back by hand "
        "to a batch before it",
    ),
    "hidden-batch": Kind(
        "error",
        "{advice}. This moves the files of that run to a backup. If the query was restarted after the batch ran again, "
        "the later batches are based on the old result. Set them back as well, or restore the checkpoint from a copy",
        True,
    ),
    "published-file-missing": Kind("error", "{advice}"),
    "table-in-backup": Kind(
        "error", "Stop the query, and put it back: ttlsnap doctor {target} --fix table-in-backup --stopped", True
    ),
    "stale-snapshot": Kind(
        "error",
        "Stop the query, and move the snapshots to a backup: ttlsnap doctor {target} --fix stale-snapshot --stopped"
        "{more}",
        True,
    ),
    "maybe-stale-snapshot": Kind(
        "note",
        "Nothing to do if the times of the files are not those of Spark, as in many copies, or if the batch only ran "
        "again after a crash. But if the batch was withdrawn and then ran again, the snapshot has the withdrawn state: "
        "restore the checkpoint from a copy",
    ),
    "moved-schema-paths": Kind(
        "error",
        "Stop the query, and make them name the files of this checkpoint: ttlsnap "
        "doctor {target} --fix moved-schema-paths --stopped",
        True,
    ),
    "moved-source-paths": Kind(
        "error",
        "Stop the query, and make it name this checkpoint: ttlsnap "
        "doctor {target} --fix moved-source-paths --stopped. Then start the query with the "
        "new place in its option schemaTrackingLocation, too",
        True,
    ),
    "torn-offset": Kind(
        "error",
        "Stop the query, and move the file to a backup: ttlsnap doctor {target} --fix torn-offset --stopped. Spark "
        "then plans the batch again, possibly with more input. If the interrupted batch had reached the sink, the sink "
        "receives those rows again",
        True,
    ),
    "blocked-batch": Kind("error", "Spark stops there. Move it out of the checkpoint"),
    "stray-state": Kind("error", "Move it out of the checkpoint"),
    "missing-commit": Kind("error", f"{_RESTORE}; {{spark}}"),
    "damaged-log": Kind("error", _RESTORE),
    "damaged-metadata": Kind("error", _RESTORE),
    "damaged-snapshot": Kind(
        "error",
        "Stop the query, and move the snapshot to a backup: ttlsnap "
        "doctor {target} --fix damaged-snapshot --stopped. Nothing is lost, because the "
        "other files have the whole state",
        True,
    ),
    "stale-checksum": Kind(
        "error",
        "Stop the query, and move the checksum file to a backup: ttlsnap "
        "doctor {target} --fix stale-checksum --stopped. But if somebody put the "
        "state file there by hand, it may belong to another version or partition: then restore both files from a copy",
        True,
    ),
    "published-file-damaged": Kind("error", "{advice}"),
    "missing-delta": Kind("error", _RESTORE),
    "damaged-file": Kind(
        "error",
        f"{_RESTORE}. If only the checksum file beside it is wrong, and you know that the file is good, remove the "
        "checksum file",
    ),
    "row-does-not-fit-schema": Kind("error", f"{_RESTORE}, or restore the schema, if that is the wrong one"),
    "wrong-count": Kind("error", _RESTORE),
    "broken-links": Kind("error", "Restore the partition, with all of its stores, from a copy of the checkpoint"),
    "two-key-orders": Kind(
        "error",
        "Keys in the older order are never found again. To keep them, restore a copy of the checkpoint from before the "
        "query moved to another Spark. Then run the query on the old Spark, or on Spark Connect with the columns "
        "listed in the old order",
    ),
    "maybe-two-key-orders": Kind(
        "note",
        "If the rows come in both directions (such as from A to B and from B to A), there is nothing to do. Otherwise, "
        "duplicates of older rows came through after the query moved to another Spark, and keys in the older order are "
        "never found again",
    ),
    "misplaced-keys": Kind(
        "error",
        "Spark never finds these keys again, and begins new entries for them. If folders or files of partitions were "
        "exchanged, put them back. Otherwise restore the checkpoint from a copy",
    ),
    "maybe-misplaced-keys": Kind(
        "note",
        "There is nothing to do if the query was begun before Spark 3.3, and has a repartition of its own by some of "
        "its keys. Otherwise Spark never finds these keys again: put folders or files that were exchanged back, or "
        "restore the checkpoint from a copy",
    ),
    "last-batch-lost": Kind(
        "error",
        "If there is no copy to restore from, stop the query, and go back to batch {batch}: ttlsnap doctor {target} "
        "--fix last-batch-lost --stopped (add --yes without a terminal). What the later batches had read is read "
        "again, so the sink gets their rows a second time, in batches with new numbers",
        True,
    ),
    "nothing-restorable": Kind(
        "error",
        "Restore the files named above from a copy. Without one, the last chance is to copy this folder, and to start "
        "the query on the copy: Spark may not need the damaged file",
    ),
    "extra-partition": Kind("warning", "If nothing uses it, move the folder out of the checkpoint"),
    "broken-link": Kind("warning", "Remove the link, or replace it by the file that it should name"),
    "link-outside": Kind(
        "unknown", "Replace the link by its target. If the target is missing, restore it from a copy of the checkpoint"
    ),
    "unsupported": Kind(
        "unknown", "If it is a format, a newer version of ttlsnap may know it. If it is a limit, raise the limit"
    ),
    "altered-copy": Kind("error", "Use another copy, or make a new one"),
    "planned-batch": Kind("note", "Nothing to do: the query restarts with this batch"),
    "uncommitted-batch": Kind(
        "note", "Nothing to do: it runs again when the query starts. If the query does not start: ttlsnap rewind"
    ),
    "future-watermark": Kind("note", FUTURE_ADVICE),
    "missing-schema": Kind(
        "warning",
        "Restore the schema from a copy of the checkpoint. Without it, Spark takes the schema of the query that it "
        "starts for that of the state, and checks nothing. So start only the unchanged query",
    ),
    "no-schema": Kind("note", "Nothing to do; ttlsnap inspect --schema shows the entries"),
    "query-at-work": Kind(
        "note", "Stop the query and run doctor again: files that a running query removes look like missing ones"
    ),
}


@dataclass(frozen=True)
class Problem(Document):
    """One problem: ``where`` is its path relative to the checkpoint, ``fix`` the advice."""

    code: str
    severity: Severity
    where: str
    message: str
    fix: str
    fixable: bool


def problem(
    target: str, code: str, where: str, message: str | TtlsnapError, severity: Severity | None = None, **facts: object
) -> Problem:
    """Return a problem of a known kind. ``message`` is a text or an error. ``facts`` are inserted into its advice."""
    kind = CODES[code]
    fix = kind.fix.format(target=shell_word(target), **facts)
    text = message.message if isinstance(message, TtlsnapError) else message
    return Problem(code, severity or kind.severity, where, shorten(text), fix, kind.fixable)


def is_cut_off(problems: Iterable[Problem]) -> bool:
    """Return whether a run was interrupted while it published: its files may be at either end of their moves."""
    return any(reported_problem.code in ("fence", "cut-off-run") for reported_problem in problems)


def leads_outside(target: str, where: str) -> Problem:
    """Return the problem of a path behind a link to the outside. ttlsnap does not follow it, but Spark may."""
    message = (
        f"{target}/{where} is, or lies behind, a symbolic link to a place outside the checkpoint, which ttlsnap does "
        "not follow"
    )
    return problem(target, "link-outside", where, message)
