"""What a table asks of those that read and write it: refused by name where it is not known, warned of where it matters.

Source: delta-io/delta, PROTOCOL.md (Valid Feature Names in Table Features).
"""

from __future__ import annotations

from ttlsnap.delta.log import TableState, commits
from ttlsnap.errors import RefusedError, UnsupportedError
from ttlsnap.filesystem import Directory

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
    """Raises UnsupportedError for a protocol or a feature that is not known, RefusedError where no row may go."""
    protocol = table.protocol
    if protocol.reader > _READER or protocol.writer > _WRITER:
        raise UnsupportedError(
            f"{files.root} asks for reader version {protocol.reader} and writer version {protocol.writer} of Delta's "
            f"protocol; known are {_READER} and {_WRITER}"
        )
    unknown = sorted({*protocol.reader_features} - READ) + sorted({*protocol.writer_features} - WRITTEN)
    if unknown:
        raise UnsupportedError(
            f"{files.root} has table features that are not known: {', '.join(dict.fromkeys(unknown))}"
        )
    if table.metadata.properties.get("delta.appendOnly", "").lower() == "true":
        raise RefusedError(
            f"{files.root} takes no deletes: its property delta.appendOnly is true. If rows are to expire: "
            "ALTER TABLE ... SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
        )


def downstream_warnings(files: Directory, table: TableState) -> list[str]:
    """What a stream that reads the table will make of rows that go, as far as the log tells."""
    if table.metadata.properties.get("delta.enableChangeDataFeed", "").lower() == "true":
        return ["the change data feed is on: whoever reads it will see each row that goes as a delete"]
    first = None
    for commit in commits(files):
        first = commit.version
        if commit.operation not in _ADDS_ONLY:
            return []
    if first == 0:
        return [
            "so far rows were only added to this table: a stream that reads it will fail at the first version in which "
            "some are gone (DELTA_SOURCE_TABLE_IGNORE_CHANGES), unless it has the option skipChangeCommits"
        ]
    return []
