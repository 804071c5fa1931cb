"""What a world consists of, and by what worlds differ: rules of the protocol, assumptions, and bounds."""

from __future__ import annotations

from typing import NamedTuple

from .disk import Delta, Disk, Full, Journal, N, V, commits, delta, full, offsets, table


class Rules(NamedTuple):
    """The rules of the protocol. A planted defect is one of them switched off."""

    planned_batch: bool = True  # a planned batch takes the fence's place; the fence is not just removed
    atomic_plan: bool = True  # it takes that place in one step
    fence_on_plan: bool = True  # rollback's fence takes the planned batch's place, so that this place is never free
    tables_stay: bool = True  # superseded tables get a second name in the backup; they are not moved there
    leftovers_aside: bool = True  # a snapshot of an uncommitted version is moved to the backup
    journal_first: bool = True  # the journal is written before the fence
    close_last: bool = True  # the journal is closed after the fence is gone
    old_first: bool = True  # old files are in the backup before new ones come
    check: bool = True  # behind the fence everything is compared with the plan
    check_files: bool = True  # not the logs alone, but also state files and temporary files
    recheck: bool = True  # and once more when all files are in place
    lease: bool = True  # a command on another host is refused while one is at work
    keep_backup: bool = True  # a backup that still holds a file is not removed with an undone run
    prune_asks: bool = True  # history --prune, and the next run, leave a table alone that a version needs
    recognise: bool = True  # the journal records its batch's logs, so that a snapshot that hides a rerun is recognised
    set_back_allowed: bool = True  # rollback is possible when the run's batch was set back
    rollback_compares: bool = True  # rollback compares files with what the journal says, not just batch numbers
    rollback_loads: bool = True  # rollback makes sure that the old state can be loaded with what is there today
    spare_committed: bool = True  # rollback refuses when a later batch is committed
    take_plan_back: bool = True  # rollback removes the planned batch
    begun_plan_stays: bool = True  # unless Spark has begun to run it
    recover_compares: bool = True  # recover compares files with what the journal says
    recover_rechecks: bool = True  # recover looks at logs, targets and temporary files again, as publishing does
    uploads_awaited: bool = True  # recover waits while Spark's maintenance writes a file of the same name
    unchecked_undone: bool = True  # recover undoes a run that was cut off before its first move
    gone_on_undone: bool = True  # recover undoes a run when a batch was committed since; it does not finish it
    finished_closed: bool = True  # recover closes a run whose moves and fence are all done, and never undoes it


class Assumptions(NamedTuple):
    """What ttlsnap cannot make sure of by itself."""

    stopped_is_true: bool = True  # nobody says --stopped while the query is alive
    batches_end: bool = True  # a batch that was begun shows a sign of life within the time that makes logs old
    uploads_end: bool = True  # so does Spark's maintenance: its upload of V ends within this time
    starts_show: bool = True  # a query that began to start before the fence shows a file before the check behind it
    seen_by_recheck: bool = False  # whatever of the three above is late ends before ttlsnap's last look at the files
    warned: bool = True  # nobody starts a query while ttlsnap warns that a snapshot hides a batch
    fence_stays: bool = True  # nobody removes a fence by hand


class Left(NamedTuple):
    """How often each actor may still act. This bounds the exploration."""

    a: int = 0  # commands on one host
    b: int = 0  # commands on another
    crashes: int = 0
    starts: int = 0
    set_backs: int = 0
    unfences: int = 0
    removals: int = 0
    uploads: int = 0
    cleanups: int = 0


class Scenario(NamedTuple):
    """Where an exploration starts, and who takes part in it."""

    kind: str = "snapshot"  # or "zip"
    uncommitted: bool = False  # batch N+1 was begun and cut off; partition 0 had written its state
    snapshotted: bool = True  # version V has a snapshot of Spark's (a zip it has anyway)
    query: str = "stopped"  # or "idle": alive, with V in memory; or "slow": it runs batch N+1
    commands: tuple[str, ...] = ("compact", "recover", "undo", "rollback", "repair", "prune")
    left: Left = Left()
    last_batch: int = N + 1  # the last batch that a query runs
    rules: Rules = Rules()
    assumes: Assumptions = Assumptions()


class Process(NamedTuple):
    """A command of ttlsnap's that runs: the step that comes next, and what it keeps in memory."""

    command: str
    step: str
    at: int = 0
    journal: Journal | None = None
    seen: frozenset[tuple[str, object]] = frozenset()


class Query(NamedTuple):
    """A query that runs: the step that comes next, its batch, and the flavours and tables it has in memory.

    ``is_rerun`` says that the batch is in the log already, so that starting it leaves no trace.
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
        """Whether it has read the logs, but shows no trace yet."""
        return self.is_rerun and self.step == "load"


class World(NamedTuple):
    """Everything at one moment.

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
        """The command that runs on a host."""
        return self.a if host == "a" else self.b

    def with_process(self, host: str, process: Process | None) -> World:
        """This world with another process on a host, or none."""
        return self._replace(a=process) if host == "a" else self._replace(b=process)

    def spend(self, budget: str) -> World:
        """This world with one less of a budget."""
        return self._replace(left=self.left._replace(**{budget: getattr(self.left, budget) - 1}))


def begin(scenario: Scenario) -> World:
    """The world in which a scenario starts."""
    kind = scenario.kind
    disk = {"sink/0": "batch 0", f"sink/{N}": f"batch {N}"}
    files: dict[str, object] = {**disk, offsets(0): "batch 0", commits(0): "batch 0"}
    files |= {offsets(N): f"batch {N}", commits(N): f"batch {N}"}
    for partition in (0, 1):
        # Partition 0 has RocksDB's tables: 1 is shared with the version before, 2 is of V alone.
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
