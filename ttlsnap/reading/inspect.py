"""``inspect``: describe the state of a checkpoint without a JVM, and without opening state files (RocksDB: zips).

Only ``entries``, ``times``, ``age`` and ``sizes`` scan the state. A checkpoint without schemas (Spark before 3.1) has
its stores and sizes shown, and raw bytes as entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.logs import FUTURE_ADVICE, find_future_watermark
from ttlsnap.checkpoint.own_paths import find_moved_schemas
from ttlsnap.checkpoint.starting import describe_obstacles
from ttlsnap.clock import Moment, TimeCharacteristic, clock_at
from ttlsnap.engines.options import ReadOptions
from ttlsnap.errors import CorruptionError, TtlsnapError, UnsupportedError, UsageError
from ttlsnap.keywords import takes
from ttlsnap.operators.registry import AnyOf, Selection, no_match, require_matches, states_of, unused_states_of
from ttlsnap.publishing.hidden_batches import HiddenBatch, find_hidden_batches
from ttlsnap.publishing.liveness import find_planning_run
from ttlsnap.publishing.missing import MissingFiles, find_missing_files
from ttlsnap.publishing.runs import Runs
from ttlsnap.publishing.stale_snapshots import warn_of_doubtful_snapshots
from ttlsnap.reading.inspected import SAMPLE, Inspection, StateInspection
from ttlsnap.reading.opening import open_to_read, refuse_unreadable
from ttlsnap.storage.uris import is_local
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.open import lineage_of, open_state_store

if TYPE_CHECKING:
    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

CHEAP = 16 << 20
"""The bytes of files up to which ``times`` alone reads a state."""


@dataclass(frozen=True, kw_only=True)
class InspectRequest(ReadOptions):
    """The arguments of ``inspect``."""

    target: str = field(kw_only=False)
    batch: int | None = None
    entries: int = 0
    times: bool = True
    age: bool = False
    sizes: bool = False
    timestamp: str | Sequence[str] | None = None
    time: TimeCharacteristic | None = None
    rule: StateSnapshotTransformerFactory | None = None
    sample: int | None = SAMPLE
    now: Moment = "checkpoint"


@takes(InspectRequest)
def inspect(request: InspectRequest) -> Inspection:
    """Describe the checkpoint ``target`` as of its last committed batch, or as of the retained ``batch``.

    ``entries`` is the number of decoded entries to show of each state. ``times`` counts the entries, and looks for the
    fields that can hold their time, unless ``timestamp`` names one. Without ``age`` and ``sizes``, it does so only if
    the files are local and have at most ``CHEAP`` bytes. ``age`` counts all entries and sorts them by
    age, according to ``timestamp`` or to the time that Spark stores. Names such as ``left:value.at`` are for one side
    of a join. ``time`` is the clock of that time.

    ``sizes`` measures the entries (``Inspection.sizes``), and what ``rule`` would drop, for example a
    ``TtlTransformerFactory``. ``sample`` is the limit in bytes of files beyond which only some partitions are read;
    None for no limit. ``age`` reads all partitions. Raise UsageError if ``selection`` matches nothing, or another
    ``TtlsnapError``.
    """
    if not (request.age or request.sizes):
        given_options = {"--timestamp": request.timestamp, "--time": request.time}
        for option in (name for name, value in given_options.items() if value is not None):
            raise UsageError(f"{option} needs --age or --sizes")
    if request.rule is not None and not request.sizes:
        raise UsageError(
            "a rule, as --ttl gives it, needs --sizes. To see which entries it drops: ttlsnap compact with --dry-run"
        )
    with_state = bool(request.entries or request.age or request.sizes)
    checkpoint = open_to_read(request.target, request.batch, request.schemas, with_state=with_state)
    selection = request.selection or Selection()
    require_matches(checkpoint, selection)
    inspection = _describe(checkpoint, selection)
    if selection != Selection() and not list(inspection.states()):
        raise no_match(checkpoint, selection)
    try:
        _look_at_entries(inspection, request, selection)
    except CorruptionError as error:
        if not request.schemas:
            raise
        raise UsageError(error.text + "\nThe entries were read with the given --schema, which may be wrong") from error
    return inspection


def _describe(checkpoint: Checkpoint, selection: Selection | AnyOf) -> Inspection:
    """Return the facts that need no look at entries."""
    files, logs = checkpoint.files, checkpoint.logs
    runs = Runs.read(files)
    unsettled: list[HiddenBatch | MissingFiles] = [*find_hidden_batches(runs, logs), *find_missing_files(runs, logs)]
    run_warnings = [f"{warning.describe(files.root)}. {warning.advise(files.root)}" for warning in unsettled]
    if (future := find_future_watermark(checkpoint.batch)) is not None:
        future_path, future_text = future
        run_warnings.append(f"{files.root}/{future_path}: {future_text}. {FUTURE_ADVICE}")
    operators = [operator.id for operator in checkpoint.operators]
    if (moved := find_moved_schemas(files, operators, checkpoint.batch.id)) is not None:
        run_warnings.append(moved.words)
    inspection = Inspection(
        checkpoint,
        [],
        find_planning_run(runs, logs),
        (*run_warnings, *warn_of_doubtful_snapshots(checkpoint, runs)),
        tuple(describe_obstacles(files, logs)),
    )
    for operator in checkpoint.operators:
        if not selection.includes_operator(operator.id):
            continue
        stores = [
            (store, _states(checkpoint, operator, store, selection))
            for store in operator.stores
            if selection.includes_store(operator.id, store.name)
        ]
        inspection.operators.append((operator, [(store, states) for store, states in stores if states]))
    return inspection


def _look_at_entries(inspection: Inspection, request: InspectRequest, selection: Selection | AnyOf) -> None:
    """Add the measures and the entries that the request asks for.

    The modules that decode entries take half a second to load; without entries they are not needed.
    """
    times = request.times and not request.timestamp
    is_cheap = times and not (request.age or request.sizes) and _is_cheap(inspection)
    if request.age or request.sizes or is_cheap:
        from ttlsnap.reading.measuring import Measurement, measure
        from ttlsnap.transform.adapters import as_factory

        names = (request.timestamp,) if isinstance(request.timestamp, str) else tuple(request.timestamp or ())
        sample = None if request.age else request.sample
        rule = None if request.rule is None else as_factory(request.rule)
        measurement = Measurement(request.sizes, request.age, names, request.time, rule, sample, times=times)
        clock = clock_at(request.now, inspection.checkpoint.batch).unchecked()
        try:
            if is_cheap:
                refuse_unreadable(inspection.checkpoint)
            inspection.sizes = measure(inspection, measurement, clock, request.parallelism, request.listener)
        except TtlsnapError as error:
            if not is_cheap:
                raise
            inspection.warnings += ("The entries were not read: " + error.text,)
    if request.entries:
        from ttlsnap.reading.sample import take_samples

        inspection.samples = take_samples(inspection, request.entries, selection)


def _is_cheap(inspection: Inspection) -> bool:
    states = inspection.states()
    is_small = sum(state.bytes or 0 for state in states) <= CHEAP
    return is_small and is_local(inspection.checkpoint.files.root) and not any(state.problem for state in states)


def _states(
    checkpoint: Checkpoint, operator: Operator, store: Store, selection: Selection | AnyOf
) -> list[StateInspection]:
    lineages, problem = _lineages(checkpoint, store)
    unused_states = unused_states_of(checkpoint, operator, store, lineages)
    all_states = [*states_of(checkpoint, operator, store), *unused_states]
    selected_states = [state for state in all_states if selection.includes(state)]
    if all_states and not selected_states:
        return []
    size = sum(lineage.size for lineage in lineages) if problem is None else None
    counts = [lineage.entries for lineage in lineages]
    is_counted = bool(counts) and None not in counts and len(store.families) == 1 and not unused_states
    entries = sum(filter(None, counts)) if is_counted else None
    if not selected_states:
        return [StateInspection(None, "default", size, entries, problem=problem)]
    # States of one store share its files: the first state gets their size.
    return [
        StateInspection(state, state.state, size if number == 0 else None, entries, problem=problem)
        for number, state in enumerate(selected_states)
    ]


def _lineages(checkpoint: Checkpoint, store: Store) -> tuple[list[Lineage], str | None]:
    """Return the files of all partitions; or none, and the reason."""
    try:
        state_store = open_state_store(checkpoint)
        return [lineage_of(checkpoint, state_store, store, partition) for partition in store.partitions], None
    except (CorruptionError, UnsupportedError) as error:
        return [], error.text
