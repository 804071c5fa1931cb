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
from collections.abc import Mapping

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import read_checked
from ttlsnap.checkpoint.listing import Listing
from ttlsnap.checkpoint.state_schema import MAX_SCHEMA_BYTES, as_nullable_schema
from ttlsnap.storage.directory import Directory

_SCHEMA = re.compile(rf"{layout.STATE}/[0-9]+/0/(?:left|right)-[^/]+/_metadata/schema")


def nullable_schemas(
    files: Directory, before: Listing, staged: Mapping[str, str], documents: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the schema files of joins that must change before a batch without rows, by their paths.

    ``before`` has the state files. ``staged`` has the places of new files, and ``documents`` the content of others, by
    the paths that they will have. Nothing is read if there is no join.
    """
    changed: dict[str, bytes] = {}
    new_paths = {*staged, *documents}
    stores = {path.rpartition("/")[0] for path in before if path.startswith(f"{layout.STATE}/")}
    known_paths = {*new_paths, *(f"{store}/_metadata/schema" for store in stores)}
    for path in sorted(path for path in known_paths if _SCHEMA.fullmatch(path)):
        # Since Spark 4.0, there is metadata of operators, and the check is made before the batch is planned.
        metadata = f"{layout.STATE}/{path.split('/')[1]}/_metadata"
        is_recent = files.list(metadata) or any(new_path.startswith(f"{metadata}/") for new_path in new_paths)
        if is_recent or not (path in new_paths or files.stat(path) is not None):
            continue
        data = documents.get(path) or read_checked(files, staged.get(path, path), MAX_SCHEMA_BYTES)
        new_data = as_nullable_schema(data, f"{files.root}/{path}")
        if new_data != data:
            changed[path] = new_data
    return changed
