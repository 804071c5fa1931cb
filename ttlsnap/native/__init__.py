"""A library in C (``kernels.c``) for what array code is slow at: loops over the bytes of pieces of many sizes.

The library is optional. It is compiled when ttlsnap is installed, if there is a C compiler. Without it, or with
``TTLSNAP_NATIVE=0``, array code gives the same results. Callers ask ``is_available`` and have that array code beside
the call. ``TTLSNAP_NATIVE=1`` is for tests of small state (see ``is_wanted``).

The functions for batches are in ``loops``. They need NumPy, which ``inspect`` does not load.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

SETTING = "TTLSNAP_NATIVE"
_LIBRARY = Path(__file__).with_name("kernels.so.1")


@cache
def is_available() -> bool:
    """Return whether the library was compiled, and is not switched off."""
    return os.environ.get(SETTING) != "0" and _LIBRARY.exists()


def is_wanted() -> bool:
    """Return whether C code shall be used even where loading it takes longer than the work."""
    return os.environ.get(SETTING) == "1"


def find_wrong_crc(data: bytes, step: int, checksums: bytes) -> int | None:
    """Return the index of the first piece of ``step`` bytes whose CRC32 is not the expected one, big-endian."""
    if len(checksums) != 4 * -(-len(data) // step):
        raise ValueError("there is not one CRC for each piece")
    place: int = load_library().find_wrong_crc(data, len(data), step, checksums)
    return None if place < 0 else place


@cache
def load_library() -> ctypes.CDLL:
    """Return the library, with the types of its functions."""
    library = ctypes.CDLL(str(_LIBRARY))
    address, number = ctypes.c_void_p, ctypes.c_int64
    library.find_records.argtypes = [address, number, *[address] * 5]
    library.find_records.restype = number
    library.find_outside.argtypes = [address, address, number, number]
    library.find_outside.restype = number
    library.gather.argtypes = [*[address] * 3, number, address]
    library.hash_pieces.argtypes = [*[address] * 3, number, address]
    library.murmur3_pieces.argtypes = [*[address] * 3, number, address, address]
    library.find_keys.argtypes = [*[address] * 4, number, *[address] * 4, number, address, ctypes.c_int32, address]
    library.join_checksums.argtypes = [*[address] * 6, number, ctypes.c_int32, address]
    library.decompress_blocks.argtypes = [address, number, address, number, address, address]
    library.decompress_blocks.restype = number
    library.compress_blocks.argtypes = [address, number, number, number, ctypes.c_int, *[address] * 4]
    library.compress_blocks.restype = number
    library.find_wrong_crc.argtypes = [ctypes.c_char_p, number, number, ctypes.c_char_p]
    library.find_wrong_crc.restype = number
    library.read_entries.argtypes = [*[address] * 3, number, number, *[address] * 5]
    library.read_entries.restype = number
    library.put_entries.argtypes = [*[address] * 8, number, address]
    library.put_entries.restype = number
    return library
