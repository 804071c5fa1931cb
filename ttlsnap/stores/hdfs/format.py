"""Format settings of a checkpoint's HDFS-backed state store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.stores.codec_names import codec_name


@dataclass(frozen=True)
class HdfsFormat:
    """The compression codec, and the setting for row checksums."""

    codec: str
    row_checksums: bool

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """Return the settings that the checkpoint pins; raises UnsupportedError for an unknown codec."""
        where = f"{checkpoint.target}/{layout.offset_file(checkpoint.batch.id)}"
        return cls(codec_name(checkpoint.codec, where), checkpoint.row_checksums)
