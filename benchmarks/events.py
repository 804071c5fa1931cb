"""The events of the measured checkpoints, as Arrow tables, made from the numbers of entries.

Every event has ``at`` and ``amount``. By the shape's ``keys``, it also has

    12 characters         ``key``: a string
    7 to 43 characters    ``key``: a string
    visits                ``tenant``, ``country``, ``user``, ``url`` and ``price``, as real logs have them

Lengths in ``visits``: tenants 4 to 20 characters, and a few of them have most of the events; users 8, 12 or 36
characters, one in ten is null; pages 24 to 200 characters, most of them short. One country in twenty and one price in
ten is null.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Keys = Literal["12 characters", "7 to 43 characters", "visits"]
Numbers = npt.NDArray[np.int64]

SCHEMAS: dict[Keys, str] = {
    "12 characters": "key string, at timestamp, amount long",
    "7 to 43 characters": "key string, at timestamp, amount long",
    "visits": (
        "tenant string, country string, user string, url string, price decimal(12,2), at timestamp, amount long"
    ),
}

_TENANTS = 200
_COUNTRIES = pa.array(["DE", "US", "IN", "BR", "JP", "FR", "NG", "ID", None])
_WORDS = ("account", "cart", "checkout", "news", "item", "search", "review", "help", "returns", "delivery", "offers")


def make_events(keys: Keys, numbers: Numbers, at: pa.Array, amounts: Numbers) -> pa.Table:
    """Return one event for each number; the same number always gives the same key."""
    rest = {"at": at, "amount": amounts}
    if keys == "visits":
        return pa.table({**_visits(numbers), "price": _prices(amounts), **rest})
    return pa.table({"key": _strings(numbers, ragged=keys != "12 characters"), **rest})


def _strings(numbers: Numbers, *, ragged: bool) -> pa.Array:
    digits = _digits(numbers, 7)
    if not ragged:
        return pc.binary_join_element_wise("user-", digits, "")
    tails = pa.array(["x" * length for length in range(37)]).take(pa.array(numbers * 7919 % 37))
    return pc.binary_join_element_wise(digits, tails, "")


def _visits(numbers: Numbers) -> dict[str, pa.Array]:
    noise = _mix(numbers)
    tenant = (_TENANTS * _fraction(noise, 0) ** 3).astype(np.int64)  # the first of them have most of the events
    names = pa.array([f"{n:03}-{'-'.join(_WORDS[n % 7 :])}"[: 4 + n % 17] for n in range(_TENANTS)])
    kind = pa.array(noise % np.uint64(10))
    digits = _digits(numbers, 8)
    user = pc.case_when(
        pc.make_struct(pc.equal(kind, 0), pc.less(kind, 3), pc.less(kind, 6)),
        pa.scalar(None, pa.string()),
        digits,
        pc.binary_join_element_wise("usr_", digits, ""),
        pc.binary_join_element_wise(digits, "-9d2c-4c1e-8f07-", _digits(noise % np.uint64(10**12), 12), ""),
    )
    paths = pa.array(["/".join(_WORDS[(n + i * i) % len(_WORDS)] for i in range(1 + n // 7)) for n in range(160)])
    # Most pages have short names, and a few have long ones.
    length = (160 * _fraction(noise, 20) ** 3).astype(np.int64)
    url = pc.binary_join_element_wise("/", paths.take(pa.array(length)), digits, "")
    return {
        "tenant": names.take(pa.array(tenant)),
        "country": _COUNTRIES.take(pa.array((noise >> np.uint64(8)) % np.uint64(len(_COUNTRIES)))),
        "user": user,
        "url": pc.binary_join_element_wise("https://shop", url, ""),
    }


def _prices(amounts: Numbers) -> pa.Array:
    cents = pa.array(amounts * 7 + 99)
    price = pc.divide(pc.cast(cents, pa.decimal128(19)), pa.scalar(100, pa.decimal128(3)))
    return pc.if_else(pa.array(amounts % 10 != 0), pc.cast(price, pa.decimal128(12, 2), safe=False), None)


def _digits(numbers: npt.NDArray[Any], width: int) -> pa.Array:
    return pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), width, "0")


def _mix(numbers: Numbers) -> npt.NDArray[np.uint64]:
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return mixed * np.uint64(0xBF58476D1CE4E5B9)


def _fraction(noise: npt.NDArray[np.uint64], shift: int) -> npt.NDArray[np.float64]:
    return ((noise >> np.uint64(shift)) % np.uint64(1 << 20)).astype(np.float64) / (1 << 20)
