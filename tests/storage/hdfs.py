"""A real HDFS: a name node and a data node, each in its own process. PySpark's jars have all but the servers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
from hdfs_native import Client, WriteOptions

from ..jars import jars_of

JARS = Path(pyspark.__file__).parent / "jars"
VERSION = next(JARS.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
SERVERS = f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}"


@contextlib.contextmanager
def hdfs_server(folder: Path) -> Iterator[str]:
    """Run an HDFS while the block runs, and yield the URI of its root."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    name = f"127.0.0.1:{port}"
    (folder / "conf").mkdir(parents=True)
    anywhere = ("dfs.datanode.address", "dfs.datanode.http.address", "dfs.datanode.ipc.address")
    settings = {
        "fs.defaultFS": f"hdfs://{name}",
        "dfs.namenode.name.dir": str(folder / "names"),
        "dfs.datanode.data.dir": str(folder / "data"),
        "dfs.replication": "1",
        "dfs.permissions.enabled": "true",  # the user who started it is the superuser
        "dfs.namenode.http-address": "127.0.0.1:0",
        **dict.fromkeys(anywhere, "127.0.0.1:0"),
    }
    properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
    for site in ("core", "hdfs"):
        (folder / "conf" / f"{site}-site.xml").write_text(f"<configuration>{properties}</configuration>")
    path = f"{folder / 'conf'}:{jars_of(SERVERS)[0]}:{JARS}/*"
    java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", path]
    servers = "org.apache.hadoop.hdfs.server"
    namenode = [*java, f"{servers}.namenode.NameNode"]
    with (folder / "log").open("wb") as log, contextlib.ExitStack() as stack:
        subprocess.run([*namenode, "-format", "-nonInteractive"], check=True, stdout=log, stderr=log)
        for command in (namenode, [*java, f"{servers}.datanode.DataNode"]):
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
        _wait_for(name, folder / "log")
        yield f"hdfs://{name}"


def _wait_for(name: str, log: Path) -> None:
    """Wait until a file can be written."""
    until = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError):
            host, _, port = name.partition(":")
            socket.create_connection((host, int(port)), 1).close()
            break
        assert time.monotonic() < until, log.read_text()[-3000:]
        time.sleep(0.2)
    while True:
        try:
            with Client(f"hdfs://{name}").create("/begun", WriteOptions(overwrite=True)) as file:
                file.write(b"x")
        except Exception:
            assert time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.2)
        else:
            return
