"""Ways to damage a checkpoint, and to write state files that no Spark would write."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from ttlsnap.checkpoint import layout
from ttlsnap.stores.codecs import Compressor, decompress

from ..samples import COMPACTABLE

NOW = "2027-06-01T00:00:00Z"
CODECS = ("lz4", "zstd", "snappy", "lzf", "none")
QUICK = ("--engine", "local", "--parallelism", "1", "--stopped", "--max-drop", "100%")


def compacting(name: str) -> tuple[str, ...]:
    """Return the options with which ``compact`` accepts the sample ``name``."""
    return ("--ttl", "1h", "--timestamp", COMPACTABLE[name], "--now", NOW, *QUICK)


def scanning(name: str) -> tuple[str, ...]:
    """Return the options with which ``inspect`` reads every entry of the sample ``name``."""
    return ("--entries", "2", "--age", "--sizes", "--timestamp", COMPACTABLE[name], "--now", NOW)


def forget_checksums(checkpoint: Path) -> Path:
    """Remove every checksum file, Hadoop's and Spark's, so that only the formats reveal damage."""
    for path in checkpoint.rglob("*.crc"):
        path.unlink()
    return checkpoint


def seal(path: Path, step: int = 512) -> None:
    """Write Hadoop's checksum file for the current content of ``path``."""
    data = path.read_bytes()
    sums = [zlib.crc32(data[i : i + step]) for i in range(0, len(data), step)]
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + struct.pack(f">i{len(sums)}I", step, *sums))


def flipped(data: bytes, bit: int) -> bytes:
    """Return ``data`` with one bit flipped."""
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def damages(data: bytes, rng: random.Random, each: int) -> Iterator[tuple[str, bytes]]:
    """Yield labelled damage: the file emptied, replaced, and ``each`` truncations, bit flips and random stretches."""
    yield "emptied", b""
    yield "replaced by random bytes", rng.randbytes(max(1, len(data)))
    for _ in range(each):
        size = rng.randrange(len(data))
        yield f"cut at byte {size}", data[:size]
        bit = rng.randrange(8 * len(data))
        yield f"bit {bit} flipped", flipped(data, bit)
        start = rng.randrange(len(data))
        noise = rng.randbytes(rng.randrange(1, 9))
        yield f"{noise!r} at byte {start}", data[:start] + noise + data[start + len(noise) :]


def record(key: bytes, value: bytes | None) -> bytes:
    """Return one record of a state file. A value of None deletes the key."""
    head = struct.pack(">i", len(key)) + key
    return head + (struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value)


END = struct.pack(">i", -1)


def packed(raw: bytes, codec: str) -> bytes:
    """Return ``raw`` as a stream of ``codec``."""
    sink = io.BytesIO()
    compressor = Compressor(sink, codec)
    compressor.write(raw)
    compressor.close()
    return sink.getvalue()


def unpacked(path: Path, codec: str) -> bytes:
    """Return the decompressed content of a state file."""
    with path.open("rb") as file:
        return b"".join(decompress(file, codec, str(path)))


def state_files(checkpoint: Path) -> list[Path]:
    """Return every delta and snapshot."""
    return sorted(path for path in checkpoint.glob("state/*/*/*") if layout.parse_state_file(path.name))


def recode(checkpoint: Path, old: str, new: str) -> Path:
    """Rewrite every state file with another codec, set that codec in the logs, and remove the checksum files."""
    forget_checksums(checkpoint)
    for path in state_files(checkpoint):
        path.write_bytes(packed(unpacked(path, old), new))
    edit_offsets(checkpoint, f'compression.codec":"{old}"', f'compression.codec":"{new}"')
    return checkpoint


def edit_offsets(checkpoint: Path, old: str, new: str) -> None:
    """Replace a piece of text in the files of the offset log, and remove their checksum files."""
    for path in sorted((checkpoint / "offsets").glob("[0-9]*")):
        edit(path, old, new)


def edit(path: Path, old: str, new: str) -> None:
    """Replace a piece of text in a file, and remove its checksum file."""
    text = path.read_bytes()
    assert old.encode() in text, (path, old)
    path.write_bytes(text.replace(old.encode(), new.encode("utf-8", "surrogateescape")))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def utf(text: str | bytes) -> bytes:
    """Return the bytes of Java's ``writeUTF`` for a text of plain characters."""
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack(">H", len(data)) + data


def schema_file(key: str | bytes, value: str | bytes, version: str = "v2") -> bytes:
    """Return a state schema file in the format of version 2, labelled with any version."""
    one = struct.pack(">i", 1)
    return utf(version) + one + utf(key) + one + utf(value)
