"""A checkpoint in a slow object store: the tests' server behind their proxy."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ttlsnap import compact
from ttlsnap.engines.local import LocalEngine
from ttlsnap.schema.units import parse_duration
from ttlsnap.storage.objects import ObjectDirectory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

sys.path.append(str(Path(__file__).parents[1]))

from tests.storage.places import upload
from tests.storage.proxy import Proxy
from tests.storage.stores import store_server

AT_ONCE = ObjectDirectory.at_once
LATENCY = 0.02  # seconds


@contextlib.contextmanager
def late_store() -> Iterator[tuple[str, Proxy]]:
    """Yield the URI of a bucket with slow answers, and the proxy that counts requests."""
    with tempfile.TemporaryDirectory() as folder, store_server("moto", Path(folder)) as store:
        os.environ.update(store.kind.environment(store.proxy.endpoint))
        yield store.new_bucket(), store.proxy


def compaction(
    checkpoint: Path, bucket: str, proxy: Proxy, timestamp: str, ttl: str, now: str, at_once: int, *, late: bool = True
) -> Callable[[], Callable[[], None]]:
    """Return a function that uploads a checkpoint, and returns its compaction with ``at_once`` requests at a time.

    Answers are ``late`` by 20 ms, as in a real store.
    """

    def ready() -> Callable[[], None]:
        proxy.reset()
        uri = upload(checkpoint, f"{bucket}/{time.monotonic_ns()}")
        proxy.reset()
        return lambda: work(uri)

    def work(uri: str) -> None:
        ObjectDirectory.at_once = at_once
        if late:
            proxy.fault = lambda request: time.sleep(LATENCY)
        factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), timestamp)
        compact(uri, [factory], now=now, stopped=True, engine=LocalEngine(None if at_once > 1 else 1))

    return ready
