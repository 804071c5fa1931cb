"""Names of the compression codecs, in a separate module so that reading a checkpoint does not load the codecs."""

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
    """Return the short name of the codec in ``setting``; ``where`` names the file that pins it, for errors.

    Raises UnsupportedError if the codec is unknown.
    """
    # The setting may be a short name in any case, or a class (Spark's CompressionCodec.createCodec).
    name = _CLASSES.get(setting, setting.lower())
    if name not in CODECS:
        raise UnsupportedError(
            f"{where}: state compression codec {setting!r} is unknown; known are {', '.join(CODECS)}"
        )
    return name
