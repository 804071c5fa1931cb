"""The result of ``copy``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ttlsnap.documents import MILLISECONDS, Result, in_json


@dataclass(frozen=True, kw_only=True)
class CopyReport(Result):
    """The result of ``copy``.

    source, target  the checkpoint and its copy
    batch           the batch that the copy continues from
    source_batch    the batch of the source that the copy has: another number only if a checkpoint was replaced
    begun_batch     a later batch that was begun and not committed, so the copy does not have it; None if there is none
    query_id        the id that the copy has; ``new_id`` says whether it is another one than that of the source
    complete        False for a dry run
    files, bytes    the size of the copy
    sent, sent_bytes        what was sent in this call
    shared, shared_bytes    what an earlier copy (``onto``) had already
    onto_is_damaged whether files of the earlier copy are damaged, so that they were sent after all; ``damaged_onto``
                    are those that this call has found
    kept            files that an earlier call had already sent
    attempts        how often a batch was chosen, because files of the one before were removed
    verified        whether everything in the copy was read again, and is what the manifest says
    replaced        whether ``target`` was a checkpoint, which got the state of the source in the run ``run``
    backup          the folder with the files that were replaced
    refused, made_final, first_run      see ``RunReport``
    """

    source: str
    target: str
    batch: int
    source_batch: int
    query_id: str | None
    new_id: bool
    dry_run: bool
    complete: bool
    files: int
    bytes: int
    sent: int = 0
    sent_bytes: int = 0
    shared: int = 0
    shared_bytes: int = 0
    onto_is_damaged: bool = False
    damaged_onto: tuple[str, ...] = field(default=(), metadata=in_json(hidden=True))
    kept: int = 0
    attempts: int = 1
    verified: bool = False
    begun_batch: int | None = None
    seconds: float = field(default=0.0, metadata=MILLISECONDS)
    warnings: tuple[str, ...] = ()
    replaced: bool = False
    run: str | None = None
    backup: str | None = None
    refused: bool = False
    made_final: str | None = None
    first_run: str | None = None
