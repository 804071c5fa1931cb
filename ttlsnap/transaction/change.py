"""What a run changes in a checkpoint, and the journal of these changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ttlsnap.checkpoint import Logs, layout
from ttlsnap.checkpoint.listing import Listing
from ttlsnap.publishing.fence import fence_file
from ttlsnap.publishing.journal import (
    FileFacts,
    FileMove,
    Journal,
    backup_path,
    digest_of,
    facts_of,
    leftovers_of,
    staged_path,
)
from ttlsnap.publishing.moves import plan_backup, plan_checksum_backup
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.trees import stat_files
from ttlsnap.stores.protocols import StagedFile
from ttlsnap.transaction.nullable_joins import nullable_schemas


@dataclass(frozen=True, kw_only=True)
class Change:
    """The changes of a run to the state of ``batch``.

    ``staged`` are its new files. ``documents`` are small files with their new content: logs, metadata, schemas.
    ``ledgers`` are the paths of staged ledgers. What they replace moves to the backup, and so do the old files
    ``set_aside``. The files ``preserved`` stay in place, and the backup gets them as well. ``kept_logs`` are the files
    that stay in the folders of changed logs of sources, or None if no such log changes. ``planned`` is the text of the
    batch that replaces the fence, or None.
    """

    kind: Literal["compact", "import", "migrate", "repair", "restore", "sources"]
    batch: int
    staged: Sequence[StagedFile] = ()
    documents: Mapping[str, bytes] = field(default_factory=dict)
    ledgers: Sequence[str] = ()
    set_aside: Sequence[str] = ()
    preserved: Sequence[str] = ()
    kept_logs: Sequence[str] | None = None
    planned: str | None = None

    def journal(self, runs: Runs, run: str, logs: Logs, before: Listing) -> Journal:
        """Return the journal of these changes, after staging the documents and copying the preserved files.

        ``logs`` and ``before`` have the logs and the state files as they were before the run.
        """
        files, fence = runs.files, fence_file(logs)
        documents, staged = dict(self.documents), {file.target: file for file in self.staged}
        # A restore after a batch that was begun has its planned batch among the documents.
        if self.planned is not None or layout.offset_file(self.batch + 1) in documents:
            staged_paths = {path: file.path for path, file in staged.items()}
            documents |= nullable_schemas(files, before, staged_paths, documents)
        _stage(files, run, documents)
        each(files, lambda path: files.keep_copy(path, backup_path(run, path)), self.preserved)
        # A document can take the place of a staged file, which then has another checksum.
        staged = {path: file for path, file in staged.items() if layout.strip_checksum(path) not in documents}
        staged_moves = [FileMove(file.path, path) for path, file in staged.items()]
        staged_moves += [FileMove(staged_path(run, path), path) for path in documents]
        ledger_moves = [FileMove(staged_path(run, path), path) for path in self.ledgers]
        old_paths = dict.fromkeys([*self.set_aside, *(move.target for move in (*staged_moves, *ledger_moves))])
        to_backup = plan_backup(files, run, list(old_paths)) + plan_checksum_backup(files, run, fence)
        digests = {file.path: file.digest for file in staged.values()}
        published_facts = _identify(files, staged_moves, digests)
        return Journal(
            run=run,
            number=runs.next_number,
            kind=self.kind,
            batch=self.batch,
            fence=fence,
            moves=(*to_backup, *staged_moves, *ledger_moves),
            status="open",
            published=published_facts,
            logs=self._identify_logs(files, published_facts, documents),
            preserved=tuple(self.preserved),
            kept_logs=None if self.kept_logs is None else tuple(self.kept_logs),
            leftovers=leftovers_of(files, before, self.batch),
            planned=self.planned,
        )

    def _identify_logs(
        self, files: Directory, published_facts: Sequence[FileFacts], documents: Collection[str]
    ) -> tuple[FileFacts, ...]:
        """Return the identities that the logs of the batch will have."""
        paths = (layout.offset_file(self.batch), layout.commit_file(self.batch))
        new_facts = [facts for facts in published_facts if facts.path in paths]
        return (*new_facts, *facts_of(files, [path for path in paths if path not in documents]))


def _identify(
    files: Directory, staged_moves: Sequence[FileMove], digests: Mapping[str, str | None]
) -> tuple[FileFacts, ...]:
    """Return the identities that the staged files will have in their places. ``digests`` are those that are known."""
    infos = stat_files(files, [move.source for move in staged_moves])

    def identify(move: FileMove) -> FileFacts:
        info = infos[move.source]
        digest = digests.get(move.source) or digest_of(files, move.source)
        return FileFacts(move.target, info.size, info.mtime_ns, digest)

    return tuple(each(files, identify, staged_moves))


def _stage(files: Directory, run: str, documents: Mapping[str, bytes]) -> None:
    for path, data in documents.items():
        path_in_staging = staged_path(run, path)
        files.mkdirs(path_in_staging.rpartition("/")[0])
        with files.writer(path_in_staging) as file:
            file.write(data)
