"""Large checkpoints: the entries of a real one several times, each time with other keys.

Spark takes minutes and gigabytes of heap for 20M entries. Here each state file of a checkpoint that Spark wrote is
read, and written once for each tile with ttlsnap's own compressor. The first four bytes of each key's string (``user``)
become the tile's number. Spark would put some of these entries into other partitions, which makes no difference here.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from ttlsnap.stores.codecs import Compressor, decompress
from ttlsnap.stores.hdfs.records import END

_ENTRY = 72
_STRING_AT = 4 + 8 + 8  # after the key's length, its null bits, and the offset and size of the string


def tiled(source: Path, target: Path, tiles: int, *, snapshots: bool = True) -> Path:
    """Make the checkpoint ``target`` with ``tiles`` times the entries of ``source``; optionally, omit its snapshots."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.delta", "*.snapshot", ".*.crc"))
    for file in source.glob("state/0/*/*.*"):
        if file.suffix == ".delta" or (file.suffix == ".snapshot" and snapshots):
            _tile(file, target / file.relative_to(source), tiles)
    return target


def _tile(source: Path, target: Path, tiles: int) -> None:
    with source.open("rb") as file:
        raw = b"".join(decompress(file, "lz4", str(source)))
    entries = np.frombuffer(raw[: -len(END)], np.uint8).reshape(-1, _ENTRY).copy()
    if not (entries[:, _STRING_AT : _STRING_AT + 4] == np.frombuffer(b"user", np.uint8)).all():
        raise ValueError(f"{source} does not hold entries of {_ENTRY} bytes whose keys begin with user")
    with target.open("wb") as sink:
        stream = Compressor(sink, "lz4")
        for tile in range(tiles):
            entries[:, _STRING_AT : _STRING_AT + 4] = np.frombuffer(b"%04d" % tile, np.uint8)
            stream.write(entries.data)
        stream.write(END)
        stream.close()
