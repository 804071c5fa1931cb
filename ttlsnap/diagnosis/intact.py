"""Files that do not match the checksum that Spark recorded for them, and that other checksums prove to be intact.

Spark 4.1 writes ``name.crc`` beside every state file. Spark 4.2 and later versions do so only in checkpoint format 2.
So if a batch of 4.1 runs again and they write its files again, the old checksum files stay. They ignore these. Spark
4.1 fails on them, and so does ttlsnap.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from ttlsnap.checkpoint import layout
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.codecs import decompress
from ttlsnap.stores.rocksdb.archive import extract


def is_intact(files: Directory, path: str, codec: str, scratch: str | None) -> bool:
    """Return whether checksums prove that a state file, apart from Spark's checksum file, is as it was written.

    These are Hadoop's checksum file, which is verified before Spark's, those within a zip, and those of LZ4 blocks.
    """
    hadoop_checksum, _ = layout.checksum_files(path)
    if files.stat(hadoop_checksum) is not None:
        return True
    try:
        if path.endswith(".zip"):
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                extract(files, path, Path(folder))
            return True
        if codec == "lz4":
            with files.open(path) as file:
                for _ in decompress(file, codec, f"{files.root}/{path}"):
                    pass
            return True
    except (CorruptionError, UnsupportedError):
        return False
    return False
