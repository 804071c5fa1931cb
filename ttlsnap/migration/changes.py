"""What a migration changes, and the settings that the checkpoint pins afterwards.

Spark uses a pinned setting, and ignores that of the query's session. ttlsnap changes only settings that the checkpoint
already pins. The Spark that continues the query may not know another one, and would ignore it. Spark pins neither the
checkpoint format, nor whether RocksDB writes changelogs. The user sets these in the query's session.

Source: Spark's ``OffsetSeqMetadata.relevantSQLConfs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.checkpoint.checkpoint import CODEC, ENCODING, PROVIDERS, ROW_CHECKSUM
from ttlsnap.checkpoint.logs import PROVIDER, SHUFFLE_PARTITIONS, shuffle_partitions
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.migration.evolution import Evolution
from ttlsnap.operators import join, transform_with_state
from ttlsnap.operators.registry import is_join
from ttlsnap.stores.codec_names import CODECS
from ttlsnap.suggestions import did_you_mean

_STATE_STORE = "spark.sql.streaming.stateStore."
CHANGELOG = f"{_STATE_STORE}rocksdb.changelogCheckpointing.enabled"
FORMAT = f"{_STATE_STORE}checkpointFormatVersion"
_TABLE_FORMAT = f"{_STATE_STORE}rocksdb.formatVersion"  # pinned since Spark has the RocksDB store, by both providers
_CLASSES = {name: spark for spark, name in PROVIDERS.items()}
_BOTH = ("false", "true")
AGGREGATION_FORMAT = "aggregation-format"
JOIN_FORMAT = "join-format"
_AGGREGATION_FORMAT = "spark.sql.streaming.aggregation.stateFormatVersion"
_SINCE = {
    _AGGREGATION_FORMAT: ("format 2 of aggregations", "2.4"),
    CODEC: ("another codec", "3.1"),
    ENCODING: ("checkpoint format 2", "4.1"),
    PROVIDER: ("another provider", "3.1"),
    ROW_CHECKSUM: ("a change of row checksums", "4.2"),
    join.FORMAT: ("another format of joins", "2.4"),
    _TABLE_FORMAT: ("the RocksDB store", "3.2"),
}
"""For each pinned setting: the change that needs it, and the first version of Spark that supports this change."""
_JOIN_SINCE = {
    "3": (ENCODING, "format 3 of joins", "4.1"),
    "4": (ROW_CHECKSUM, "format 4 of joins", "4.2"),
}
"""For new formats of joins: a setting that Spark pins from that version on, the change, and the version."""
_TIMED_JOINS = "spark.sql.streaming.join.stateFormatV4.enabled"  # only Spark 4.2 has this setting

FLOAT_KEYS, INTERVAL_KEYS = "float-keys", "interval-keys"
SETTINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    AGGREGATION_FORMAT: (_AGGREGATION_FORMAT, ("2",)),
    "changelog": (CHANGELOG, _BOTH),
    "checkpoint-format": (FORMAT, ("1", "2")),
    "codec": (CODEC, tuple(codec for codec in CODECS if codec != "none")),
    FLOAT_KEYS: (FLOAT_KEYS, ("normalized",)),  # Spark has no setting for it
    INTERVAL_KEYS: (INTERVAL_KEYS, ("4.2", "4.3")),  # nor for this
    JOIN_FORMAT: (join.FORMAT, ("2", "3", "4")),
    "row-checksums": (ROW_CHECKSUM, _BOTH),
}
"""The settings that a migration may change: Spark's name of each, and its values."""


class NewSchemas(Protocol):
    """The schemas of a new query."""

    def evolve(self, checkpoint: Checkpoint) -> Evolution:
        """Return how the state of a checkpoint gets them.

        Raise UnsupportedError if it cannot, or not without another answer from the user, and UsageError for contracts
        that do not belong to this checkpoint.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """The wanted number of ``partitions``, ``provider`` and other ``settings``; what is not given stays as it is.

    ``settings`` has values by the names of ``SETTINGS``, or by Spark's own. ``new_query`` has the
    schemas that the state gets. ``drops`` are state variables that the query no longer has, and whose values go.
    """

    partitions: int | None = None
    provider: str | None = None
    settings: Mapping[str, Any] | None = None
    new_query: NewSchemas | None = None
    drops: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Changes(ChangeOptions):
    """What a migration changes, after a check. Raise UsageError for anything unknown, and if nothing is given.

    State variables go only if the user agrees that the migration ``may_drop`` them.
    """

    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    may_drop: bool = True

    def __post_init__(self) -> None:
        names_a_change = self.partitions is not None or self.provider is not None or self.new_query is not None
        if not names_a_change and not self.settings and not self.drops:
            raise UsageError(
                "there is nothing to migrate: name a new query, a number of partitions, a provider or a setting. "
                "To drop entries only, use ttlsnap compact"
            )
        if self.partitions is not None and (
            not isinstance(self.partitions, int) or not 1 <= self.partitions <= layout.MAX_PARTITIONS
        ):
            raise UsageError(
                f"partitions is {self.partitions!r}; it must be a whole number from 1 to {layout.MAX_PARTITIONS:,}"
            )
        if self.provider is not None and self.provider not in _CLASSES:
            raise UsageError(f"provider is {self.provider!r}; it must be one of {', '.join(sorted(_CLASSES))}")
        short_names = {spark: name for name, (spark, _) in SETTINGS.items()}
        settings = {short_names.get(name, name): str(value).lower() for name, value in self.settings.items()}
        for name, value in settings.items():
            if name not in SETTINGS:
                raise UsageError(
                    f"unknown setting {name}{did_you_mean(name, SETTINGS)}; use one of {', '.join(SETTINGS)}"
                )
            if value not in SETTINGS[name][1]:
                raise UsageError(f"the setting {name} is {value!r}; it must be one of {', '.join(SETTINGS[name][1])}")
        for name in (AGGREGATION_FORMAT, FLOAT_KEYS, INTERVAL_KEYS, JOIN_FORMAT):
            if name in settings and self.new_query is not None:
                raise UsageError(f"{name} and a new query both change values; migrate twice")
        object.__setattr__(self, "settings", settings)

    @property
    def is_only_changelog(self) -> bool:
        """Whether the only change is the writing of changelogs, which no file records."""
        return self.partitions is None and self.provider is None and self.settings.keys() == {"changelog"}


@dataclass(frozen=True)
class NewSettings:
    """The settings of the migrated checkpoint: those that change in its offset log, and its format, 1 or 2.

    ``session`` has settings that Spark does not pin. The query's session must have them.
    """

    pinned: Mapping[str, str]
    checkpoint_format: int
    session: Mapping[str, str]


def find_target(checkpoint: Checkpoint, changes: Changes) -> NewSettings:
    """Return what ``changes`` make of a checkpoint.

    Raise UnsupportedError for state that the wanted provider cannot hold, and for a setting that the checkpoint does
    not pin. Raise UsageError for settings that exclude each other.
    """
    conf, settings = checkpoint.batch.conf, changes.settings
    provider = changes.provider or checkpoint.provider
    old_format = checkpoint.batch.checkpoint_format
    new_format = int(settings.get("checkpoint-format", old_format))
    pinned = {}
    if provider != checkpoint.provider:
        pinned[PROVIDER] = _CLASSES[provider]
    if provider == "hdfs":
        _refuse_only_rocksdb(checkpoint, settings, old_format, new_format)
    if changes.partitions is not None and changes.partitions != shuffle_partitions(conf):
        pinned[SHUFFLE_PARTITIONS] = str(changes.partitions)
    for name in (AGGREGATION_FORMAT, "codec", JOIN_FORMAT, "row-checksums"):
        spark_name = SETTINGS[name][0]
        if name in settings and settings[name] != conf.get(spark_name):
            pinned[spark_name] = settings[name]
    requirements = [(name, *_SINCE[name]) for name in pinned if name != SHUFFLE_PARTITIONS]
    requirements += [(_TABLE_FORMAT, *_SINCE[_TABLE_FORMAT])] if PROVIDER in pinned and provider == "rocksdb" else []
    requirements += [(ENCODING, *_SINCE[ENCODING])] if new_format > old_format else []
    requirements += [_JOIN_SINCE[pinned[join.FORMAT]]] if pinned.get(join.FORMAT) in _JOIN_SINCE else []
    for name, change, first_version in requirements:
        if name not in conf:
            raise UnsupportedError(
                f"{checkpoint.target}: {change} needs Spark {first_version}, and the last batch ran with an older "
                f"version, which did not record {name}. Run the query for a batch with Spark {first_version} or later, "
                "and repeat the command"
            )
    session = {SETTINGS[name][0]: settings[name] for name in ("changelog", "checkpoint-format") if name in settings}
    if new_format == 2:
        session[FORMAT] = "2"
    if join.is_timed(pinned.get(join.FORMAT, "")):
        session[_TIMED_JOINS] = "true"
    return NewSettings(pinned, new_format, session)


def _refuse_only_rocksdb(checkpoint: Checkpoint, settings: Mapping[str, str], old_format: int, new_format: int) -> None:
    """Raise an error for what the HDFS-backed store cannot hold, by name."""
    for name, value in (("changelog", "true"), ("checkpoint-format", "2")):
        if settings.get(name) == value:
            raise UsageError(f"{name}={value} is only for RocksDB; change the provider, too: --provider rocksdb")
    if settings.get(JOIN_FORMAT) in _JOIN_SINCE:
        raise UsageError(
            f"{JOIN_FORMAT}={settings[JOIN_FORMAT]} is only for RocksDB; change the provider, too: --provider rocksdb"
        )
    for operator in checkpoint.operators:
        where = f"{checkpoint.target}: operator {operator.id} ({operator.name})"
        if operator.name in transform_with_state.NAMES:
            raise UnsupportedError(f"{where} needs RocksDB: the HDFS-backed store cannot hold its state variables")
        if is_join(operator) and any(len(store.families) > 1 for store in operator.stores):
            number = join.state_format(checkpoint)
            raise UnsupportedError(f"{where} has state format {number}, and the HDFS-backed store holds only 1 and 2")
    if old_format == new_format == 2:
        raise UnsupportedError(
            f"{checkpoint.target} has checkpoint format 2, and the HDFS-backed store cannot hold its checkpoint ids. "
            "To change to format 1, too, add: --set checkpoint-format=1"
        )
