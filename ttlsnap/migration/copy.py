"""``migrate --output``: a complete new checkpoint; the source stays unchanged (see ``compaction.copy``)."""

from __future__ import annotations

from typing import Any

from ttlsnap.checkpoint import layout
from ttlsnap.compaction.copy import copy_all_but_state, copy_state_files, write_report
from ttlsnap.migration.plan import MigrationPlan, old_documents
from ttlsnap.migration.publish import new_documents, older_logs
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores.open import lineages_of


def write_copy(plan: MigrationPlan, staging: LocalDirectory, home: str, report: dict[str, Any]) -> None:
    """Add everything else to ``staging``, which has the new partitions and will be moved to ``home``."""
    source = plan.checkpoint.files
    copy_all_but_state(source, staging, home)
    for operator in plan.checkpoint.operators:
        if operator.id not in {store.operator for store in plan.stores}:
            for store in operator.stores:
                for lineage in lineages_of(plan.checkpoint, plan.state_store, store):
                    copy_state_files(source, staging, [file.path for file in lineage.files])
    for path, data in new_documents(plan, staging, home).items():
        _remove_with_checksums(staging, path)
        staging.mkdirs(path.rpartition("/")[0])
        with staging.writer(path) as file:
            file.write(data)
    for path in older_logs(plan):
        _remove_with_checksums(staging, path)
    for old in plan.stores:
        for partition in range(old.partitions, len(old.lineages)):
            staging.remove_tree(layout.store_directory(old.operator, partition, layout.DEFAULT_STORE))
        if old.becomes.name != old.store.name:
            for partition in range(old.partitions):
                staging.remove_tree(old.store.directory(partition))
    for path in old_documents(plan):
        _remove_with_checksums(staging, path)
    write_report(source, staging, plan.run, report)


def _remove_with_checksums(staging: LocalDirectory, path: str) -> None:
    for name in (path, *layout.all_checksums(path)):
        staging.remove(name)
