"""The state schemas of joins for a planned batch, before Spark 4.0.

Spark infers that the columns of an inner join's condition are not null, and records that in the schema of the state.
It infers this only in a batch in which the side has rows. The first batch after a restart may have a nullable column
only where the recorded one is nullable, and otherwise ends with StateSchemaNotCompatible. A planned batch has no rows.
So with a planned batch, the recorded columns become nullable. All batches may have such a schema, also the later ones,
and the rows are stored in the same way.

Source: Spark's ``StateSchemaCompatibilityChecker`` and ``SymmetricHashJoinStateManager``; seen with Spark 3.3 to 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import read_checked
from ttlsnap.checkpoint.state_schema import MAX_SCHEMA_BYTES, as_nullable_schema
from ttlsnap.storage.directory import Directory

_SIDES = ("left-", "right-")


def nullable_schemas(files: Directory, documents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the schema files of joins that must change before a batch without rows, by their paths.

    ``documents`` are the files that change anyway, with their new content.
    """
    changed: dict[str, bytes] = {}
    for operator in files.list(layout.STATE):
        folder = f"{layout.STATE}/{operator.name}"
        # Since Spark 4.0, there is metadata of operators, and the check is made before the batch is planned.
        if not operator.is_dir or files.list(f"{folder}/_metadata"):
            continue
        for store in files.list(f"{folder}/0"):
            path = f"{folder}/0/{store.name}/_metadata/schema"
            if store.is_dir and store.name.startswith(_SIDES) and (path in documents or files.stat(path) is not None):
                data = documents.get(path) or read_checked(files, path, MAX_SCHEMA_BYTES)
                new_data = as_nullable_schema(data, f"{files.root}/{path}")
                if new_data != data:
                    changed[path] = new_data
    return changed
