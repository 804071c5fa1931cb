"""The ledger of a state in one partition: when each of its keys was last written, as of one version.

    _ttlsnap/written/<operator>/<partition>/<store>/<state>.ledger
        a line of JSON: format (1), digest (XXH3 of the rest), version, batch_digest, time_ms, run, last_run
        an Arrow stream, compressed: key (uint64), written (int64, milliseconds), older (bool)

It has the keys that the state has, so it is never larger than that: about ten bytes for each key.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import xxhash

from ttlsnap.errors import CorruptionError
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.storage.directory import OWN, Directory
from ttlsnap.stores.lineage import Lineage
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.written.hashing import Hashes

FOLDER = f"{OWN}/written"
_FORMAT = 1
_MAX_BYTES = 8 << 30
_MAX_HEADER = 1 << 12


@dataclass(frozen=True, eq=False)
class Ledger:
    """A ledger as of ``version``, after the batch that began at ``time_ms``; its log has the ``digest``.

    The arrays are those of ``WrittenTimes``. ``run`` has written the ledger, and ``last_run`` was the newest run of
    ttlsnap that had published something before.
    """

    version: int
    digest: str
    time_ms: int
    run: str
    last_run: str
    hashes: Hashes
    times_ms: Int64s
    older: Mask

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        stream = io.BytesIO()
        columns = [pa.array(self.hashes), pa.array(self.times_ms), pa.array(self.older)]
        batch = pa.RecordBatch.from_arrays(columns, names=["key", "written", "older"])
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(stream, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        rest = stream.getvalue()
        facts = {"version": self.version, "batch_digest": self.digest, "time_ms": self.time_ms, "run": self.run}
        head = {"format": _FORMAT, "digest": xxhash.xxh3_128_hexdigest(rest), **facts, "last_run": self.last_run}
        return json.dumps(head).encode() + b"\n" + rest


def ledger_path(lineage: Lineage, state: str) -> str:
    """Return the path of the ledger of a state in the partition whose files these are."""
    # state/<operator>/<partition>[/<store>]/<file>
    _, operator, partition, *store, _ = lineage.new_snapshot.split("/")
    return "/".join([FOLDER, operator, partition, *(store or ["default"]), f"{quote(state, safe='$')}.ledger"])


def read_ledger(files: Directory, lineage: Lineage, state: str) -> Ledger | None:
    """Return a ledger; None if there is none, or one of a later format. Raise CorruptionError for a damaged one."""
    path = ledger_path(lineage, state)
    if files.stat(path) is None:
        return None
    data = files.read(path, _MAX_BYTES)
    end = data.find(b"\n", 0, _MAX_HEADER)
    try:
        head = parse_json(data[:end])
        if head["format"] != _FORMAT:
            return None
        rest = data[end + 1 :]
        if xxhash.xxh3_128_hexdigest(rest) != head["digest"]:
            raise ValueError("its content has another digest")
        table = pa.ipc.open_stream(pa.BufferReader(rest)).read_all()
        hashes, times, older = (np.asarray(table.column(name)) for name in ("key", "written", "older"))
        return Ledger(
            version=int(head["version"]),
            digest=str(head["batch_digest"]),
            time_ms=int(head["time_ms"]),
            run=str(head["run"]),
            last_run=str(head["last_run"]),
            hashes=hashes.astype(np.uint64),
            times_ms=times.astype(np.int64),
            older=older.astype(np.bool_),
        )
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise CorruptionError(
            f"{files.root}/{path} is not a ledger that ttlsnap wrote ({error}). Remove the folder "
            f"{files.root}/{FOLDER}; ttlsnap then begins new ledgers"
        ) from error
