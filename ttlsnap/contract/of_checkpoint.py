"""Contracts from checkpoints. This needs no JVM.

It opens no state file, with two exceptions. If state variables were removed, RocksDB's zips name what Spark has kept.
If the provider is not one of Spark's own, all files must prove to have a known layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter

from ttlsnap.checkpoint import Checkpoint, Operator, Store, layout
from ttlsnap.checkpoint.checkpoint import REAL_TIME_AGGREGATION, Schemas
from ttlsnap.checkpoint.logs import SOURCE_EVOLUTION, named_offsets
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.contract.model import Contract, OperatorContract, StateContract, StoreContract
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.keywords import public
from ttlsnap.operators import aggregation, transform_with_state
from ttlsnap.operators.registry import states_of
from ttlsnap.publishing.runs import Runs
from ttlsnap.reading.inspected import spark_version
from ttlsnap.reading.opening import open_to_read
from ttlsnap.stores.open import lineages_of, open_state_store


@public
def contract_of_checkpoint(target: str, *, batch: int | None = None, schemas: Schemas | None = None) -> Contract:
    """Return the contract of the checkpoint ``target`` at its last committed batch, or at the retained ``batch``.

    ``schemas`` are for a checkpoint that records none. Raise the errors of ``open_to_read``.
    """
    return describe_checkpoint(open_to_read(target, batch, schemas))


def describe_checkpoint(checkpoint: Checkpoint) -> Contract:
    """Return the contract of an open checkpoint."""
    facts = checkpoint.batch
    return Contract(
        made_from="checkpoint",
        spark=spark_version(facts.conf),
        provider=checkpoint.recorded_provider,
        encoding=checkpoint.encoding,
        codec=checkpoint.codec,
        checkpoint_format=facts.checkpoint_format,
        row_checksums=checkpoint.row_checksums,
        changelog=_changelog(checkpoint),
        offset_log=facts.log_version,
        sources=facts.sources,
        source_names=_source_names(checkpoint),
        operators=tuple(_operator(checkpoint, operator) for operator in checkpoint.operators),
        conf=dict(facts.conf),
    )


def _source_names(checkpoint: Checkpoint) -> tuple[str, ...] | None:
    """Return the sorted names of the sources; None if they have none, or nothing shows them."""
    if checkpoint.batch.conf.get(SOURCE_EVOLUTION, "false").lower() != "true":
        return None
    if checkpoint.batch.log_version > 1:
        return tuple(sorted(named_offsets(checkpoint.files, checkpoint.batch.id)))
    # Version 1 of the offset log has no names, but the folders have.
    folders = (info.name for info in checkpoint.files.list(layout.SOURCES) if info.is_dir)
    names = sorted(name for name in folders if layout.parse_number(name) is None)
    return tuple(names) if len(names) == checkpoint.batch.sources else None


def _changelog(checkpoint: Checkpoint) -> bool | None:
    """Return whether the newest version has a changelog. None without RocksDB, or if no file of that version exists.

    A compaction moves the changelog to its backup.
    """
    if checkpoint.provider != "rocksdb":
        return None
    newest: set[str] = set()
    for operator in checkpoint.operators:
        for store in operator.stores:
            newest |= _kinds_of(
                checkpoint, [info.name for info in checkpoint.files.list(store.directory(store.partitions[0]))]
            )
    if newest and "changelog" not in newest:
        for journal in Runs.read(checkpoint.files).recent(checkpoint.logs):
            if journal.status == "done" and journal.batch == checkpoint.batch.id:
                newest |= _kinds_of(checkpoint, [move.source.rpartition("/")[2] for move in journal.to_backup])
    return None if not newest else "changelog" in newest


def _kinds_of(checkpoint: Checkpoint, names: Iterable[str]) -> set[str]:
    """Return the kinds of the newest version's files among these names."""
    parsed = map(layout.parse_state_file, names)
    return {name.kind for name in parsed if name is not None and name.version == checkpoint.version}


def _operator(checkpoint: Checkpoint, operator: Operator) -> OperatorContract:
    return OperatorContract(
        id=operator.id,
        # The state is the same, and a query can change between the modes.
        name=aggregation.NAME if operator.name == REAL_TIME_AGGREGATION else operator.name,
        partitions=max((len(store.partitions) for store in operator.stores), default=1),
        stores=tuple(_store(checkpoint, operator, store) for store in operator.stores),
        time_mode=operator.time_mode,
        output_mode=operator.output_mode,
    )


def _store(checkpoint: Checkpoint, operator: Operator, store: Store) -> StoreContract:
    if not store.families:
        return StoreContract(store.name, store.num_cols_prefix_key, None)
    ttl = {variable.name: variable.ttl for variable in operator.variables}
    encoders = _key_encoders(store.families)
    states = [_state(state, encoders, ttl.get(state.state)) for state in states_of(checkpoint, operator, store)]
    # Spark does not keep states in a fixed order.
    states.sort(key=attrgetter("name"))
    return StoreContract(store.name, store.num_cols_prefix_key, tuple(states), _unused(checkpoint, operator, store))


def _unused(checkpoint: Checkpoint, operator: Operator, store: Store) -> tuple[StateContract, ...] | None:
    """Return the state variables that earlier queries had; None for an operator that has no variables."""
    if operator.name not in transform_with_state.NAMES:
        return None
    encoders = _key_encoders(store.unused)
    families_in_files = _families_in_files(checkpoint, store) if encoders else frozenset()
    return tuple(
        replace(_state(state, encoders, state.stored_timestamp is not None), kept=state.state in families_in_files)
        for state in transform_with_state.unused_states(checkpoint, operator, store, encoders)
        if state.role == "primary" and state.kind != "timer"
    )


def _key_encoders(families: Iterable[ColumnFamilySchema]) -> dict[str, str | None]:
    return {family.name: (family.key_encoder or {}).get("keyStateEncoderType") for family in families}


def _state(state: StateDescriptor, encoders: Mapping[str, str | None], ttl: bool | None) -> StateContract:
    return StateContract(
        name=state.state,
        kind=state.kind,
        role=state.role,
        key=state.key_schema,
        value=state.value_schema,
        ttl=ttl,
        key_encoder=encoders[state.state],
    )


def _families_in_files(checkpoint: Checkpoint, store: Store) -> frozenset[str]:
    """Return the column families that Spark has kept; all that there may be if a file cannot be read."""
    try:
        lineages = lineages_of(checkpoint, open_state_store(checkpoint), store)
    except (CorruptionError, UnsupportedError):
        return frozenset(family.name for family in store.unused)
    return frozenset[str]().union(*(lineage.families for lineage in lineages))
