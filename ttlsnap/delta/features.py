"""The protocol and features of a table: unknown ones are refused by name, others can cause a warning.

Source: delta-io/delta, PROTOCOL.md (Valid Feature Names in Table Features).
"""

from __future__ import annotations

from ttlsnap.delta.log import TableState, commits
from ttlsnap.errors import RefusedError, UnsupportedError
from ttlsnap.storage.directory import Directory

READ = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""What a reader has to know, and the reading here does."""

WRITTEN = READ | {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "clustering",
    "domainMetadata",
    "generatedColumns",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "materializePartitionColumns",
    "rowTracking",
}
"""What a writer has to know. Delta does the writing: a feature of these that its version has not, it refuses."""

_READER, _WRITER = 3, 7
_ADDS_ONLY = ("WRITE", "STREAMING UPDATE", "CREATE TABLE", "CREATE TABLE AS SELECT", "SET TBLPROPERTIES", "OPTIMIZE")


def check_features(files: Directory, table: TableState) -> None:
    """Raise UnsupportedError for an unknown protocol or feature, and RefusedError for a table that is append-only."""
    check_protocol(files, table)
    if table.metadata.properties.get("delta.appendOnly", "").lower() == "true":
        raise RefusedError(
            f"{files.root} does not allow deletes: its property delta.appendOnly is true. To allow them: ALTER TABLE "
            "... SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
        )


def check_protocol(files: Directory, table: TableState) -> None:
    """Raise UnsupportedError for an unknown protocol or feature."""
    protocol = table.protocol
    if protocol.reader > _READER or protocol.writer > _WRITER:
        raise UnsupportedError(
            f"{files.root} needs reader version {protocol.reader} and writer version {protocol.writer} of Delta's "
            f"protocol; ttlsnap knows {_READER} and {_WRITER}"
        )
    unknown_features = sorted({*protocol.reader_features} - READ) + sorted({*protocol.writer_features} - WRITTEN)
    if unknown_features:
        raise UnsupportedError(f"{files.root} has unknown table features: {', '.join(dict.fromkeys(unknown_features))}")


def downstream_warnings(files: Directory, table: TableState) -> list[str]:
    """Return warnings about streams that read the table and will meet dropped rows, as far as the log shows them."""
    if table.metadata.properties.get("delta.enableChangeDataFeed", "").lower() == "true":
        return ["the change data feed is on: its readers see each dropped row as a delete"]
    first_version = None
    for commit in commits(files):
        first_version = commit.version
        if commit.operation not in _ADDS_ONLY:
            return []
    if first_version == 0:
        return [
            "until now this table was append-only: a stream that reads it will fail at the first version that removes "
            "rows (DELTA_SOURCE_TABLE_IGNORE_CHANGES), unless it has the option skipChangeCommits"
        ]
    return []
