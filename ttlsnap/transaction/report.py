"""What the reports of all runs that write new state have in common."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from ttlsnap.documents import MILLISECONDS, Result


@dataclass(frozen=True, kw_only=True)
class RunReport(Result):
    """The report of a run.

    published      False for a dry run, and if there was nothing to change
    output         the new checkpoint, if one was written
    backup         the folder with the replaced files
    seconds        how long the run took
    warnings       cautions, and problems after publishing; the published state stays
    destination    the new checkpoint that the run, or in a dry run a run, writes; None if it publishes in place
    refused        in a dry run, whether a run with the same options would be refused now; the warnings say why
    made_final     the run before, if only its backup could undo it and this run removed that, or would remove it
    first_run      what to expect of the query's next run, if its first batch may be the only one
    """

    run: str
    target: str
    dry_run: bool
    published: bool
    batch: int
    output: str | None = None
    backup: str | None = None
    seconds: float = field(default=0.0, metadata=MILLISECONDS)
    warnings: tuple[str, ...] = ()
    destination: str | None = None
    refused: bool = False
    made_final: str | None = None
    first_run: str | None = None

    @property
    def changed(self) -> bool:
        """Whether something was, or in a dry run may be, changed."""
        return self.published or self.dry_run

    def unpublished(self) -> Self:
        """Return the report of the same run, which publishes nothing."""
        return replace(self, published=False, output=None, backup=None)
