"""The parts of a world, and the parameters of scenarios: rules of the protocol, assumptions, and bounds."""

from __future__ import annotations

from typing import NamedTuple

from .disk import Delta, Disk, Full, Journal, N, V, commits, delta, full, offsets, table


class Rules(NamedTuple):
    """The rules of the protocol. A planted defect is one of them switched off."""

    planned_batch: bool = True  # a planned batch replaces the fence, which is not just removed
    atomic_plan: bool = True  # it replaces the fence in one step
    fence_on_plan: bool = True  # rollback's fence replaces the planned batch, so that this place is never free
    tables_stay: bool = True  # superseded tables get a second name in the backup, and are not moved there
    deltas_to_backup: bool = True  # the delta of a version is moved to the backup when a new snapshot replaces it
    leftovers_to_backup: bool = True  # a snapshot of an uncommitted version is moved to the backup
    journal_first: bool = True  # the journal is written before the fence
    close_last: bool = True  # the journal is closed after the fence is gone
    old_first: bool = True  # old files are in the backup before new files come
    check: bool = True  # behind the fence everything is compared with the plan
    check_files: bool = True  # this check includes state files and temporary files, not just logs
    recheck: bool = True  # the comparison is repeated when all files are in place
    lease: bool = True  # a command on another host is refused while one is running
    keep_backup: bool = True  # a backup that still holds a file is not removed with an undone run
    prune_asks: bool = True  # history --prune, and the next run, keep a table that a version needs
    recognise: bool = True  # the journal records its batch's logs, so that a snapshot that hides a rerun is recognised
    set_back_allowed: bool = True  # rollback is possible if the run's batch was set back
    rollback_compares: bool = True  # rollback compares files with the journal, not just batch numbers
    rollback_loads: bool = True  # rollback checks that Spark can load the old state with the files that exist now
    spare_committed: bool = True  # rollback refuses if a later batch is committed
    take_plan_back: bool = True  # rollback removes the planned batch
    begun_plan_stays: bool = True  # rollback keeps the planned batch if Spark has begun to run it
    recover_compares: bool = True  # recover compares files with the journal
    recover_rechecks: bool = True  # recover checks logs, targets and temporary files again, as publishing does
    uploads_awaited: bool = True  # recover waits while Spark's maintenance writes a file of the same name
    unchecked_undone: bool = True  # recover undoes a run that was interrupted before its first move
    gone_on_undone: bool = True  # recover undoes a run, and does not finish it, if a batch was committed since
    finished_closed: bool = True  # recover closes a run with all moves done and no fence, and never undoes it


class Assumptions(NamedTuple):
    """Assumptions that ttlsnap cannot check by itself."""

    stopped_is_true: bool = True  # nobody says --stopped while the query is alive
    batches_end: bool = True  # a batch in progress changes a file before the logs count as old
    uploads_end: bool = True  # an upload of V by Spark's maintenance ends before the logs count as old
    starts_show: bool = True  # a query that started before the fence has written a file before the check behind it
    seen_by_recheck: bool = False  # if one of these three is late, it ends before ttlsnap's recheck
    warned: bool = True  # nobody starts a query while ttlsnap warns that a snapshot hides a batch
    fence_stays: bool = True  # nobody removes a fence by hand


class Left(NamedTuple):
    """How often each actor may still act. This bounds the exploration."""

    a: int = 0  # commands on one host
    b: int = 0  # commands on another host
    crashes: int = 0
    starts: int = 0
    set_backs: int = 0
    unfences: int = 0
    removals: int = 0
    uploads: int = 0
    cleanups: int = 0
    misreads: int = 0  # how often Spark fails to read a snapshot that is in order


class Scenario(NamedTuple):
    """The start of an exploration, and its actors."""

    kind: str = "snapshot"  # or "zip"
    uncommitted: bool = False  # batch N+1 was interrupted after partition 0 had written its state
    snapshotted: bool = True  # version V has a snapshot by Spark (it always has a zip)
    query: str = "stopped"  # or "idle": alive, with V in memory; or "slow": it runs batch N+1
    commands: tuple[str, ...] = ("compact", "recover", "undo", "rollback", "repair", "prune")
    left: Left = Left()
    last_batch: int = N + 1  # the last batch that a query runs
    rules: Rules = Rules()
    assumes: Assumptions = Assumptions()


class Process(NamedTuple):
    """A running command of ttlsnap: its next step, and the content of its memory."""

    command: str
    step: str
    at: int = 0
    journal: Journal | None = None
    seen: frozenset[tuple[str, object]] = frozenset()


class Query(NamedTuple):
    """A running query: its next step, its batch, and the flavours and tables in its memory.

    ``is_rerun`` says that the batch is already in the log, so that its start changes no file.
    """

    step: str
    batch: int
    memory: tuple[str | None, ...] = (None, None)
    tables: tuple[int, ...] = ()
    text: str = ""
    is_rerun: bool = False
    upload: tuple[str, Full] | None = None  # a snapshot that its maintenance uploads

    @property
    def is_hidden(self) -> bool:
        """Return whether the query has read the logs, but has not changed a file yet."""
        return self.is_rerun and self.step == "load"


class World(NamedTuple):
    """The state of all actors and files at one time.

    ``quiet``: the newest file of the logs is old. ``again``: batch N was set back, run again and committed.
    """

    disk: Disk
    left: Left
    quiet: bool = True
    a: Process | None = None
    b: Process | None = None
    query: Query | None = None
    again: bool = False

    def process(self, host: str) -> Process | None:
        """Return the command that runs on a host."""
        return self.a if host == "a" else self.b

    def with_process(self, host: str, process: Process | None) -> World:
        """Return this world with another process, or none, on a host."""
        return self._replace(a=process) if host == "a" else self._replace(b=process)

    def spend(self, budget: str) -> World:
        """Return this world with one unit of a budget spent."""
        return self._replace(left=self.left._replace(**{budget: getattr(self.left, budget) - 1}))


def begin(scenario: Scenario) -> World:
    """Return the world in which a scenario starts."""
    kind = scenario.kind
    disk = {"sink/0": "batch 0", f"sink/{N}": f"batch {N}"}
    files: dict[str, object] = {**disk, offsets(0): "batch 0", commits(0): "batch 0"}
    files |= {offsets(N): f"batch {N}", commits(N): f"batch {N}"}
    for partition in (0, 1):
        # Partition 0 has RocksDB's tables. V shares table 1 with the version before, and table 2 belongs to V alone.
        older, newer = ((1,), (1, 2)) if kind == "zip" and partition == 0 else ((), ())
        files[full(partition, N, kind)] = Full("old", older)
        if kind == "snapshot":
            files[delta(partition, V)] = Delta("old", "old")
        if kind == "zip" or scenario.snapshotted:
            files[full(partition, V, kind)] = Full("old", newer)
        files |= {table(partition, number): "a table" for number in newer}
    if scenario.uncommitted or scenario.query == "slow":
        files[offsets(N + 1)] = f"batch {N + 1}"
        if kind == "zip" or scenario.snapshotted:
            files[full(0, V + 1, kind)] = Full("old", (1, 2) if kind == "zip" else ())
        if kind == "snapshot":
            files[delta(0, V + 1)] = Delta("old", "old")
    memory, tables = ("old", "old"), (1, 2) if kind == "zip" else ()
    query = {
        "idle": Query("idle", N + 1, memory, tables),
        "slow": Query("write 1", N + 1, memory, tables, f"batch {N + 1}"),
        "stopped": None,
    }[scenario.query]
    return World(Disk(files), scenario.left, query=query, quiet=scenario.query == "stopped")
