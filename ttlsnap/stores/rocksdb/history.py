"""The keys that each retained changelog put or merged, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.lineage import Lineage, StateFile
from ttlsnap.stores.rocksdb import changelog
from ttlsnap.stores.rocksdb.archive import read_metadata
from ttlsnap.stores.rocksdb.encoding import FAMILY_SIZE, read_keys
from ttlsnap.stores.rocksdb.format import RocksDbFormat
from ttlsnap.unsaferow.gather import read_at
from ttlsnap.unsaferow.rows import Rows


def writes(
    rocksdb_format: RocksDbFormat, files: Directory, lineage: Lineage, states: Mapping[str, StateDescriptor]
) -> Iterator[tuple[StateFile, Iterator[tuple[str, Rows]]]]:
    """See ``StateStore.writes``."""
    folder, _, name = lineage.new_snapshot.rpartition("/")
    newest = layout.parse_state_file(name)
    assert newest is not None
    info_of_name = {info.name: info for info in files.list(folder, (".changelog",))}
    families: dict[int, str] = {}
    if lineage.snapshot is not None:
        families = {number: family for family, number in read_metadata(files, lineage.snapshot.path).families.items()}
    ids = {newest.version: newest.unique_id}
    version = newest.version
    while version in ids:
        unique_id = ids[version]
        path = f"{version}_{unique_id}.changelog" if unique_id is not None else f"{version}.changelog"
        if path not in info_of_name:
            return
        info = info_of_name[path]
        path = f"{folder}/{path}"
        yield StateFile(path, version, info.size, info.mtime_ns), _puts(rocksdb_format, files, path, families, states)
        if unique_id is None:
            ids[version - 1] = None
        else:
            ids.update(changelog.read_lineage(files, path, rocksdb_format.codec))
        version -= 1


def _puts(
    rocksdb_format: RocksDbFormat,
    files: Directory,
    path: str,
    families: Mapping[int, str],
    states: Mapping[str, StateDescriptor],
) -> Iterator[tuple[str, Rows]]:
    where = f"{files.root}/{path}"
    if not families and changelog.has_families(files, path, rocksdb_format.codec):
        raise CorruptionError(f"{where} uses column families, but the zip that maps their ids is missing")
    for changes in changelog.read_changes(files, path, rocksdb_format.codec):
        keys = [key for kind, key in zip(changes.kinds, changes.keys, strict=True) if kind != changelog.DELETE]
        if not keys:
            continue
        raw = Rows.of(keys)
        if not families:
            if (state := states.get(DEFAULT_FAMILY)) is not None:
                yield state.state, read_keys(raw, 0, state, where)
            continue
        numbers = read_at(raw.data, raw.start, "<i2")
        for number in np.unique(numbers).tolist():
            if (state := states.get(families.get(number, ""))) is not None:
                yield state.state, read_keys(raw.take(numbers == number), FAMILY_SIZE, state, where)
