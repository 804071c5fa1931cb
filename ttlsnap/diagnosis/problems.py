"""Every kind of problem that ``doctor`` knows: a stable code, how grave it is, and the way out.

``error``     the query does not start, or goes on with a state that is not its own
``warning``   the newest state can be restored; something else is damaged, or in the way
``unknown``   a format or a version that ttlsnap cannot look into
``note``      nothing is wrong
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ttlsnap.errors import shortened

Severity = Literal["error", "warning", "unknown", "note"]

_RESTORE = "Restore the file from a copy of the checkpoint"


@dataclass(frozen=True)
class Kind:
    """A kind of problem: how grave it is unless said otherwise, what helps, and whether ``--fix`` can do that."""

    severity: Severity
    fix: str
    fixable: bool = False


CODES: dict[str, Kind] = {
    "fence": Kind("error", "Run: ttlsnap recover {target}"),
    "cut-off-run": Kind("error", "Run: ttlsnap recover {target}"),
    "unfinished-repartition": Kind(
        "error",
        "Let Spark finish it, asking for the same number: spark._streamingCheckpointManager.repartition(checkpoint, "
        "{count}). Or go back to the state before it: ttlsnap doctor {target} --fix unfinished-repartition",
        True,
    ),
    "abandoned-repartition": Kind(
        "error",
        "Set aside what the repartition left: ttlsnap doctor {target} --fix abandoned-repartition",
        True,
    ),
    "resumed-repartition": Kind(
        "error",
        "The query has gone on over what an abandoned repartition left. Nothing tells which of its processes read the "
        "stale snapshots. Restore the checkpoint from a copy of before the repartition, or go back by hand to a "
        "batch before it",
    ),
    "hidden-batch": Kind(
        "error",
        "{advice}. It sets the files of that run aside. If the query has been "
        "restarted since the batch ran again, what it wrote after that restart is based on the old result: set those "
        "batches back as well, or restore the checkpoint from a copy",
        True,
    ),
    "table-in-backup": Kind("error", "Put it back: ttlsnap doctor {target} --fix table-in-backup", True),
    "stale-snapshot": Kind("error", "Set the snapshots aside: ttlsnap doctor {target} --fix stale-snapshot", True),
    "moved-schema-paths": Kind(
        "error", "Have them name the files here: ttlsnap doctor {target} --fix moved-schema-paths", True
    ),
    "torn-offset": Kind(
        "error",
        "Set the file aside: ttlsnap doctor {target} --fix torn-offset. The batch is then planned anew, maybe over "
        "more input than before: if the cut-off batch had reached the sink, the sink gets those rows again",
        True,
    ),
    "missing-commit": Kind("error", f"{_RESTORE}; Spark runs the last of the batches alone and skips the others"),
    "damaged-log": Kind("error", _RESTORE),
    "damaged-metadata": Kind("error", _RESTORE),
    "missing-delta": Kind("error", _RESTORE),
    "damaged-file": Kind(
        "error", f"{_RESTORE}. If only a checksum file beside it is wrong, and the file known to be good, remove that"
    ),
    "row-does-not-fit-schema": Kind("error", f"{_RESTORE}, or the schema, whichever is the wrong one"),
    "wrong-count": Kind("error", _RESTORE),
    "broken-links": Kind("error", "Restore the partition from a copy of the checkpoint, all of its stores together"),
    "last-batch-lost": Kind(
        "error",
        "If there is no copy to restore from, go back to batch {batch}: ttlsnap doctor {target} --fix "
        "last-batch-lost (add --yes where nobody can be asked). The batches after it run again: the sink has already "
        "seen them, and gets their rows a second time, unless it goes by batch numbers; then it may pass over rows "
        "that come under a number it knows",
        True,
    ),
    "nothing-restorable": Kind("error", "Restore what is named above from a copy, or start from a new checkpoint"),
    "extra-partition": Kind("warning", "If it is nobody's, move the folder out of the checkpoint"),
    "broken-link": Kind("warning", "Remove the link, or put the file there that it stands for"),
    "link-outside": Kind(
        "unknown", "Put in the link's place what it leads to; if that is gone, restore it from a copy of the checkpoint"
    ),
    "unsupported": Kind("unknown", "Another version of ttlsnap may know it"),
    "planned-batch": Kind("note", "Nothing to do: the query restarts with this batch"),
    "uncommitted-batch": Kind("note", "Nothing to do: it runs again when the query starts"),
    "no-schema": Kind("note", "Nothing to do; ttlsnap inspect --schema shows the entries"),
    "query-at-work": Kind("note", "Stop the query and look again: files that it cleans up look like missing ones"),
}


@dataclass(frozen=True)
class Problem:
    """One finding: ``where`` is the path of what it is about, relative to the checkpoint; ``fix`` the way out."""

    code: str
    severity: Severity
    where: str
    message: str
    fix: str
    fixable: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def problem(
    target: str, code: str, where: str, message: object, severity: Severity | None = None, **facts: object
) -> Problem:
    """A finding of a known kind; ``facts`` go into the words of the way out."""
    kind = CODES[code]
    fix = kind.fix.format(target=target, **facts)
    return Problem(code, severity or kind.severity, where, shortened(str(message)), fix, kind.fixable)


def is_cut_off(problems: Iterable[Problem]) -> bool:
    """Return whether a run was interrupted while it published: its files are at both ends of their moves."""
    return any(found.code in ("fence", "cut-off-run") for found in problems)


def leads_outside(target: str, where: str) -> Problem:
    """Of what is not looked at: Spark may well follow such a link."""
    words = f"{target}/{where} is, or lies behind, a symbolic link that leads outside, which ttlsnap does not follow"
    return problem(target, "link-outside", where, words)
