"""The ledger of a state in one partition: when each of its keys was last written, as of one version.

    _ttlsnap/written/<operator>/<partition>/<store>/<state>.ledger
        a line of JSON: format (1), the ``LedgerFacts``, and a checksum (XXH3) of the path, the facts and the rest
        an Arrow stream, compressed: key (uint64), written (int64, milliseconds), older (bool)

It has the keys that the state has, so it is never larger than that: about ten bytes for each key. Hashes do not
compress well, so a ledger that expands to more than ``_EXPANSION`` times its size is not one that ttlsnap wrote.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ttlsnap.checkpoint.layout import LEDGERS, parse_number
from ttlsnap.documents import to_json
from ttlsnap.errors import CorruptionError
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.schema.types import BinaryType
from ttlsnap.storage.directory import Directory, each
from ttlsnap.stores.row_checksums import row_checksums
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.murmur3 import first_seeds, hash_columns
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.arrow_stream import expanded_size

Hashes = npt.NDArray[np.uint64]


def hash_keys(keys: Rows) -> Hashes:
    """Return the hash of each key, the same on every machine: its CRC32C and its Murmur3 hash (uint64[n]).

    Two keys with one hash count as written when the later one was. So a collision can only keep an entry longer.
    """
    no_values = Rows(np.zeros(0, np.uint8), np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64))
    checksums = row_checksums(keys, no_values).astype(np.uint64)
    hashes = hash_columns([keys.to_arrow()], [BinaryType()], first_seeds(len(keys)))
    return checksums << np.uint64(32) | hashes.astype(np.uint32).astype(np.uint64)


_ENDING = ".ledger"
_FORMAT = 1
_MAX_BYTES = 8 << 30
FIRST = 1  # the number of the first run of a checkpoint, and of the ledgers of a copy
_MAX_HEADER = 1 << 12
_EXPANSION, _FREE_BYTES = 16, 1 << 20  # sorted hashes of eight billion keys take four bytes each, and expand to 17
_SCHEMA = pa.schema([("key", pa.uint64()), ("written", pa.int64()), ("older", pa.bool_())])

Place = tuple[int, str, str]
"""An operator, a store and a state."""


@dataclass(frozen=True)
class LedgerFacts:
    """What a ledger belongs to: the state of ``version``, after the batch that began at ``time_ms``.

    The log of that batch has the ``digest``. ``query`` is the query's id. ``run`` has written the ledger, and
    ``number`` is the number of that run, if it has published something.
    """

    version: int
    digest: str
    time_ms: int
    query: str
    run: str
    number: int


@dataclass(frozen=True, eq=False)
class Ledger:
    """A ledger. The arrays are those of ``WrittenTimes``."""

    facts: LedgerFacts
    hashes: Hashes
    times_ms: Int64s
    older: Mask

    def to_bytes(self, path: str) -> bytes:
        """Return the content of the file that will be at ``path``."""
        stream = io.BytesIO()
        columns = [pa.array(self.hashes), pa.array(self.times_ms), pa.array(self.older)]
        batch = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(stream, _SCHEMA, options=options) as writer:
            writer.write_batch(batch)
        stream_bytes = stream.getvalue()
        facts = to_json(self.facts)
        return (
            json.dumps({"format": _FORMAT, **facts, "checksum": _checksum(path, facts, stream_bytes)}).encode()
            + b"\n"
            + stream_bytes
        )


def _checksum(path: str, facts: Mapping[str, Any], stream_bytes: bytes) -> str:
    """Return the XXH3 of everything in a ledger, and of the place where it belongs."""
    return xxhash.xxh3_128_hexdigest(json.dumps([path, facts], sort_keys=True).encode() + b"\n" + stream_bytes)


def ledger_path(snapshot: str, state: str) -> str:
    """Return the path of the ledger of a state in the partition that has the ``snapshot``."""
    # state/<operator>/<partition>[/<store>]/<file>
    _, operator, partition, *store, _ = snapshot.split("/")
    return "/".join([LEDGERS, operator, partition, *(store or ["default"]), f"{quote(state, safe='$')}{_ENDING}"])


def state_of(path: str) -> Place:
    """Return the state whose ledger has this path."""
    operator, _, store, name = path.split("/")[-4:]
    return int(operator), store, unquote(name.removesuffix(_ENDING))


def list_ledgers(files: Directory) -> list[str]:
    """Return the paths of all ledgers."""
    folders = [LEDGERS]
    for level in range(3):
        infos_of_folders = each(files, files.list, folders)
        folders = [
            f"{folder}/{info.name}"
            for folder, infos in zip(folders, infos_of_folders, strict=True)
            for info in infos
            if info.is_dir and (level == 2 or parse_number(info.name) is not None)
        ]
    infos_of_folders = each(files, files.list, folders)
    return [
        f"{folder}/{info.name}"
        for folder, infos in zip(folders, infos_of_folders, strict=True)
        for info in infos
        if info.name.endswith(_ENDING) and not info.is_dir
    ]


def read_ledger(files: Directory, path: str) -> Ledger | None:
    """Return a ledger; None if there is none, or one of a later format. Raise CorruptionError for a damaged one."""
    if files.stat(path) is None:
        return None
    data = files.read(path, _MAX_BYTES)
    header_end = data.find(b"\n", 0, _MAX_HEADER)
    try:
        header = parse_json(data[:header_end])
        if header["format"] != _FORMAT:
            return None
        stream_bytes, facts = data[header_end + 1 :], {field.name: header[field.name] for field in fields(LedgerFacts)}
        if header["checksum"] != _checksum(path, facts, stream_bytes):
            raise ValueError("it has another checksum")
        stream = pa.py_buffer(stream_bytes)
        if (size := expanded_size(stream)) > max(_FREE_BYTES, _EXPANSION * len(stream_bytes)):
            raise ValueError(f"its {len(stream_bytes):,} bytes expand to {size:,}")
        table = pa.ipc.open_stream(stream).read_all()
        # Arrow itself does not check what it reads.
        table.validate(full=True)
        if table.schema != _SCHEMA or any(column.null_count for column in table.columns):
            raise ValueError("its columns are wrong")
        hashes, times, older = (np.asarray(table.column(name)) for name in _SCHEMA.names)
        return Ledger(LedgerFacts(**facts), hashes, times, older)
    except (ValueError, KeyError, TypeError, OSError, pa.ArrowException) as error:  # Arrow raises an OSError, too
        raise CorruptionError(
            f"{files.root}/{path} is not a ledger that ttlsnap wrote ({error}). Remove the folder "
            f"{files.root}/{LEDGERS}; ttlsnap then begins new ledgers"
        ) from error
