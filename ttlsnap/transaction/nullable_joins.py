"""The state schemas of joins for a planned batch, before Spark 4.0.

Spark infers that the columns of an inner join's condition are not null, and records that in the schema of the state.
It infers this only in a batch in which the side has rows. The first batch after a restart may have a nullable column
only where the recorded one is nullable, and otherwise ends with StateSchemaNotCompatible. A planned batch has no rows.
So with a planned batch, the recorded columns become nullable. All batches may have such a schema, also the later ones,
and the rows are stored in the same way.

Source: Spark's ``StateSchemaCompatibilityChecker`` and ``SymmetricHashJoinStateManager``; seen with Spark 3.3 to 3.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import read_checked
from ttlsnap.checkpoint.state_schema import MAX_SCHEMA_BYTES, as_nullable_schema
from ttlsnap.storage.directory import Directory

_SCHEMA = re.compile(rf"{layout.STATE}/([0-9]+)/0/(?:left|right)-[^/]+/_metadata/schema")


def nullable_schemas(files: Directory, staged: Mapping[str, str], documents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the schema files of joins that must change before a batch without rows, by their paths.

    ``staged`` has the places of new files, and ``documents`` the content of others, by the paths that they will have.
    """
    changed: dict[str, bytes] = {}
    paths = {path for path in (*staged, *documents, *_find_schemas(files)) if _SCHEMA.fullmatch(path)}
    for path in sorted(paths):
        # Since Spark 4.0, there is metadata of operators, and the check is made before the batch is planned.
        metadata = f"{layout.STATE}/{path.split('/')[1]}/_metadata"
        if files.list(metadata) or any(name.startswith(f"{metadata}/") for name in (*staged, *documents)):
            continue
        data = documents.get(path) or read_checked(files, staged.get(path, path), MAX_SCHEMA_BYTES)
        new_data = as_nullable_schema(data, f"{files.root}/{path}")
        if new_data != data:
            changed[path] = new_data
    return changed


def _find_schemas(files: Directory) -> Iterator[str]:
    """Yield the paths of the schema files of the stores in the first partitions."""
    for operator in files.list(layout.STATE):
        folder = f"{layout.STATE}/{operator.name}/0"
        for store in files.list(folder) if operator.is_dir else ():
            path = f"{folder}/{store.name}/_metadata/schema"
            if store.is_dir and _SCHEMA.fullmatch(path) and files.stat(path) is not None:
                yield path
