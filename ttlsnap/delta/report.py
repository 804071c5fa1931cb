"""The report of a run on a table, as data and as the JSON on which scripts rely."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ttlsnap.clock import iso, iso_of
from ttlsnap.compaction.drop_limit import StateDrop
from ttlsnap.compaction.report import Counts
from ttlsnap.documents import Document, Result, to_json
from ttlsnap.transform.protocols import TimeSummary


@dataclass(frozen=True)
class Erasure(Document):
    """The results of ``--erase``.

    ``purged`` is the version without deletion vectors, or None if there was none to purge. ``retention_ms`` is the
    retention of ``VACUUM``. ``left`` is the number of old files that had to stay, None if unknown.
    """

    purged: int | None
    retention_ms: int | None
    left: int | None


@dataclass(frozen=True)
class TableReport(Result):
    """The report of a run on a table at ``version``. ``versions`` are those in which it dropped or rewrote rows.

    ``files`` is the number of data files; the dry run ``opened`` some of them, and the statistics ``decided`` others.
    ``engine`` is ``spark`` if it was needed. ``overtaken`` rows were written by somebody else after they were read, and
    stay. ``erasing`` says whether old files are removed, too. ``physically_gone_by`` is the earliest time at which
    ``VACUUM`` may remove the files with dropped rows; None if files of the table still have them. ``expired_to`` is the
    archive of the dropped rows. ``drop`` is the input of the limit on dropped rows; None if they were not counted.
    """

    run: str
    target: str
    version: int
    key: tuple[str, ...]
    dry_run: bool
    now_us: int
    now_source: str
    timestamp: str | None
    counts: Counts
    files: int
    decided: int
    opened: int = 0
    engine: str | None = None
    times: TimeSummary | None = None
    versions: tuple[int, ...] = ()
    erasing: bool = False
    overtaken: int = 0
    physically_gone_by: datetime | None = None
    expired_to: str | None = None
    drop: StateDrop | None = None
    refused: bool = False
    erased: Erasure | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = field(default=())

    @property
    def totals(self) -> Counts:
        """The counts, under the name that a checkpoint's report uses."""
        return self.counts

    @property
    def published(self) -> bool:
        """Whether there is a new version."""
        return bool(self.versions)

    @property
    def changed(self) -> bool:
        """Whether something was, or in a dry run would be, dropped or rewritten."""
        return bool(self.counts.dropped or self.counts.rewritten)

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``compact --format json``, in which a table has one store, as a checkpoint has."""
        gone_by, times = self.physically_gone_by, self.times
        return {
            "run": self.run,
            "target": self.target,
            "kind": "table",
            "dry_run": self.dry_run,
            **({"refused": True} if self.refused else {}),
            "published": self.published,
            "engine": self.engine,
            "key": list(self.key),
            "fingerprint": f"version {self.version}",
            "now": iso(self.now_us),
            "now_source": self.now_source,
            "totals": self.counts.to_json(),
            "stores": [
                {
                    "operator": None,
                    "store": "table",
                    "state": "rows",
                    "role": "primary",
                    **self.counts.to_json(),
                    "timestamp": self.timestamp,
                    "cutoff": iso(times.cutoff_us) if times else None,
                    "oldest": iso(times.oldest_us) if times else None,
                    "newest": iso(times.newest_us) if times else None,
                    "null_timestamps": times.nulls if times else None,
                }
            ],
            "files": {"all": self.files, "decided": self.decided, "opened": self.opened},
            "versions": list(self.versions),
            "overtaken": self.overtaken,
            "logically_gone": {"version": self.versions[-1]} if self.versions and self.counts.dropped else None,
            "physically_gone_by": None if gone_by is None else iso_of(gone_by),
            "erased": to_json(self.erased),
            "expired_to": self.expired_to,
            "output": None,
            "backup": None,
            "seconds": round(self.seconds, 3),
            "warnings": list(self.warnings),
        }


def sum_known(values: Iterable[int | None]) -> int | None:
    """Return the sum; None if one of the values is unknown."""
    known_values = list(values)
    return None if None in known_values else sum(value for value in known_values if value is not None)
