"""Format settings of a checkpoint's RocksDB state store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.errors import UnsupportedError
from ttlsnap.stores.codec_names import codec_name

_CONF = "spark.sql.streaming.stateStore."


# RocksDB's operator uses a comma by default, and the OPTIONS file does not record another delimiter. From 4.2 on, Spark
# pins the version, and new queries use none.
_DELIMITERS = {"1": b",", "2": b""}


_FORMAT_VERSIONS = ("3", "4", "5", "6")


@dataclass(frozen=True)
class RocksDbFormat:
    """Format of the files, as far as the checkpoint pins it.

    ``codec`` is the codec of the changelogs. ``delimiter`` separates values that were merged into one.
    ``format_version`` is that of tables in new SST files, if there is no older snapshot to follow.
    """

    codec: str
    row_checksums: bool
    delimiter: bytes
    format_version: int
    written_before_4_2: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """Return the settings that the checkpoint pins; raises UnsupportedError for an unknown one."""
        conf, where = checkpoint.batch.conf, f"{checkpoint.target}/{layout.offset_file(checkpoint.batch.id)}"
        # Before Spark 4.2 the delimiter was always a comma.
        merge_operator = conf.get(f"{_CONF}rocksdb.mergeOperatorVersion", "1")
        written_before_4_2 = f"{_CONF}rocksdb.mergeOperatorVersion" not in conf
        format_version = conf.get(f"{_CONF}rocksdb.formatVersion", "5")
        if merge_operator not in _DELIMITERS:
            raise UnsupportedError(f"{where}: merge operator version {merge_operator!r} is unknown (known: 1, 2)")
        if format_version not in _FORMAT_VERSIONS:
            known_versions = ", ".join(_FORMAT_VERSIONS)
            raise UnsupportedError(
                f"{where}: RocksDB format version {format_version!r} is unknown (known: {known_versions})"
            )
        return cls(
            codec=codec_name(checkpoint.codec, where),
            row_checksums=checkpoint.row_checksums,
            delimiter=_DELIMITERS[merge_operator],
            format_version=int(format_version),
            written_before_4_2=written_before_4_2,
        )
