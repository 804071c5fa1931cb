"""State schema files: the key and value schemas of a store's column families.

    file    := utf("v1") utf(key JSON) utf(value JSON)                                  Spark 3.1
             | utf("v2") text(key JSON) text(value JSON)                                Spark 3.2 on
             | utf("v3") int32 count family*                                            Spark 4.0 on
    family  := utf(name) int16 key schema id, text(key JSON), int16 value schema id, text(value JSON)
               text(key encoder JSON) text(user key JSON)
    text    := int32 chunks, utf*
    utf     := uint16 length, bytes in Java's modified UTF-8        (all integers big-endian)

Before Spark 3.1 there are no such files. Source: Spark's ``SchemaHelper``; for v3, files of Spark 4.0 to 4.2.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ttlsnap.checkpoint.file_checksums import read_checked
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.schema.fields import as_nullable
from ttlsnap.schema.json import dump_type, parse_struct
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.schema.types import StructType
from ttlsnap.storage.directory import Directory

DEFAULT_FAMILY = "default"
MAX_SCHEMA_BYTES = 64 << 20
_MAX_UTF = 65535  # bytes of a ``utf``
# What Spark writes for a family that is not a map (SchemaHelper.SchemaV3Writer), with four spaces.
_NO_USER_KEY = "{    }"
_CHUNK = 8192  # characters; each takes at most 6 bytes


@dataclass(frozen=True)
class ColumnFamilySchema:
    """Schemas of one column family; ``key_encoder`` is Spark's JSON object, None before v3.

    An Avro row names, by id, the schema that it was written with. ``older`` has the earlier versions of this schema.
    """

    name: str
    key: StructType
    value: StructType
    key_encoder: dict[str, Any] | None = None
    user_key: StructType | None = None
    key_id: int = 0
    value_id: int = 0
    older: tuple[ColumnFamilySchema, ...] = ()


def read_state_schema(files: Directory, path: str) -> tuple[ColumnFamilySchema, ...] | None:
    """Return the column families that ``path`` describes, or None if there is no such file.

    Raises CorruptionError for damage, UnsupportedError for an unknown version or type.
    """
    if files.stat(path) is None:
        return None
    reader = _Reader(read_checked(files, path, MAX_SCHEMA_BYTES), f"{files.root}/{path}")
    version = reader.utf()
    match version:
        case "v1":
            families = [ColumnFamilySchema(DEFAULT_FAMILY, reader.struct(reader.utf()), reader.struct(reader.utf()))]
        case "v2":
            families = [ColumnFamilySchema(DEFAULT_FAMILY, reader.struct(reader.text()), reader.struct(reader.text()))]
        case "v3":
            families = [_family(reader) for _ in range(reader.count(4))]
        case _ if version.startswith("v") and version[1:].isdigit():
            raise UnsupportedError(f"{reader.where}: state schema version {version!r} is unknown (known: v1 to v3)")
        case _:
            raise CorruptionError(f"{reader.where}: not a state schema file (it begins with {version[:20]!r})")
    reader.end()
    return tuple(families)


def _family(reader: _Reader) -> ColumnFamilySchema:
    name = reader.utf()
    key_id, key = reader.short(), reader.struct(reader.text())
    value_id, value = reader.short(), reader.struct(reader.text())
    encoder, text = reader.json(), reader.text()
    # An empty object in place of a schema: the family is not a map.
    user_key = reader.struct(text) if text.strip("{} ") else None
    return ColumnFamilySchema(name, key, value, encoder, user_key, key_id, value_id)


def with_schemas(
    files: Directory,
    path: str,
    schemas: Mapping[str, ColumnFamilySchema],
    removed: Collection[str] = (),
    added: Collection[ColumnFamilySchema] = (),
) -> bytes:
    """Return the state schema file ``path`` with other names and schemas of column families, given by the old names.

    What they say of key encoders stays as it is. The families ``removed`` are not in it, and those ``added`` are.

    Raises as ``read_state_schema`` does.
    """
    reader = _Reader(read_checked(files, path, MAX_SCHEMA_BYTES), f"{files.root}/{path}")
    version = reader.utf()
    if version != "v3":
        write = _utf if version == "v1" else _text
        new_schema = schemas[DEFAULT_FAMILY]
        return _utf(version) + write(dump_type(new_schema.key)) + write(dump_type(new_schema.value))
    families = []
    for _ in range(reader.count(4)):
        name = old_name = reader.utf()
        key_id, key, value_id, value = reader.short(), reader.text(), reader.short(), reader.text()
        if name in schemas:
            new_schema = schemas[name]
            name, key, value = new_schema.name, dump_type(new_schema.key), dump_type(new_schema.value)
        encoder, user_key = reader.text(), reader.text()
        if old_name not in removed:
            families.append((name, _family_bytes(name, key_id, key, value_id, value, encoder, user_key)))
    families += [(family.name, _bytes_of(family)) for family in added]
    if removed or added:
        families.sort()  # Spark's own order
    return _utf(version) + struct.pack(">i", len(families)) + b"".join(data for _, data in families)


def as_nullable_schema(data: bytes, where: str) -> bytes:
    """Return a state schema file of version 1 or 2 in which every column may be null. ``where`` is for errors.

    Raises as ``read_state_schema`` does.
    """
    reader = _Reader(data, where)
    version = reader.utf()
    if version not in ("v1", "v2"):
        raise UnsupportedError(f"{where}: state schema version {version!r} was not expected here")
    read, write = (reader.utf, _utf) if version == "v1" else (reader.text, _text)
    texts = [write(dump_type(as_nullable(reader.struct(read())))) for _ in ("key", "value")]
    reader.end()
    return _utf(version) + b"".join(texts)


def new_schemas(families: Collection[ColumnFamilySchema]) -> bytes:
    """Return a state schema file of version 3 with these families, in this order."""
    return _utf("v3") + struct.pack(">i", len(families)) + b"".join(map(_bytes_of, families))


def _bytes_of(family: ColumnFamilySchema) -> bytes:
    encoder = json.dumps(family.key_encoder, separators=(",", ":"))
    texts = (dump_type(family.key), family.value_id, dump_type(family.value), encoder, _NO_USER_KEY)
    return _family_bytes(family.name, family.key_id, *texts)


def _family_bytes(name: str, key_id: int, key: str, value_id: int, value: str, encoder: str, user_key: str) -> bytes:
    pieces = [_utf(name), struct.pack(">h", key_id), _text(key), struct.pack(">h", value_id), _text(value)]
    return b"".join([*pieces, _text(encoder), _text(user_key)])


def _text(text: str) -> bytes:
    # Java's writeUTF fails beyond 65535 bytes. Spark cuts after 65535 characters, which are more bytes if not all are
    # ASCII.
    pieces = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
    return struct.pack(">i", len(pieces)) + b"".join(map(_utf, pieces))


def _utf(text: str) -> bytes:
    data = encode_modified_utf8(text)
    # Spark 3.1.1 itself could not write such a schema. That is why there is a version 2.
    if len(data) > _MAX_UTF:
        raise UnsupportedError(f"a schema of {len(data):,} bytes does not fit into a state schema file of version 1")
    return struct.pack(">H", len(data)) + data


def encode_modified_utf8(text: str) -> bytes:
    """Return the bytes that Java's ``writeUTF`` would write; see ``decode_modified_utf8``."""
    pairs = "".join(
        character
        if ord(character) < 0x10000
        else "".join(map(chr, struct.unpack(">HH", character.encode("utf-16-be"))))
        for character in text
    )
    return pairs.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


class _Reader:
    """Java's DataInput over bytes; every length is checked against the remaining bytes."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.position = data, where, 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise CorruptionError(
                f"{self.where} is truncated: {size} bytes expected at byte {self.position} of {len(self.data)}"
            )
        piece, self.position = self.data[self.position : end], end
        return piece

    def count(self, least_size: int) -> int:
        (value,) = struct.unpack(">i", self.take(4))
        if not 0 <= value <= (len(self.data) - self.position) // least_size:
            raise CorruptionError(f"{self.where}: impossible count {value} at byte {self.position - 4}")
        return int(value)

    def short(self) -> int:
        (value,) = struct.unpack(">h", self.take(2))
        return int(value)

    def utf(self) -> str:
        (size,) = struct.unpack(">H", self.take(2))
        return decode_modified_utf8(self.take(size), self.where)

    def text(self) -> str:
        return "".join(self.utf() for _ in range(self.count(2)))

    def struct(self, text: str) -> StructType:
        try:
            return parse_struct(text)
        except (CorruptionError, UnsupportedError) as error:
            raise type(error)(f"{self.where}: {error}") from error

    def json(self) -> dict[str, Any]:
        text = self.text()
        try:
            value = parse_json(text)
        except ValueError as error:
            raise CorruptionError(f"{self.where}: a key encoder is not JSON ({error})") from error
        if not isinstance(value, dict):
            raise CorruptionError(f"{self.where}: a key encoder is not a JSON object")
        return value

    def end(self) -> None:
        if self.position != len(self.data):
            raise CorruptionError(f"{self.where}: {len(self.data) - self.position} bytes follow the end of the schema")


def decode_modified_utf8(data: bytes, where: str) -> str:
    """Return the text that Java's ``readUTF`` would return; raises CorruptionError for other bytes.

    Modified UTF-8 is like UTF-8, but NUL takes two bytes and characters of the astral planes are surrogate pairs.
    """
    try:
        text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise CorruptionError(f"{where}: a text is not modified UTF-8 (byte {error.start})") from error
