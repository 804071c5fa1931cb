"""Changelogs: the changes of one batch to a RocksDB state store, in order.

    v1  record*, end       record := klen key vlen value | klen key -1                  end := -1
    v2  utf("v2") record*, end
                           record := 01 klen key vlen value | 10 klen key -1 | 11 klen key vlen value    end := 00
    v3  utf("v3") utf(lineage JSON) and the records of v1
    v4  utf("v4") utf(lineage JSON) and the records of v2

01 puts, 10 (or a length of -1) deletes, 11 merges. 20 deletes a range of keys: from 4.2 on, Spark's store can write it,
but no operator uses it. Lengths are big-endian int32. utf is a big-endian uint16 length and as many bytes. The lineage,
``[{"version", "checkpointUniqueId"}, ...]``, names the files that this one continues. v2 and v4 have column families.

Source: Spark's ``StateStoreChangelog``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.codecs import Piece, decompress
from ttlsnap.stores.record_limit import RecordLimit

PUT, DELETE, MERGE, DELETE_RANGE = 0x01, 0x10, 0x11, 0x20
_END = 0x00
_WINDOW = 1 << 20
_MAX_HEADER = 2 * (2 + 0xFFFF)
_VERSION_SIZE = 4
_length = struct.Struct(">i").unpack_from
_short = struct.Struct(">H").unpack_from


@dataclass
class ChangelogRecords:
    """Consecutive records: their kinds, their keys, and their values (empty for a delete)."""

    kinds: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)


def read_lineage(files: Directory, path: str, codec: str) -> list[tuple[int, str]]:
    """Return the versions and ids that a changelog continues, oldest first.

    Raises CorruptionError for a changelog without a lineage.
    """
    where = f"{files.root}/{path}"
    with open_checked(files, path) as file:
        header = b""
        for piece in decompress(file, codec, where):
            header += piece
            if len(header) >= _MAX_HEADER:
                break
    version, lineage, _ = _header(header, where)
    if lineage is None:
        raise CorruptionError(f"{where}: a changelog v{version} has no lineage, which checkpoint format 2 needs")
    return lineage


def has_families(files: Directory, path: str, codec: str) -> bool:
    """Return whether the keys in a changelog begin with the id of a column family."""
    where = f"{files.root}/{path}"
    with open_checked(files, path) as file:
        header = next(decompress(file, codec, where), b"")
    return _version(bytes(header[:_VERSION_SIZE]), where) in (2, 4)


def read_changes(files: Directory, path: str, codec: str) -> Iterator[ChangelogRecords]:
    """Yield the records of a changelog, about a megabyte at a time.

    Raises CorruptionError for an impossible length, and for a file that ends without its end mark or continues after
    it. Raises UnsupportedError for a record that deletes a range of keys.
    """
    where = f"{files.root}/{path}"
    with open_checked(files, path) as file:
        size = info.size if (info := files.stat(path)) else 0
        pieces = decompress(file, codec, where, size)
        data = _gather(pieces, _MAX_HEADER)
        version, _, position = _header(data, where)
        reader = _Records(where, typed=version in (2, 4))
        limit = RecordLimit(size, where)
        target = _WINDOW
        while True:
            next_bytes = _gather(pieces, max(target - len(data), 1))
            data += next_bytes
            changes, position = reader.read(data, position)
            if changes.kinds:
                limit.count(len(changes.kinds), changes.keys.count(b""))
                yield changes
            if reader.ended:
                if position != len(data) or any(pieces):
                    raise CorruptionError(f"{where}: bytes follow the end mark")
                return
            if not next_bytes:
                raise CorruptionError(f"{where} is truncated: it ends without the end mark")
            # A record that is larger than the window is gathered in steps of doubling size.
            target = _WINDOW if position else 2 * len(data)
            data, position = data[position:], 0


def _gather(pieces: Iterator[Piece], size: int) -> bytes:
    gathered_pieces: list[Piece] = []
    size_gathered = 0
    for piece in pieces:
        gathered_pieces.append(piece)
        size_gathered += len(piece)
        if size_gathered >= size:
            break
    return b"".join(gathered_pieces)


def _version(data: bytes, where: str) -> int:
    """Return the version of a changelog.

    A file of v1 begins with the length of a key. Other versions begin with bytes that would be a length that no key
    has.
    """
    # Spark tries to read the same text, and takes a file for v1 if that fails (StateStoreChangelogReaderFactory,
    # SPARK-51922 and SPARK-52553).
    if data[:3] != b"\0\2v":
        return 1
    if data[3:4] not in (b"2", b"3", b"4"):
        raise UnsupportedError(f"{where}: changelog version {data[2:4]!r} is unknown (known: v1 to v4)")
    return int(data[3:4])


def _header(data: bytes, where: str) -> tuple[int, list[tuple[int, str]] | None, int]:
    """Return the version, the lineage or None, and the position where the records begin."""
    version = _version(data, where)
    if version < 3:
        return version, None, 0 if version == 1 else 4
    try:
        (size,) = _short(data, 4)
        text = data[6 : 6 + size]
        if len(text) != size:
            raise ValueError("cut off")
        lineage_document = parse_json(text)
        if not isinstance(lineage_document, list):
            raise TypeError("it is not a list")
        lineage = [(item["version"], item["checkpointUniqueId"]) for item in lineage_document]
        if not all(type(number) is int and isinstance(name, str) for number, name in lineage):
            raise ValueError("a version is not a number, or an id is not text")
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise CorruptionError(f"{where}: its lineage is not what Spark writes ({error!r})") from error
    return version, sorted(lineage), 6 + size


class _Records:
    def __init__(self, where: str, typed: bool) -> None:
        self._where, self._has_kinds = where, typed
        self.ended = False

    def read(self, data: bytes, position: int) -> tuple[ChangelogRecords, int]:
        """Return all whole records from ``position`` on, and the position after them."""
        changes = ChangelogRecords()
        kinds, keys, values = changes.kinds.append, changes.keys.append, changes.values.append
        has_kinds, kind, total = self._has_kinds, PUT, len(data)
        head_size = 5 if has_kinds else 4
        while position + head_size <= total or (has_kinds and position < total):
            if has_kinds:
                kind = data[position]
                if kind == _END:
                    self.ended = True
                    return changes, position + 1
                if position + head_size > total:
                    break
                if kind == DELETE_RANGE:
                    raise UnsupportedError(
                        f"{self._where} deletes a range of keys (record type 0x20, DELETE_RANGE). No operator of Spark "
                        "4.2 or 4.3 does so, and ttlsnap does not support it; nothing was changed"
                    )
                if kind not in (PUT, DELETE, MERGE):
                    raise CorruptionError(f"{self._where}: the record type {kind:#04x} is unknown")
            start = position + head_size
            (key_size,) = _length(data, start - 4)
            if key_size < 0:
                if key_size == -1 and not has_kinds:
                    self.ended = True
                    return changes, start
                raise CorruptionError(f"{self._where}: impossible key length {key_size}")
            value_at = start + key_size + 4
            if value_at > total:
                break
            (value_size,) = _length(data, value_at - 4)
            if value_size < -1 or (has_kinds and (value_size == -1) != (kind == DELETE)):
                raise CorruptionError(f"{self._where}: impossible value length {value_size}")
            end_of_record = value_at + max(value_size, 0)
            if end_of_record > total:
                break
            # v1 and v3 have no kinds: there, a delete shows only by its size.
            kinds(DELETE if value_size == -1 else kind)
            keys(data[start : start + key_size])
            values(data[value_at:end_of_record])
            position = end_of_record
        return changes, position
