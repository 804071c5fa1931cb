"""The examination of one partition on one thread, with plain data in and out, as in ``compact_partition``.

The newest version is read completely: every row is decoded, every link checked, every count compared. Each file of
older versions that the newest one does not have is read once. A version can be restored if all its files exist and none
is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ttlsnap.checkpoint import layout
from ttlsnap.compaction.task import Progress
from ttlsnap.diagnosis.intact import is_intact
from ttlsnap.diagnosis.problems import Problem, Severity, problem
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import ChecksumError, CorruptionError, CountError, StorageError, TtlsnapError, UnsupportedError
from ttlsnap.operators.deduplication import can_have_two_orders
from ttlsnap.operators.key_order import KeySample, KeySampling
from ttlsnap.operators.links import Link, StateId
from ttlsnap.operators.placement import Misplaced, PlacementCheck, is_placed_by_hash
from ttlsnap.publishing.journal import FileFacts, is_same
from ttlsnap.reading.whole_scan import UnfitError, check_whole_rows, scan_version
from ttlsnap.storage.directory import Directory, cache_listings, hide_files
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import StateStore
from ttlsnap.stores.stale import DoubtfulSnapshot, has_doubtful, judge_snapshots
from ttlsnap.unsaferow.rows import Rows

_AFTER_A_RESTART = (
    ". If the query was restarted since the batch ran again, the later batches are based on the withdrawn state: set "
    "them back as well, or restore the checkpoint from a copy"
)


@dataclass(frozen=True)
class PartitionCheck:
    """A partition to examine. ``states`` are the readable states of its rows, by store and name.

    ``versions`` has, for each version from the newest on, the ids of its files by store (None without ids). ``newest``
    is the checkpoint's newest version. ``without_state`` are versions that need no files. ``published`` are snapshots
    that ttlsnap wrote: the deltas beside them have another state. ``reported`` are files that have a problem already.
    ``last_published`` are the files of the last run, if they still have to be as it wrote them. ``partitions`` is the
    number of partitions. ``hashed_over`` is the number by which Spark places keys.
    """

    root: str
    operator: int
    partition: int
    stores: tuple[str, ...]
    states: Mapping[StateId, StateDescriptor]
    links: tuple[Link, ...]
    state_store: StateStore
    versions: Mapping[int, Mapping[str, str | None]]
    newest: int
    without_state: frozenset[int]
    published: frozenset[str]
    reported: frozenset[str]
    last_published: tuple[FileFacts, ...]
    partitions: int
    hashed_over: int
    size: int
    scratch: str | None = None

    def directory(self, store: str) -> str:
        """Return the partition's folder in a store."""
        return layout.store_directory(self.operator, self.partition, store)


@dataclass
class PartitionFindings:
    """The result for a partition. ``lost`` has the reasons for each version that cannot be restored.

    ``cleaned_up`` are versions without any file, after Spark's cleanup or a copy. For ``unknown`` versions ttlsnap
    cannot tell whether they can be restored. ``entries`` is the number of entries in the newest version. ``keys`` are
    samples of the keys of states whose keys can have two orders. ``misplaced`` are keys in the wrong partition.
    ``changed`` are published files with other bytes.
    """

    problems: list[Problem] = field(default_factory=list)
    lost: dict[int, list[str]] = field(default_factory=dict)
    cleaned_up: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    entries: int = 0
    keys: dict[StateId, KeySample] = field(default_factory=dict)
    misplaced: dict[StateId, Misplaced] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)


def examine_partition(task: PartitionCheck, progress: Progress) -> PartitionFindings:
    """Examine all files of the partition's retained versions. Raise only StorageError."""
    return _Examination(task, progress).run()


class _Examination:
    def __init__(self, task: PartitionCheck, progress: Progress) -> None:
        self._task, self._progress = task, progress
        self._hidden_paths: set[str] = set()
        self._files = hide_files(cache_listings(open_directory(task.root)), self._hidden_paths)
        self._findings = PartitionFindings()
        self._newest_version = next(iter(task.versions))
        self._lineages: dict[int, dict[str, Lineage]] = {}
        self._unread_paths: set[str] = set()

    def run(self) -> PartitionFindings:
        self._find_changed()
        self._find_stale()
        self._find()
        read_paths = self._read_newest()
        self._read_others(read_paths)
        return self._findings

    def _find_changed(self) -> None:
        """Compare the bytes of the files that the last run published; a damaged one can look like a good one."""
        for facts in self._task.last_published:
            try:
                info = self._files.stat(facts.path)
                # A time that is the same proves nothing here, so the bytes decide.
                if info is None or is_same(self._files, facts, replace(info, mtime_ns=-1)):
                    continue
            except StorageError:
                raise
            except TtlsnapError:
                continue  # it is reported where the version is read
            self._findings.changed.append(facts.path)

    def _find_stale(self) -> None:
        """Report snapshots of withdrawn batches, and continue as if they did not exist (see ``stores.stale``)."""
        task = self._task
        trusted_paths = set(task.published | task.reported)
        folders = [folder for folder in map(task.directory, task.stores) if has_doubtful(self._files, folder)]
        for version in task.versions:
            for folder in folders:
                try:
                    verdict = judge_snapshots(
                        self._files, task.state_store, folder, version, trusted_paths, task.scratch
                    )
                except StorageError:
                    raise
                except TtlsnapError:
                    continue  # it is reported where the version is read
                for doubtful in verdict.stale:
                    self._tell_stale(version, doubtful)
                for doubtful in verdict.unknown:
                    message = f"{task.root}/{doubtful}, and the older files do not exist any more"
                    self._findings.problems.append(problem(task.root, "maybe-stale-snapshot", doubtful.path, message))
                self._hidden_paths.update(doubtful.path for doubtful in verdict.stale)
                trusted_paths.update(doubtful.path for doubtful in (*verdict.right, *verdict.unknown))

    def _tell_stale(self, version: int, doubtful: DoubtfulSnapshot) -> None:
        task = self._task
        severity: Severity = "error" if version == task.newest else "warning"
        message = f"{task.root}/{doubtful.explain()}"
        addition = _AFTER_A_RESTART if task.newest > doubtful.version else ""
        self._findings.problems.append(
            problem(task.root, "stale-snapshot", doubtful.path, message, severity, more=addition)
        )

    def _find(self) -> None:
        """Find the files of every version; a version that lacks one is lost, or was cleaned up."""
        errors_of_versions: dict[int, list[tuple[str, TtlsnapError]]] = {}
        for version in self._task.versions:
            self._lineages[version] = {}
            for store in self._task.stores:
                try:
                    self._lineages[version][store] = self._find_lineage(self._files, version, store)
                except (CorruptionError, UnsupportedError) as error:
                    errors_of_versions.setdefault(version, []).append((store, error))
        for version, errors in errors_of_versions.items():
            snapshots = [(self._newest_snapshot(self._files, version, store), error) for store, error in errors]
            if self._skip_snapshots(version, snapshots):
                return
        lowest_version = min(
            (version for version in self._task.versions if version not in errors_of_versions), default=0
        )
        reported_files: set[str] = set()
        for version, errors in errors_of_versions.items():
            lacking_stores = [store for store, _ in errors]
            if version in self._task.without_state or (
                version < lowest_version and not self._is_there(version, lacking_stores)
            ):
                self._findings.cleaned_up.add(version)
                continue
            for store, reason in errors:
                # Many versions can lack one file: it is reported once, with the newest of them.
                if (missing_file := str(reason).partition(" is missing")[0]) not in reported_files:
                    code = "damaged-file" if isinstance(reason, ChecksumError) else "missing-delta"
                    self._tell(version, self._task.directory(store), reason, code)
                reported_files.add(missing_file)
                self._lose(version, reason)

    def _find_lineage(self, files: Directory, version: int, store: str) -> Lineage:
        find, folder = self._task.state_store.find, self._task.directory(store)
        while True:
            try:
                return find(files, folder, version, self._task.versions[version].get(store))
            except ChecksumError as error:
                if not self._skip_checksum(version, error):
                    raise

    def _newest_snapshot(self, files: Directory, version: int, store: str) -> str | None:
        """Return the snapshot from which Spark would load a version, or None."""
        folder = self._task.directory(store)
        parsed_names = {info.name: layout.parse_state_file(info.name) for info in files.list(folder)}
        unique_id = self._task.versions[version].get(store)
        snapshots = {
            name.version: f"{folder}/{file_name}"
            for file_name, name in parsed_names.items()
            if name is not None and name.kind in layout.SNAPSHOTS and name.version <= version
            if name.unique_id is None or (name.version, name.unique_id) == (version, unique_id)
        }
        return snapshots[max(snapshots)] if snapshots else None

    def _skip_checksum(self, version: int, error: TtlsnapError) -> bool:
        """Report a checksum file that is stale, and continue as if it did not exist. Return False for any other error.

        It is stale if other checksums prove that its file is intact.
        """
        if not isinstance(error, ChecksumError) or error.checksum in self._hidden_paths:
            return False
        files = hide_files(self._files, {error.checksum})
        if not is_intact(files, error.path, self._task.state_store.codec, self._task.scratch):
            return False
        root = self._task.root
        message = f"{root}/{error.path} is intact, but its checksum file {root}/{error.checksum} does not match it"
        self._tell(version, error.checksum, CorruptionError(message), "stale-checksum")
        self._hidden_paths.add(error.checksum)
        return True

    def _skip_snapshots(self, version: int, damaged_files: Sequence[tuple[str | None, TtlsnapError]]) -> bool:
        """Report damaged snapshots, and continue as if they did not exist. Return False if Spark could not do so, too.

        ``damaged_files`` has all damaged files of a version, and None for one that is not a snapshot. The state must be
        complete without them, and must not be one that ttlsnap has replaced.
        """
        damaged_snapshots = _snapshots_only(damaged_files)
        skipped = self._find_skippable(version, damaged_snapshots) if damaged_snapshots else {}
        for path, error in skipped.items():
            self._tell(version, path, error, "damaged-snapshot")
        if skipped:
            self._hidden_paths.update(skipped)
            self._find()
        return bool(skipped)

    def _find_skippable(
        self, version: int, damaged_snapshots: dict[str, CorruptionError]
    ) -> dict[str, CorruptionError]:
        """Return all damaged snapshots without which a version is complete, beginning with ``damaged_snapshots``.

        Return none if the version is not complete without them. Older snapshots and deltas are read completely.
        """
        task, skipped = self._task, dict(damaged_snapshots)
        while not skipped.keys() & task.published:
            files = hide_files(self._files, skipped.keys())
            lineages: dict[str, Lineage] = {}
            try:
                for store in task.stores:
                    lineages[store] = self._find_lineage(files, version, store)
                scan_version(files, lineages, task.state_store, task.states, task.links, task.scratch)
                return skipped
            except StorageError:
                raise
            except TtlsnapError as error:
                if self._skip_checksum(version, error):
                    continue
                more_snapshots = _snapshots_only(self._find_damaged_or_missing(files, version, lineages, error))
                if not more_snapshots:
                    break
                skipped |= more_snapshots
        return {}

    def _find_damaged_or_missing(
        self, files: Directory, version: int, lineages: Mapping[str, Lineage], error: TtlsnapError
    ) -> list[tuple[str | None, TtlsnapError]]:
        """Return the damaged files of a version, as ``_skip_snapshots`` takes them."""
        if len(lineages) < len(self._task.stores):
            store = self._task.stores[len(lineages)]
            return [(self._newest_snapshot(files, version, store), error)]
        wanted_paths = {file.path for lineage in lineages.values() for file in lineage.files}
        return _mark_snapshots(lineages, list(self._find_damaged(files, lineages, wanted_paths)))

    def _is_there(self, version: int, stores: Sequence[str]) -> bool:
        """Return whether one of these stores has a file of exactly this version.

        In a copy made by ``--output``, a store that was not changed has all old files, and another one has none.
        """
        folders = [self._task.directory(store) for store in stores]
        parsed_names = (layout.parse_state_file(info.name) for folder in folders for info in self._files.list(folder))
        return any(name is not None and name.version == version for name in parsed_names)

    def _read_newest(self) -> set[str]:
        """Read the newest version. Return its files; none if one of them is missing."""
        task = self._task
        while True:
            lineages = self._lineages[self._newest_version]
            if len(lineages) < len(task.stores):
                return set()
            read_paths = {file.path for lineage in lineages.values() for file in lineage.files}
            samplings = {
                place: KeySampling(state.key_schema, task.partitions)
                for place, state in task.states.items()
                if can_have_two_orders(state)
            }
            placement_checks = {
                place: PlacementCheck(state, task.partition, task.hashed_over)
                for place, state in task.states.items()
                # A partition from before a repartition has only older versions, which Spark placed by another number.
                if self._newest_version == task.newest and is_placed_by_hash(state)
            }

            def look(place: StateId, keys: Rows) -> None:
                for check in (samplings.get(place), placement_checks.get(place)):  # noqa: B023 - called before the next round
                    if check is not None:
                        check.look(keys)

            try:
                self._findings.entries = scan_version(
                    self._files,
                    lineages,
                    task.state_store,
                    task.states,
                    task.links,
                    task.scratch,
                    self._progress,
                    look,
                )
                self._findings.keys = {place: sampling.result() for place, sampling in samplings.items()}
                results = {place: check.result() for place, check in placement_checks.items()}
                self._findings.misplaced = {place: misplaced for place, misplaced in results.items() if misplaced}
                return read_paths
            except StorageError:
                raise
            except TtlsnapError as error:
                if self._skip_checksum(self._newest_version, error) or self._blame(lineages, error, read_paths):
                    continue
                return read_paths - self._unread_paths

    def _blame(self, lineages: Mapping[str, Lineage], error: TtlsnapError, read_paths: set[str]) -> bool:
        """Report the problem of the newest version: a damaged file, or several files that do not match.

        Return whether the version has other files now, because damaged ones are skipped.
        """
        code = _code_of(error)
        if code in ("damaged-file", "row-does-not-fit-schema"):
            skipped = self._report_damaged(self._newest_version, lineages, read_paths)
            if skipped is not None:
                return skipped
        where = self._task.directory(self._task.stores[0])
        self._tell(self._newest_version, where, error, code)
        if code not in ("broken-links", "wrong-count"):
            self._lose(self._newest_version, error)
        return False

    def _read_others(self, read_paths: set[str]) -> None:
        for version in self._task.versions:
            skipped: bool | None = True
            while skipped:
                lineages = self._lineages[version]
                wanted_paths = {file.path for lineage in lineages.values() for file in lineage.files} - read_paths
                self._unread_paths.clear()
                skipped = self._report_damaged(version, lineages, wanted_paths)
            read_paths |= wanted_paths - self._unread_paths

    def _report_damaged(self, version: int, lineages: Mapping[str, Lineage], wanted_paths: set[str]) -> bool | None:
        """Read the files at ``wanted_paths``, and report damaged ones. Return None if there are none.

        Return True if the version has other files now, because damaged ones are skipped.
        """
        damaged_files = list(self._find_damaged(self._files, lineages, wanted_paths))
        if not damaged_files:
            return None
        if any(self._skip_checksum(version, error) for _, error in damaged_files):
            return True
        if self._skip_snapshots(version, _mark_snapshots(lineages, damaged_files)):
            return True
        for path, error in damaged_files:
            needing_versions = [version for version in self._lineages if self._needs(version, path)]
            self._tell(max(needing_versions), path, error, _code_of(error))
            for needing_version in needing_versions:
                self._lose(needing_version, error)
        return False

    def _find_damaged(
        self, files: Directory, lineages: Mapping[str, Lineage], wanted_paths: set[str]
    ) -> Iterator[tuple[str, TtlsnapError]]:
        for store, lineage in lineages.items():
            states = {
                name: state for (store_of_state, name), state in self._task.states.items() if store_of_state == store
            }

            def look(name: str, keys: Rows, values: Rows, states: Mapping[str, StateDescriptor] = states) -> None:
                if name in states:
                    check_whole_rows(states[name], keys, values)

            for path, error in self._task.state_store.find_damaged(
                files, lineage, wanted_paths, look, self._task.scratch
            ):
                if lineage.snapshot is not None and path == lineage.snapshot.path:
                    # The tables that it shares with another snapshot are read with that snapshot.
                    self._unread_paths |= {file.path for file in lineage.shared} & wanted_paths
                yield path, error

    def _needs(self, version: int, path: str) -> bool:
        return any(file.path == path for lineage in self._lineages[version].values() for file in lineage.files)

    def _lose(self, version: int, error: TtlsnapError) -> None:
        """Note that a version cannot be restored, or that ttlsnap cannot tell: Spark may read what it does not."""
        if isinstance(error, UnsupportedError):
            self._findings.unknown.add(version)
        else:
            self._findings.lost.setdefault(version, []).append(str(error))

    def _tell(self, version: int, where: str, error: TtlsnapError, code: str) -> None:
        severity: Severity = "error" if version == self._task.newest else "warning"
        if isinstance(error, UnsupportedError):
            code, severity = "unsupported", "unknown"
        # A wrong schema fits none of the rows, so one report is enough.
        if code == "row-does-not-fit-schema" and any(
            reported_problem.code == code for reported_problem in self._findings.problems
        ):
            return
        message = error.message
        if self._task.root not in message:
            message = f"{self._task.root}/{where}, version {version}: " + message
        self._findings.problems.append(problem(self._task.root, code, where, message, severity))


def _mark_snapshots(
    lineages: Mapping[str, Lineage], damaged_files: Sequence[tuple[str, TtlsnapError]]
) -> list[tuple[str | None, TtlsnapError]]:
    """Return damaged files as ``_skip_snapshots`` takes them: None for one that is not a snapshot of its lineage."""
    snapshots = {lineage.snapshot.path for lineage in lineages.values() if lineage.snapshot is not None}
    return [(path if path in snapshots else None, error) for path, error in damaged_files]


def _snapshots_only(damaged_files: Sequence[tuple[str | None, TtlsnapError]]) -> dict[str, CorruptionError]:
    """Return damaged snapshots by their paths; none if another file is damaged, too, or of an unknown format."""
    damaged_snapshots = {
        path: error for path, error in damaged_files if path is not None and isinstance(error, CorruptionError)
    }
    return damaged_snapshots if len(damaged_snapshots) == len(damaged_files) else {}


def _code_of(error: TtlsnapError) -> str:
    if isinstance(error, UnfitError):
        return error.code
    return "wrong-count" if isinstance(error, CountError) else "damaged-file"
