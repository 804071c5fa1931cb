"""Ways to damage a checkpoint at random: each changes one or a few files, and returns a description.

``damage(rng, target)`` applies one to several of them. The checksum files beside a changed file are also treated at
random: they stay (and contradict the file), are removed, or are rewritten to match.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ttlsnap.errors import TtlsnapError

from . import wreck

SEALS = ("stale", "stale", "removed", "removed", "written anew", "written anew")
NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    7,
    255,
    1 << 15,
    1 << 16,
    2**31 - 1,
    2**31 - 4,
    -(2**31),
    2**31,
    50_000_000,
    2**63 - 1,
    -(2**63),
)
TEXTS = (
    "",
    "0",
    "-1",
    "9" * 30,
    "v1",
    "..",
    "../../x",
    "/",
    "\0",
    "\u00e9",
    "x" * 5000,
    "lz4",
    "hdfs",
    "NaN",
    "default",
)
NOISE = (b"\0", b"\xff" * 4, b"9" * 30, b"{", b"\n", b"\x7f" + b"\xff" * 7, b"\xff" * 8, b"\0" * 8)


class Impossible(Exception):
    """An error: the mutation does not fit the chosen file."""


def regular(target: Path, pattern: str = "") -> list[Path]:
    """Return the regular files whose path matches, except the logs of sources."""
    found = sorted(path for path in target.rglob("*") if not path.is_symlink() and path.is_file())
    return [p for p in found if "sources" not in p.parts and re.search(pattern, str(p.relative_to(target)))]


def choose(rng: random.Random, target: Path, pattern: str = "") -> Path:
    """Return one file. State and logs are more likely than checksum files."""
    files = regular(target, pattern)
    likely = [path for path in files if not path.name.endswith(".crc")]
    if not files:
        raise Impossible
    return rng.choice(likely if likely and rng.random() < 0.8 else files)


def seal(rng: random.Random, path: Path) -> str:
    """Treat the checksum files beside a changed file. Return what was done to them."""
    hadoop, spark = path.with_name(f".{path.name}.crc"), path.with_name(f"{path.name}.crc")
    how = rng.choice(SEALS)
    if not (hadoop.is_file() or spark.is_file()) or not path.is_file():
        return "no checksum"
    if how == "removed":
        hadoop.unlink(missing_ok=True)
    elif how == "written anew" and hadoop.is_file():
        wreck.seal(path)
    if how != "stale" and spark.is_file():
        spark.unlink()
        spark.with_name(f".{spark.name}.crc").unlink(missing_ok=True)
    return f"checksum {how}"


def _rewrite(rng: random.Random, path: Path, data: bytes) -> str:
    if data == path.read_bytes():
        raise Impossible
    path.write_bytes(data)
    return seal(rng, path)


def _place(rng: random.Random, data: bytes) -> int:
    """Return a place in a file, more often near its ends, where headers and indexes are."""
    where = rng.random()
    if where < 0.2:
        return rng.randrange(min(len(data), 64) + 1)
    if where < 0.4:
        return len(data) - rng.randrange(min(len(data), 64) + 1)
    return rng.randrange(len(data) + 1)


def flip_bits(rng: random.Random, target: Path) -> str:
    path = choose(rng, target)
    data = path.read_bytes()
    if not data:
        raise Impossible
    for _ in range(rng.choice((1, 1, 1, 8))):
        data = wreck.flipped(data, min(8 * _place(rng, data) + rng.randrange(8), 8 * len(data) - 1))
    return f"{path.name}, {_rewrite(rng, path, data)}"


def insert_bytes(rng: random.Random, target: Path) -> str:
    path = choose(rng, target)
    data = path.read_bytes()
    place = _place(rng, data)
    return f"{path.name}, {_rewrite(rng, path, data[:place] + rng.choice((*NOISE, rng.randbytes(9))) + data[place:])}"


def cut_bytes(rng: random.Random, target: Path) -> str:
    path = choose(rng, target)
    data = path.read_bytes()
    place, size = _place(rng, data), rng.choice((1, 4, 8, 100, 1 << 20))
    return f"{path.name}, {_rewrite(rng, path, data[:place] + data[place + size :])}"


def overwrite_bytes(rng: random.Random, target: Path) -> str:
    path = choose(rng, target)
    data = path.read_bytes()
    place, noise = _place(rng, data), rng.choice((*NOISE, rng.randbytes(8)))
    return f"{path.name}, {_rewrite(rng, path, data[:place] + noise + data[place + len(noise) :])}"


def set_length(rng: random.Random, target: Path) -> str:
    path = choose(rng, target, r"\.(delta|snapshot|changelog|zip|sst|crc)$|schema|_metadata/")
    data = bytearray(path.read_bytes())
    if len(data) < 4:
        raise Impossible
    place = rng.choice((rng.randrange(0, len(data) - 3), rng.randrange(0, len(data) - 3) & ~3))
    struct.pack_into(rng.choice((">I", "<I")), data, place, rng.choice(NUMBERS) & 0xFFFFFFFF)
    return f"{path.name} at {place}, {_rewrite(rng, path, bytes(data))}"


def swap_stretches(rng: random.Random, target: Path) -> str:
    path = choose(rng, target)
    data = path.read_bytes()
    one, two = sorted((_place(rng, data), _place(rng, data)))
    return f"{path.name}, {_rewrite(rng, path, data[two:] + data[one:two] + data[:one])}"


def splice(rng: random.Random, target: Path) -> str:
    path, other = choose(rng, target), choose(rng, target)
    one, two = path.read_bytes(), other.read_bytes()
    return f"{path.name} and {other.name}, {_rewrite(rng, path, one[: _place(rng, one)] + two[_place(rng, two) :])}"


def exchange(rng: random.Random, target: Path) -> str:
    """Put a whole file in the place of another of its kind."""
    path = choose(rng, target)
    alike = [p for p in regular(target) if p.suffix == path.suffix and p != path]
    if not alike:
        raise Impossible
    other = rng.choice(alike)
    return f"{other.relative_to(target)} over {path.relative_to(target)}, {_rewrite(rng, path, other.read_bytes())}"


def copy_beside(rng: random.Random, target: Path) -> str:
    source, place = choose(rng, target), choose(rng, target)
    kind = rng.choice(("", ".delta", ".snapshot", ".zip", ".changelog"))
    name = rng.choice((source.name, f"{rng.randrange(12)}{kind}"))
    if os.path.lexists(place.with_name(name)):
        raise Impossible
    shutil.copy(source, place.with_name(name))
    return f"{source.name} as {place.with_name(name).relative_to(target)}"


def delete_file(rng: random.Random, target: Path) -> str:
    path = choose(rng, target)
    path.unlink()
    if rng.random() < 0.5:
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return str(path.relative_to(target))


def delete_folder(rng: random.Random, target: Path) -> str:
    folders = sorted(path for path in target.rglob("*") if path.is_dir() and not path.is_symlink())
    path = rng.choice(folders)
    shutil.rmtree(path)
    return str(path.relative_to(target))


def empty_file(rng: random.Random, target: Path) -> str:
    path = choose(rng, target)
    return f"{path.name}, {_rewrite(rng, path, b'')}"


def special_file(rng: random.Random, target: Path) -> str:
    """Put a FIFO, a socket, a folder or a link in the place of a file, or beside it."""
    path = choose(rng, target)
    kind = rng.choice(("fifo", "socket", "folder", "loop", "dangling", "inside", "outside", "zero", "up"))
    if rng.random() < 0.25:
        path = path.with_name(rng.choice((f"{rng.randrange(12)}", f"{rng.randrange(12)}.snapshot", "x")))
        if os.path.lexists(path):
            raise Impossible
    else:
        path.rename(keep := target / "elsewhere")
        if kind != "inside":
            keep.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket has at most 107 bytes
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
        os.chdir(here)
    elif kind == "folder":
        path.mkdir()
    else:
        inside = str(target / "elsewhere")
        to = {
            "loop": path.name,
            "dangling": "nowhere",
            "inside": inside,
            "outside": "/etc/hostname",
            "zero": "/dev/zero",
        }
        path.symlink_to(to.get(kind, ".."))
    return f"{kind} for {path.relative_to(target)}"


def codec_of(target: Path) -> str:
    """Return the codec of the state files from the logs."""
    logs = "".join(path.read_text(errors="replace") for path in regular(target, r"^offsets/[0-9]+$"))
    found = re.search(r'compression\.codec":"(\w+)"', logs)
    return found[1] if found else "lz4"


def recompress(rng: random.Random, target: Path) -> str:
    """Change the records of a state file and repack them, so that the checksums of their stream are right."""
    path = choose(rng, target, r"\.(delta|snapshot|changelog)$")
    codec = codec_of(target)
    try:
        raw = bytearray(wreck.unpacked(path, codec))
    except (TtlsnapError, KeyError) as error:
        raise Impossible from error
    how = rng.choice(("flip", "flip", "length", "cut", "double", "swap", "empty"))
    if len(raw) < 16 or codec not in wreck.CODECS:
        raise Impossible
    place = rng.randrange(0, len(raw) - 8) & ~3
    if how == "flip":
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif how == "length":
        struct.pack_into(">i", raw, place, rng.choice((*NUMBERS[:11], 16, 24, 32)))
    elif how == "cut":
        del raw[place : place + rng.choice((4, 8, 40))]
    elif how == "double":
        raw[place:place] = raw[place : place + rng.choice((4, 8, 40))]
    elif how == "swap":
        raw[place : place + 8] = raw[place + 4 : place + 8] + raw[place : place + 4]
    else:
        raw[:] = wreck.END
    return f"{path.name} {how} at {place}, {_rewrite(rng, path, wreck.packed(bytes(raw), codec))}"


def change_json(rng: random.Random, target: Path) -> str:
    """Give a field another value in a log, in metadata, or in a file of a run."""
    path = choose(rng, target, r"^(offsets|commits)/[0-9]+$|^metadata$|_metadata/(metadata|v2/)|\.json$|\.crc$")
    try:
        lines = path.read_text().split("\n")
        number = rng.choice([i for i, line in enumerate(lines) if line[:1] == "{"] or [-1])
        text = "\n".join(lines[number:]) if path.suffix == ".json" else lines[number]
        document = json.loads(text)
    except (ValueError, IndexError) as error:
        raise Impossible from error
    how = _change(rng, document)
    text = json.dumps(document, separators=(",", ":"))
    if rng.random() < 0.05:
        text = text.replace(":", rng.choice((":[" * 500, ":1e400,", ":NaN,", ':"\\ud800",')), 1)
    lines[number:] = [text] if path.suffix == ".json" else [text, *lines[number + 1 :]]
    return f"{path.relative_to(target)} {how}, {_rewrite(rng, path, chr(10).join(lines).encode())}"


def _change(rng: random.Random, document: Any) -> str:
    places = list(_places(document))
    if not places:
        raise Impossible
    holder, key = rng.choice(places)
    old = holder[key]
    values: list[Any] = [*NUMBERS, *TEXTS, None, True, False, [], {}, 1.5, 10**400, [[]], {"x": 1}]
    if isinstance(old, str) and old[:1] in "{[" and rng.random() < 0.7:  # JSON within JSON
        inner = json.loads(old)
        how = _change(rng, inner)
        holder[key] = json.dumps(inner)
        return f"{key}: {how}"
    if isinstance(old, int) and rng.random() < 0.5:
        values = [old + 1, old - 1, -old, old * 1000, *NUMBERS]
    if isinstance(old, str) and rng.random() < 0.3:
        values = [old[1:], old + "x", old.upper(), *("".join(rng.sample(old, len(old))) for _ in range(2))]
    action = rng.random()
    if action < 0.15:
        del holder[key]
        return f"without {key}"
    if action < 0.25 and isinstance(holder, list):
        holder.append(old)
        return f"{key} twice"
    holder[key] = new = rng.choice(values)
    return f"{key}: {str(old)[:30]} -> {str(new)[:30]}"


def _places(value: Any) -> list[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in list(items) for place in [(value, key), *_places(inner)]]


def change_digit(rng: random.Random, target: Path) -> str:
    path = choose(rng, target, r"^(offsets|commits)/[0-9]+$|^metadata$|_metadata|schema|\.json$")
    data = path.read_bytes()
    digits = [i for i in range(len(data)) if data[i : i + 1].isdigit()]
    if not digits:
        raise Impossible
    i, new = rng.choice(digits), rng.choice((b"0", b"-1", b"9" * 18, b"9" * 5000, b"1e400", b"null", b'"2"', b"[]"))
    return f"{path.relative_to(target)} at {i}, {_rewrite(rng, path, data[:i] + new + data[i + 1 :])}"


def change_zip(rng: random.Random, target: Path) -> str:
    """Change a member of a zip, and keep the checksums of the zip right."""
    path = choose(rng, target, r"\.zip$")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise Impossible from error
    if not members:
        raise Impossible
    i = rng.randrange(len(members))
    name, data = members[i]
    how = rng.choice(("json", "json", "json", "flip", "cut", "drop", "double", "rename", "empty", "long"))
    if how == "json":
        i = next((i for i, (name, _) in enumerate(members) if name == "metadata"), i)
        name, data = members[i]
        head, _, body = data.partition(b"\n")
        try:
            document = json.loads(body)
        except ValueError as error:
            raise Impossible from error
        how = _change(rng, document)
        members[i] = name, head + b"\n" + json.dumps(document).encode()
    elif how == "flip" and data:
        members[i] = name, wreck.flipped(data, rng.randrange(8 * len(data)))
    elif how == "cut":
        members[i] = name, data[: _place(rng, data)]
    elif how == "drop":
        del members[i]
    elif how == "double":
        members.append(members[i])
    elif how == "rename":
        members[i] = rng.choice(("../x", "x", "OPTIONS-000001", "a/b", "000099.log", "MANIFEST-000099", "/x")), data
    elif how == "long":
        members[i] = name, data + bytes(rng.choice((10, 5000, 20 << 20)))
    else:
        members[i] = name, b""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return f"{path.name} {name} {how}, {_rewrite(rng, path, sink.getvalue())}"


def change_table(rng: random.Random, target: Path) -> str:
    """Change a block of an SST file."""
    path = choose(rng, target, r"\.sst$")
    data = path.read_bytes()
    if not data:
        raise Impossible
    if rng.random() < 0.6:
        data = wreck.flipped(data, rng.randrange(8 * len(data)))
    else:
        start, size = rng.randrange(len(data)), rng.choice((1, 4, 16, 500))
        data = data[:start] + rng.randbytes(min(size, len(data) - start)) + data[start + size :]
    return f"{path.name}, {_rewrite(rng, path, data)}"


Mutation = Callable[[random.Random, Path], str]
MUTATIONS: tuple[Mutation, ...] = (
    *(flip_bits, flip_bits, insert_bytes, cut_bytes, overwrite_bytes, set_length, set_length, swap_stretches, splice),
    *(exchange, copy_beside, delete_file, delete_folder, empty_file, special_file, special_file),
    *(recompress, recompress, recompress, change_json, change_json, change_json, change_json, change_digit),
    *(change_zip, change_zip, change_table),
)


def damage(rng: random.Random, target: Path) -> list[str]:
    """Apply one to four mutations. Return what was done."""
    wanted = rng.choice((1, 1, 1, 1, 2, 4))
    done: list[str] = []
    for _ in range(50):
        if len(done) == wanted or not regular(target):
            break
        mutation = rng.choice(MUTATIONS)
        try:
            done.append(f"{mutation.__name__}: {mutation(rng, target)}")
        except Impossible:
            continue
    return done
