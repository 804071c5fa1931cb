"""Writer of a snapshot of the HDFS-backed store: copied records, new values, and the end mark."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

from ttlsnap.stores.codecs import ByteSink, Compressor, Piece
from ttlsnap.stores.hdfs.entries import HdfsBatch
from ttlsnap.stores.hdfs.files import HdfsFormat
from ttlsnap.stores.hdfs.records import END
from ttlsnap.stores.row_checksums import CHECKSUM_SIZE, row_checksums
from ttlsnap.unsaferow.gather import gather_ragged, interleave
from ttlsnap.unsaferow.rows import Rows


class CountingSink:
    """Counter of bytes; if there is a ``sink``, it also passes them on and computes their digest."""

    def __init__(self, sink: ByteSink | None = None) -> None:
        self._sink, self.size = sink, 0
        self._digest = xxhash.xxh3_128()

    @property
    def digest(self) -> str:
        """The digest of all bytes passed on."""
        return self._digest.hexdigest()

    def write(self, data: Piece) -> None:
        self.size += len(data)
        if self._sink is not None:
            self._digest.update(data)
            self._sink.write(data)


class SnapshotFileWriter:
    """Writer of one snapshot file to ``sink``; ``entries`` is the number of entries written."""

    def __init__(self, sink: ByteSink, hdfs_format: HdfsFormat) -> None:
        self._format = hdfs_format
        self._stream = Compressor(sink, hdfs_format.codec)
        self._digest = xxhash.xxh3_128()
        self.entries = 0

    def copy(self, batch: HdfsBatch) -> None:
        """Write entries unchanged, including their lengths and checksums."""
        records = batch.records
        if len(records):
            self._write(gather_ragged(records.data, records.start, records.end - records.start))
            self.entries += len(records)

    def put(self, keys: Rows, values: Rows) -> None:
        """Write entries with new values, and with checksums if the store has them."""
        if not len(keys):
            return
        checksum_size = CHECKSUM_SIZE if self._format.row_checksums else 0
        self._put(keys, values, row_checksums(keys, values) if checksum_size else None)

    def put_stored(self, keys: Rows, values: Rows) -> None:
        """Write entries whose values already have their checksums."""
        if len(keys):
            self._put(keys, values, None)

    def _put(self, keys: Rows, values: Rows, sums: npt.NDArray[np.uint32] | None) -> None:
        count, checksum_size = len(keys), 0 if sums is None else CHECKSUM_SIZE
        frame = np.empty((count, 2 + bool(checksum_size)), "<u4")
        frame[:, 0] = keys.size.astype(np.uint32).byteswap()
        # As in Spark, the size includes the checksum, which has no size of its own (KeyValueChecksumEncoder).
        frame[:, 1] = (values.size + checksum_size).astype(np.uint32).byteswap()
        if sums is not None:
            frame[:, 2] = sums
        frames, place = frame.view(np.uint8).ravel(), np.arange(count, dtype=np.int64) * frame.shape[1] * 4
        data, _, _ = interleave(
            (frames, place, 4),
            (keys.data, keys.start, keys.size),
            (frames, place + 4, 4 + checksum_size),
            (values.data, values.start, values.size),
        )
        self._write(data)
        self.entries += count

    def close(self) -> str:
        """Write the end mark; return the digest of everything written, to compare with what is read back."""
        # Only this mark shows that a file is complete: the format has no count and no size.
        self._write(END)
        self._stream.close()
        return self._digest.hexdigest()

    def _write(self, data: object) -> None:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._digest.update(view)
        self._stream.write(view)
