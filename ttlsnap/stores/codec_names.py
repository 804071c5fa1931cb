"""The names of the compression codecs, apart from the codecs: a look at a checkpoint does not load those."""

from __future__ import annotations

from ttlsnap.errors import UnsupportedError

CODECS = ("lz4", "lzf", "none", "snappy", "zstd")
_CLASSES = {
    "org.apache.spark.io.LZ4CompressionCodec": "lz4",
    "org.apache.spark.io.ZStdCompressionCodec": "zstd",
    "org.apache.spark.io.SnappyCompressionCodec": "snappy",
    "org.apache.spark.io.LZFCompressionCodec": "lzf",
}


def codec_name(setting: str, where: str) -> str:
    """The short name of the codec that is pinned in ``where``; raises UnsupportedError for one that is unknown."""
    name = _CLASSES.get(setting, setting.lower())
    if name not in CODECS:
        raise UnsupportedError(
            f"{where}: state compression codec {setting!r} is unknown; known are {', '.join(CODECS)}"
        )
    return name
