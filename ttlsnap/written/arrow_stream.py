"""How many bytes the buffers of an Arrow stream expand to, read before Arrow reserves memory for them.

    stream   := message*           each a table of FlatBuffers, and a body
    Message  := version, header type, header, body length
    header   := RecordBatch := rows, nodes, buffers, compression, ...
    buffer   := offset: int64, length: int64       a place in the body
    body     at the offset of a compressed buffer: size: int64, and the compressed bytes; -1 if they are not compressed

Source: Arrow's ``Message.fbs`` and ``Schema.fbs``, and the internals of FlatBuffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

_HEADER, _BUFFERS, _COMPRESSION = 2, 2, 3  # the numbers of fields in their tables
_BUFFER = struct.Struct("<qq")


def expanded_size(stream: pa.Buffer) -> int:
    """Return the bytes of all buffers of a stream. Raise ValueError or ``pa.ArrowException`` for another form."""
    total_size = 0
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)):
        if message.type == "record batch":
            try:
                total_size += sum(_sizes(memoryview(message.metadata), memoryview(message.body)))
            except struct.error as error:
                raise ValueError(f"a message is truncated ({error})") from error
    return total_size


def _sizes(metadata: memoryview, body: memoryview) -> Iterator[int]:
    (root,) = struct.unpack_from("<I", metadata)
    batch = _follow(metadata, _field(metadata, root, _HEADER))
    is_compressed = _field(metadata, batch, _COMPRESSION) is not None
    vector = _follow(metadata, _field(metadata, batch, _BUFFERS))
    (count,) = struct.unpack_from("<I", metadata, vector)
    for number in range(count):
        offset, length = _BUFFER.unpack_from(metadata, vector + 4 + number * _BUFFER.size)
        if length < 0 or offset < 0:
            raise ValueError("a buffer has a negative place")
        if is_compressed and length:
            (size,) = struct.unpack_from("<q", body, offset)
            length = length if size == -1 else size
        if length < 0:
            raise ValueError("a buffer has a negative size")
        yield length


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """Return the position of a table's field; None if the table does not have it."""
    (distance,) = struct.unpack_from("<i", metadata, table)
    # In FlatBuffers, a table begins with the distance to the list of its fields' places.
    fields = table - distance
    if fields < 0:
        raise ValueError("a table of a message is not where it should be")
    (list_size,) = struct.unpack_from("<H", metadata, fields)
    position = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", metadata, fields + position) if position < list_size else (0,)
    return table + offset if offset else None


def _follow(metadata: memoryview, field: int | None) -> int:
    """Return the position of the table or vector that a field refers to."""
    if field is None:
        raise ValueError("a message lacks a part")
    (offset,) = struct.unpack_from("<I", metadata, field)
    return int(field + offset)
