"""What a run on a table did, as data, and the JSON that scripts rely on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ttlsnap.clock import iso
from ttlsnap.drop_limit import StateDrop
from ttlsnap.report import Counts
from ttlsnap.transform import TimeSummary


@dataclass(frozen=True)
class Erasure:
    """What ``--erase`` has done.

    ``purged`` is the version without deletion vectors, None where there was none to purge. ``retention_ms`` is what
    ``VACUUM`` was held to; ``left`` are the files, no longer part of the table, that it had to leave, None where that
    cannot be told.
    """

    purged: int | None
    retention_ms: int | None
    left: int | None

    def to_json(self) -> dict[str, Any]:
        return {"purged": self.purged, "retention_ms": self.retention_ms, "left": self.left}


@dataclass(frozen=True)
class TableReport:
    """A run on a table that was at ``version``. ``versions`` are those in which it has dropped or rewritten rows.

    ``files`` are all data files, of which ``opened`` had to be read for the dry run's counts; ``decided`` were told by
    statistics. ``engine`` is ``spark`` where it was needed. ``overtaken`` rows were written by somebody else between
    being read and being changed, and left as they are. ``erasing`` tells whether old files are to go, too.
    ``physically_gone_by`` is when a ``VACUUM`` may first have removed the files with what was dropped, None where it
    stays in files that are still part of the table. ``expired_to`` is what gets the rows that were dropped.
    ``drop`` is what the limit on that goes by; None where the rows were not counted.
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
    erased: Erasure | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = field(default=())

    @property
    def totals(self) -> Counts:
        """The counts, as a checkpoint's report calls them."""
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
        """The document of ``compact --format json``."""
        gone, times = self.physically_gone_by, self.times
        return {
            "run": self.run,
            "target": self.target,
            "kind": "table",
            "dry_run": self.dry_run,
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
                    "oldest": iso(times.oldest_us) if times else None,
                    "newest": iso(times.newest_us) if times else None,
                    "null_timestamps": times.nulls if times else None,
                }
            ],
            "files": {"all": self.files, "decided": self.decided, "opened": self.opened},
            "versions": list(self.versions),
            "overtaken": self.overtaken,
            "logically_gone": {"version": self.versions[-1]} if self.versions and self.counts.dropped else None,
            "physically_gone_by": None if gone is None else iso_of(gone),
            "erased": None if self.erased is None else self.erased.to_json(),
            "expired_to": self.expired_to,
            "output": None,
            "backup": None,
            "seconds": round(self.seconds, 3),
            "warnings": list(self.warnings),
        }


def iso_of(moment: datetime) -> str:
    """ISO 8601 in UTC, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def summed(values: Iterable[int | None]) -> int | None:
    """The sum; None where one is not known."""
    found = list(values)
    return None if None in found else sum(value for value in found if value is not None)
