"""The last run of ttlsnap: whether its files are still as it published them, and the advice if they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ttlsnap.diagnosis.logs import LogFindings
from ttlsnap.diagnosis.problems import Problem, problem
from ttlsnap.diagnosis.report import VersionReport
from ttlsnap.printable import shell_word
from ttlsnap.publishing.journal import Journal, facts_of, is_same
from ttlsnap.publishing.missing import can_roll_back
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.trees import find_existing

_DAMAGED, _MISSING = "published-file-damaged", "published-file-missing"
_DAMAGE = ("damaged-file", "missing-delta", "row-does-not-fit-schema", "wrong-count")
_LISTED = 5


@dataclass(frozen=True)
class LastRun:
    """The last run of ttlsnap, if its batch is still the last one.

    ``missing`` and ``changed`` are files that it published: those that are missing, and those with other bytes.
    """

    root: str
    journal: Journal
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    can_roll_back: bool

    def explain(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems with the advice to roll the run back, if that is possible.

        A delta that the run moved to its backup is missed only because a file that the run published is missing.
        """
        missing_texts = [f"{self.root}/{path}" for path in self.missing]
        missing_texts += [f"{self.root}/{move.source} is missing" for move in self.journal.to_backup]
        explained = [
            self._as_published(reported_problem)
            for reported_problem in problems
            if reported_problem.code not in _DAMAGE
            or not any(path in reported_problem.message for path in missing_texts)
        ]
        if self.can_roll_back and self.changed:
            advice = self._advise(None)
            explained = [
                replace(explained_problem, fix=advice) if explained_problem.code == _MISSING else explained_problem
                for explained_problem in explained
            ]
        reported_paths = {reported_problem.where for reported_problem in explained if reported_problem.code == _DAMAGED}
        for path in self.changed:
            if path not in reported_paths:
                message = f"{self.root}/{path} has other bytes than run {self.journal.run} of ttlsnap published"
                explained.append(problem(self.root, _DAMAGED, path, message, advice=self._advise(path)))
        return explained

    def _as_published(self, reported_problem: Problem) -> Problem:
        path = next((facts.path for facts in self.journal.published if facts.path in reported_problem.message), None)
        if path is None or reported_problem.code not in _DAMAGE:
            return reported_problem
        message = f"{reported_problem.message}. Run {self.journal.run} of ttlsnap published this file"
        return problem(self.root, _DAMAGED, path, message, reported_problem.severity, advice=self._advise(path))

    def _advise(self, path: str | None) -> str:
        """Return the advice for the published file ``path``; a rollback needs all changed ones out of its way."""
        restore_advice = "Restore the file from a copy of the checkpoint"
        run = self.journal.run
        if not self.can_roll_back:
            return f"{restore_advice}. Run {run} can no longer be rolled back"
        damaged_paths = list(dict.fromkeys([*([path] if path else []), *self.changed]))
        files_to_move = ", ".join(f"{self.root}/{path}" for path in damaged_paths[:_LISTED])
        if len(damaged_paths) > _LISTED:
            files_to_move += f" and the other files that run {run} published and doctor calls damaged"
        return (
            f"{restore_advice}. Or go back to the state before run {run}: move {files_to_move} out of the checkpoint, "
            f"and run: ttlsnap rollback {shell_word(self.root)} --stopped"
        )

    def warn_before_repairs(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems with a warning for repairs: after one, the run cannot be rolled back."""
        if not self.can_roll_back:
            return list(problems)
        is_lost = is_run_lost(problems)
        return [
            self._warn_before_repair(reported_problem, is_lost) if reported_problem.fixable else reported_problem
            for reported_problem in problems
        ]

    def _warn_before_repair(self, reported_problem: Problem, is_lost: bool) -> Problem:
        run = self.journal.run
        if is_lost and reported_problem.code in ("damaged-snapshot", "stale-checksum"):
            advice = (
                f"First restore the files that run {run} published, or roll that run back: after another repair, it "
                "can no longer be rolled back. Then run doctor again"
            )
            return replace(reported_problem, fix=advice, fixable=False)
        return replace(
            reported_problem, fix=f"{reported_problem.fix}. After this repair, run {run} can no longer be rolled back"
        )


def examine_last_run(files: Directory, logs: LogFindings, changed: Sequence[str]) -> LastRun | None:
    """Return the last run, unless somebody has put its old files back. ``changed`` are its files with other bytes."""
    journal, runs = logs.last_run, logs.runs
    if journal is None or runs is None or (changed and _is_put_back(files, journal, changed)):
        return None
    present_paths = find_existing(files, [facts.path for facts in journal.published])
    missing_paths = tuple(facts.path for facts in journal.published if facts.path not in present_paths)
    return LastRun(files.root, journal, missing_paths, tuple(changed), can_roll_back(runs, logs.logs, journal))


def judge_newest(version: VersionReport, last_run: LastRun | None, problems: Sequence[Problem]) -> VersionReport:
    """Return the report on the newest version: without the files of the last run, it cannot be restored."""
    if last_run is not None and last_run.changed:
        reasons = tuple(f"{last_run.root}/{path} is not as ttlsnap published it" for path in last_run.changed)
        version = replace(version, restorable="no", problems=(*version.problems, *reasons))
    if any(reported_problem.code == _MISSING for reported_problem in problems):
        # With a delta that somebody put back, the version would be a mixture of old and new partitions.
        version = replace(version, restorable="no")
    return version


def is_run_lost(problems: Sequence[Problem]) -> bool:
    """Return whether files that the last run published are damaged or missing."""
    return any(reported_problem.code in (_DAMAGED, _MISSING) for reported_problem in problems)


def _is_put_back(files: Directory, journal: Journal, changed: Sequence[str]) -> bool:
    """Return whether somebody has put the old files of every partition back, so that the run is undone.

    With only some of them, old and new partitions would be mixed. An old file whose backup was removed is not compared.
    """
    backup_paths = {move.source: move.target for move in journal.to_backup}
    if set(changed) != {facts.path for facts in journal.published} & backup_paths.keys():
        return False
    old_facts = [
        replace(facts, path=path, mtime_ns=-1) for path in changed for facts in facts_of(files, [backup_paths[path]])
    ]
    return all(is_same(files, facts, files.stat(facts.path)) for facts in old_facts)
