"""The result of ``copy``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ttlsnap.documents import MILLISECONDS, Result


@dataclass(frozen=True, kw_only=True)
class CopyReport(Result):
    """The result of ``copy``.

    source, target  the checkpoint and its copy
    batch           the batch that the copy continues from
    query_id        the id that the copy has; ``new_id`` says whether it is another one than that of the source
    complete        False for a dry run
    files, bytes    the size of the copy
    sent, sent_bytes        what was sent in this call
    kept            files that an earlier call had already sent
    attempts        how often a batch was chosen, because files of the one before were removed
    verified        whether everything in the copy was read again, and is what the manifest says
    """

    source: str
    target: str
    batch: int
    query_id: str | None
    new_id: bool
    dry_run: bool
    complete: bool
    files: int
    bytes: int
    sent: int = 0
    sent_bytes: int = 0
    kept: int = 0
    attempts: int = 1
    verified: bool = False
    seconds: float = field(default=0.0, metadata=MILLISECONDS)
    warnings: tuple[str, ...] = ()
