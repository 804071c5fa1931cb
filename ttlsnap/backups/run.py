"""The public function ``copy``: to a new place, or in place of a checkpoint."""

from __future__ import annotations

from ttlsnap.copies.report import CopyReport
from ttlsnap.copies.run import CopyRequest, has_begun, make_copy
from ttlsnap.errors import StorageError, UsageError
from ttlsnap.keywords import takes


@takes(CopyRequest)
def copy(request: CopyRequest) -> CopyReport:
    """Copy the checkpoint ``source`` to ``target``, as of one batch. The query may keep running.

    With ``replace``, ``target`` may be a checkpoint of the same query: it is restored from the copy ``source``. Its
    query must be stopped.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). Nothing is written to the source. A copy that is not complete
    keeps Spark from starting, and another call continues it.
    """
    if request.replace and (request.new_id or request.verify or request.onto is not None):
        raise UsageError("--replace cannot be used with --new-id, --verify or --onto")
    if request.last_batch is not None and not request.replace:
        raise UsageError("--last-batch needs --replace")
    if request.replace:
        # This loads PyArrow, which others do not need.
        from ttlsnap.backups.replacing import replace_state, require_replaceable

        require_replaceable(request.target, request.last_batch)
        return replace_state(request)
    try:
        return make_copy(request)
    except StorageError as error:
        if not request.dry_run and has_begun(request.target):
            error.add("What has arrived stays there. Repeat the command, and it goes on")
        raise
