"""A checkpoint, read without a JVM: its batches, operators, stores and schemas.

``open_checkpoint`` reads the logs, the operator metadata and the state schemas, and lists folders. It opens no state
file, so it is fast on a checkpoint of any size. It never writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import read_checked
from ttlsnap.checkpoint.logs import (
    PROVIDER,
    Logs,
    MicroBatch,
    fenced,
    read_batch,
    read_conf,
    read_logs,
    shuffle_partitions,
)
from ttlsnap.checkpoint.metadata import OperatorMetadata, StateVariable, StoreMetadata, read_operator_metadata
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.checkpoint.starting import describe_missing_commits
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema, read_state_schema
from ttlsnap.errors import CorruptionError, NotACheckpointError, UnsupportedError, UsageError
from ttlsnap.keywords import public
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.schema.types import NullType, StructType, physical
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import open_for_reading

HDFS_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDERS = {
    HDFS_PROVIDER: "hdfs",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider": "rocksdb",
}
CODEC = "spark.sql.streaming.stateStore.compression.codec"
ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
# Spark 4.3 and later pin it. If it is true, Spark records every column of the state as nullable.
ALWAYS_NULLABLE = "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled"
ROW_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum.enabled"
GLOBAL_LIMIT = "globalLimit"
# The aggregation of real-time mode (Spark 4.3 and later), whose state is an ordinary one.
REAL_TIME_AGGREGATION = "StatefulStreamlineAggregate"
_MAX_METADATA_BYTES = 1 << 20


@dataclass(frozen=True)
class Store:
    """One store of an operator over all its partitions.

    ``families`` is empty if the checkpoint has no state schema (Spark before 3.1). ``schema_file`` is its path, and
    ``older_schema_files`` are those of earlier queries. ``unused`` are the families that only these describe: Spark
    keeps their entries, and compares them with a family of the same name. ``returned`` are the names of families that
    were removed and came back: Spark may have kept some entries that no longer fit.
    """

    operator: int
    name: str
    partitions: tuple[int, ...]
    families: tuple[ColumnFamilySchema, ...] = ()
    num_cols_prefix_key: int = 0
    schema_file: str = ""
    older_schema_files: tuple[str, ...] = ()
    unused: tuple[ColumnFamilySchema, ...] = ()
    returned: frozenset[str] = frozenset()

    def directory(self, partition: int) -> str:
        """Return the folder of a partition, relative to the checkpoint."""
        return layout.store_directory(self.operator, partition, self.name)


@dataclass(frozen=True)
class Operator:
    """A stateful operator; ``name`` is None if it is not recorded (Spark before 4.0).

    Only transformWithState has ``variables``, ``time_mode`` and ``output_mode``.
    """

    id: int
    name: str | None
    stores: tuple[Store, ...]
    variables: tuple[StateVariable, ...] = ()
    time_mode: str | None = None
    output_mode: str | None = None

    @property
    def is_global_limit(self) -> bool:
        """Whether this is a global limit: its state is one count, whose key is a void (before 4.0, only that shows)."""
        keys = [family.key for store in self.stores for family in store.families]
        return self.name == GLOBAL_LIMIT or (self.name is None and any(map(is_void_key, keys)))


def is_void_key(key: StructType) -> bool:
    """Return whether a key consists of voids, as that of a global limit does."""
    return bool(key.fields) and all(isinstance(physical(field.type), NullType) for field in key.fields)


@dataclass(frozen=True)
class Checkpoint:
    """The records of a checkpoint as of ``batch``: its last committed batch, unless another one was requested.

    ``proven_layout`` is ``hdfs`` or ``rocksdb`` if the provider is not one of Spark's own, and the files prove to have
    this layout.
    """

    files: Directory
    query_id: str | None
    logs: Logs
    batch: MicroBatch
    operators: tuple[Operator, ...]
    proven_layout: str | None = None

    @property
    def target(self) -> str:
        """The checkpoint's absolute path."""
        return self.files.root

    @property
    def version(self) -> int:
        """The version of the state after ``batch``."""
        return self.batch.id + 1

    @property
    def provider(self) -> str:
        """The layout of the state files: ``hdfs``, ``rocksdb``, or the class name of a provider without a proof."""
        recorded = self.recorded_provider
        return recorded if recorded in PROVIDERS.values() else self.proven_layout or recorded

    @property
    def recorded_provider(self) -> str:
        """``hdfs``, ``rocksdb``, or the class name of a provider that is not one of Spark's own."""
        name = self.batch.conf.get(PROVIDER, HDFS_PROVIDER)
        # Spark pins the class, and ignores another one of the session (OffsetSeqMetadata).
        return PROVIDERS.get(name, name)

    @property
    def codec(self) -> str:
        """The compression codec of the state; lz4 if the checkpoint predates the setting."""
        return self.batch.conf.get(CODEC, "lz4")

    @property
    def encoding(self) -> str:
        """The encoding of transformWithState's rows: ``unsaferow`` or ``avro``."""
        return self.batch.conf.get(ENCODING, "unsaferow")

    def unique_id(self, store: Store, partition: int) -> str | None:
        """Return the id in the name of a partition's state file (checkpoint format 2), or None if files have no ids.

        Raises CorruptionError if the commit log has more ids for the partition than stores, or fewer.
        """
        partitions = self.batch.unique_ids.get(store.operator)
        if partitions is None:
            return None
        stores = next(operator.stores for operator in self.operators if operator.id == store.operator)
        position = [operator_store.name for operator_store in stores].index(store.name)
        state_ids = partitions[partition] if partition < len(partitions) else ()
        if len(state_ids) != len(stores):  # Spark compares the number, too, before the next batch is committed
            where = f"{self.target}/{layout.commit_file(self.batch.id)}"
            raise CorruptionError(
                f"{where}: operator {store.operator} has {quantity(len(stores), 'store')}, and partition {partition} "
                f"has {quantity(len(state_ids), 'state id')}"
            )
        return partitions[partition][position]

    @property
    def row_checksums(self) -> bool:
        """True if every state row carries a checksum (Spark 4.2 on).

        Raises UnsupportedError if the setting is neither true nor false.
        """
        setting = self.batch.conf.get(ROW_CHECKSUM, "false")
        if setting.lower() not in ("true", "false"):
            where = f"{self.target}/{layout.offset_file(self.batch.id)}"
            raise UnsupportedError(f"{where}: {ROW_CHECKSUM} is {setting!r}; it must be true or false")
        return setting.lower() == "true"


Schemas = Mapping[tuple[int, str], tuple[StructType, StructType]]
"""Schemas that a user gives for a checkpoint without any: (operator, store) to (key, value)."""


@public
def open_checkpoint(
    files: Directory | str, batch: int | None = None, schemas: Schemas | None = None, *, tolerate_damage: bool = False
) -> Checkpoint:
    """Read the checkpoint in ``files`` as of its last committed batch, or as of the retained ``batch``.

    ``files`` is a path, a URI, or an open directory.

    ``tolerate_damage`` is for code that examines damage: partitions beyond the expected number are ignored, and the
    query's id is not read.

    Raises NotACheckpointError, CorruptionError or UnsupportedError, and FencedError if an interrupted run has moved the
    logs. Raises UsageError if ``batch`` is not retained, or if ``schemas`` names a store that does not exist or has a
    recorded schema.
    """
    if isinstance(files, str):
        files = open_for_reading(files)
    require_checkpoint(files)
    logs = read_logs(files)
    if logs.fence is not None and not set(logs.commits[-1:]) & set(logs.offsets):
        raise fenced(files, logs.fence)
    if not logs.commits:
        raise NotACheckpointError(describe_missing_commits(files, logs.offsets))
    wanted_batch = logs.commits[-1] if batch is None else batch
    if wanted_batch not in logs.commits:
        raise UsageError(
            f"batch {wanted_batch} is not retained in {files.root}; there are {logs.commits[0]} to {logs.commits[-1]}"
        )
    micro_batch = read_batch(files, wanted_batch)
    operators = tuple(
        _operator(files, operator, micro_batch, logs, tolerate_damage)
        for info in files.list(layout.STATE)
        if info.is_dir and (operator := layout.parse_number(info.name)) is not None
    )
    operators = tuple(sorted(operators, key=lambda operator: operator.id))
    if not operators:
        raise NotACheckpointError(f"{files.root}/{layout.STATE} has no operator folder; the query has no state")
    return Checkpoint(
        files, None if tolerate_damage else query_id(files), logs, micro_batch, _with_schemas(operators, schemas or {})
    )


def query_id(files: Directory) -> str | None:
    """Return the id of the query that the checkpoint belongs to, or None if it is not recorded.

    Raises CorruptionError if the file is damaged.
    """
    info = files.stat(layout.METADATA)
    if info is None:
        return None
    if info.is_dir:
        raise CorruptionError(f"{files.root}/metadata is a folder, not a file")
    try:
        document = parse_json(read_checked(files, layout.METADATA, _MAX_METADATA_BYTES))
        text: str = require_type(document["id"], str)
        if str(UUID(text)) != text.lower():
            raise ValueError(f"id is {text[:40]!r}")
        return text
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"{files.root}/metadata: not the query metadata Spark writes ({error!r})") from error


def _operator(files: Directory, operator: int, batch: MicroBatch, logs: Logs, tolerate_damage: bool) -> Operator:
    directory = layout.operator_directory(operator)
    partitions = partition_folders(files, operator)
    if not partitions:
        raise CorruptionError(f"{files.root}/{directory} has no partition folder")
    metadata = read_operator_metadata(files, operator, batch.id)
    expected_count = _partition_count(metadata, batch)
    if expected_count is not None and len(partitions) > expected_count > 0 and partitions[0] == 0:
        expected_partitions = tuple(partition for partition in partitions if partition < expected_count)
        if tolerate_damage or all(
            _is_left_over(files, operator, partition, expected_count, batch, logs)
            for partition in partitions[len(expected_partitions) :]
        ):
            partitions = expected_partitions
    if metadata is None:
        listed_stores = _list_stores(files, operator, batch)
        return Operator(
            operator, None, tuple(_store(files, operator, store, partitions, None, batch) for store in listed_stores)
        )
    avro = batch.conf.get(ENCODING) == "avro"
    stores = tuple(_store(files, operator, store, partitions, metadata, batch, avro) for store in metadata.stores)
    return Operator(operator, metadata.name, stores, metadata.variables, metadata.time_mode, metadata.output_mode)


def partition_folders(files: Directory, operator: int) -> tuple[int, ...]:
    """Return the partitions of an operator that have a folder."""
    numbers = (
        layout.parse_number(info.name) for info in files.list(layout.operator_directory(operator)) if info.is_dir
    )
    return tuple(sorted(number for number in numbers if number is not None))


def _partition_count(metadata: OperatorMetadata | None, batch: MicroBatch) -> int | None:
    """Return the expected number of partitions, or None if it is not recorded.

    Spark does not rewrite operator metadata v1 when it repartitions.
    """
    if metadata is None or metadata.version == 1:
        pinned_count = shuffle_partitions(batch.conf)
        return (
            pinned_count
            if pinned_count or metadata is None
            else metadata.stores[0].num_partitions
            if metadata.stores
            else None
        )
    return metadata.stores[0].num_partitions if metadata.stores else None


def _is_left_over(files: Directory, operator: int, partition: int, count: int, batch: MicroBatch, logs: Logs) -> bool:
    """Return whether a partition is left from before a repartition to fewer partitions, which does not remove it."""
    first_batch = batch.id
    for earlier_batch in reversed([number for number in logs.offsets if number < batch.id]):
        if shuffle_partitions(read_conf(files, earlier_batch)) != count:
            break
        first_batch = earlier_batch
    return all(name.version <= first_batch for _, name in state_files(files, operator, partition))


def state_files(files: Directory, operator: int, partition: int) -> list[tuple[str, layout.StateFileName]]:
    """Return the paths of a partition's state files, for every store and version, with the parts of their names."""
    folder = layout.store_directory(operator, partition, layout.DEFAULT_STORE)
    infos_in_folder = files.list(folder)
    paths_with_infos = [(f"{folder}/{info.name}", info) for info in infos_in_folder]
    for store_folder in infos_in_folder:
        # A join of format 1 or 2 has its four stores in folders of a partition's folder.
        if store_folder.is_dir and store_folder.name not in layout.SHARED:
            paths_with_infos += [
                (f"{folder}/{store_folder.name}/{info.name}", info)
                for info in files.list(f"{folder}/{store_folder.name}")
            ]
    return [
        (path, name)
        for path, info in paths_with_infos
        if not info.is_dir and (name := layout.parse_state_file(info.name)) is not None
    ]


def _list_stores(files: Directory, operator: int, batch: MicroBatch) -> list[StoreMetadata]:
    """Return the stores of a checkpoint without operator metadata, from the folders of partition 0."""
    default_folder = layout.store_directory(operator, 0, layout.DEFAULT_STORE)
    folders = [info.name for info in files.list(default_folder) if info.is_dir]
    # A folder without state files is not a store. It may be a user's copy, or have RocksDB's own files.
    store_names = [name for name in folders if _holds_state(files, f"{default_folder}/{name}")]
    if _holds_state(files, default_folder) or not store_names:
        store_names.append(layout.DEFAULT_STORE)
    partition_count = shuffle_partitions(batch.conf) or 0
    return [StoreMetadata(name, 0, partition_count) for name in sorted(store_names)]


def _holds_state(files: Directory, folder: str) -> bool:
    return any(layout.parse_state_file(info.name) and not info.is_dir for info in files.list(folder))


def _store(
    files: Directory,
    operator: int,
    store: StoreMetadata,
    partitions: tuple[int, ...],
    metadata: OperatorMetadata | None,
    batch: MicroBatch,
    avro: bool = False,
) -> Store:
    # Schemas v1 and v2 are only in partition 0. A later one is named by the operator's metadata.
    store_folder = layout.store_directory(operator, 0, store.name)
    *older_schema_files, newest_schema_file = store.schema_files or (f"{store_folder}/_metadata/schema",)
    families = read_state_schema(files, newest_schema_file) or ()
    older_families: dict[str, list[ColumnFamilySchema]] = {}
    returned: set[str] = set()
    for path in older_schema_files:
        families_in_file = {family.name: family for family in read_state_schema(files, path) or ()}
        returned |= older_families.keys() - families_in_file.keys()
        for name, family in families_in_file.items():
            older_families.setdefault(name, []).append(family)
    returned &= {family.name for family in families}
    # Only an Avro row names the schema that it was written with, so only these need the older ones.
    if avro:
        families = tuple(replace(family, older=tuple(older_families.get(family.name, ()))) for family in families)
    for family in families:
        older_families.pop(family.name, None)
    unused = tuple(replace(versions[-1], older=tuple(versions[:-1])) for versions in older_families.values())
    # A larger number would split a key at a column that it does not have.
    most_columns = max((len(family.key) for family in families), default=store.num_cols_prefix_key)
    if store.num_cols_prefix_key > most_columns:
        where = f"{files.root}/{layout.operator_directory(operator)}/_metadata/metadata"
        message = (
            f"numColsPrefixKey of store {store.name} is {store.num_cols_prefix_key}, and a key has {most_columns} "
            "columns"
        )
        raise CorruptionError(f"{where}: {message}")
    _check_partitions(files, operator, store, partitions, families, metadata, batch)
    return Store(
        operator,
        store.name,
        partitions,
        families,
        store.num_cols_prefix_key,
        newest_schema_file,
        tuple(older_schema_files),
        unused,
        frozenset(returned),
    )


def _check_partitions(
    files: Directory,
    operator: int,
    store: StoreMetadata,
    partitions: tuple[int, ...],
    families: tuple[ColumnFamilySchema, ...],
    metadata: OperatorMetadata | None,
    batch: MicroBatch,
) -> None:
    """Raise CorruptionError unless exactly the expected partitions exist: the rewritten state must be complete."""
    pinned_count = metadata.version == 1 and shuffle_partitions(batch.conf) if metadata else None
    # Metadata v1 is from the first run, and Spark's offline repartition (4.2) does not change it. The pinned number
    # counts.
    expected_count = pinned_count or store.num_partitions or len(partitions)
    # Without grouping columns, and under a global limit, Spark runs the operator in one partition.
    # The key of a global limit is one void field.
    has_one_partition = any(not family.key.fields or is_void_key(family.key) for family in families)
    if has_one_partition and partitions == (0,):
        return
    first_gap = next((number for number, partition in enumerate(partitions) if number != partition), len(partitions))
    if not first_gap == len(partitions) == expected_count:
        wrong_partition = first_gap if first_gap < expected_count else partitions[expected_count]
        raise CorruptionError(
            f"{files.root}/{layout.operator_directory(operator)}: {quantity(expected_count, 'partition')} expected, "
            f"{len(partitions)} found; partition {wrong_partition} is the first wrong one. If a repartition was "
            "interrupted, ttlsnap doctor shows it"
        )


def _with_schemas(operators: tuple[Operator, ...], schemas: Schemas) -> tuple[Operator, ...]:
    """Return the operators with the schemas that a user gave; a recorded schema is never replaced.

    Raises UsageError for a store that does not exist or has a recorded schema.
    """
    unused_schemas = dict(schemas)
    operators_with_schemas = []
    for operator in operators:
        stores = []
        for store in operator.stores:
            given_schema = unused_schemas.pop((store.operator, store.name), None)
            if given_schema is not None and store.families:
                raise UsageError(
                    f"operator {store.operator}, store {store.name}: the checkpoint already records its schema; omit "
                    "--schema"
                )
            if given_schema is not None:
                store = replace(store, families=(ColumnFamilySchema("default", *given_schema),))
            stores.append(store)
        operators_with_schemas.append(replace(operator, stores=tuple(stores)))
    if unused_schemas:
        (operator_id, name), *_ = unused_schemas
        raise UsageError(f"--schema: there is no store {operator_id}.{name} in this checkpoint")
    return tuple(operators_with_schemas)
