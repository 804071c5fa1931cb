"""A real Kafka broker, and a process whose Spark reads from it and writes to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark

from ..jars import jars_of
from ..judge.processes import interpreter

BROKER = "org.apache.kafka:kafka_2.13:3.9.1"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_{}"
# An older release of the connector than of Spark, where the repository of packages lags behind.
CONNECTORS = {"3.5": "2.12:3.5.7", "4.2": "2.13:4.2.0", "4.3": "2.13:4.2.0"}
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=true
log.dirs={logs}
"""


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run a broker while the block runs, and yield its address."""
    folder.mkdir()
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        port, controller = (probe.getsockname()[1] for probe in (one, other))
    settings, log = folder / "server.properties", folder / "log"
    settings.write_text(SETTINGS.format(port=port, controller=controller, logs=folder / "logs"))
    (scala,) = (Path(pyspark.__file__).parent / "jars").glob(
        "scala-library-2.13.*.jar"
    )  # Spark does not fetch this one
    java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", ":".join(map(str, (*jars_of(BROKER), scala)))]
    with log.open("wb") as out:
        format_logs = [*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", str(settings)]
        subprocess.run(format_logs, check=True, stdout=out, stderr=out)
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)], stdout=out, stderr=out, start_new_session=True
        )
        try:
            until = time.monotonic() + 120
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                assert time.monotonic() < until and process.poll() is None, log.read_text()[-3000:]
                time.sleep(0.2)
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Queries:
    """The process of ``kafka_queries.py`` on a ``version`` of Spark. Each method is a command to it, with an answer."""

    def __init__(self, address: str, folder: Path, version: str) -> None:
        self.address, self.version, python = address, version, interpreter(version)
        jars = ":".join(map(str, jars_of(CONNECTOR.format(CONNECTORS[version]))))
        script = Path(__file__).with_name("kafka_queries.py")
        self._errors = (folder / "spark.log").open("wb")
        self._process = subprocess.Popen(
            [python, str(script), jars, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def close(self) -> None:
        with self._errors, self._process:  # which closes the pipes, and waits
            self._process.kill()

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic. One that is there is deleted first."""
        self._ask("create", topic=topic, partitions=partitions)

    def add_partition(self, topic: str) -> None:
        self._ask("add_partition", topic=topic)

    def put(self, topic: str, partition: int, keys: Sequence[str]) -> None:
        """Write a message with each of the keys to a partition."""
        self._ask("put", topic=topic, partition=partition, keys=list(keys))

    def run(self, checkpoint: Path, topic: str, **options: str) -> dict[str, int]:
        """Run the query until it has read everything. Return the counts that its sink got, by the keys."""
        return dict(self._ask("run", checkpoint=str(checkpoint), topic=topic, options=options))

    def refusal(self, checkpoint: Path, topic: str) -> str:
        """Return the error with which the query ends."""
        return str(self._ask("refusal", checkpoint=str(checkpoint), topic=topic))

    def start(self, checkpoint: Path, topic: str) -> None:
        """Start the query, and return when it has read everything and is idle."""
        self._ask("start", checkpoint=str(checkpoint), topic=topic)

    def last_words(self) -> str:
        """Return the error with which the started query ends."""
        return str(self._ask("last_words"))

    def _ask(self, command: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([command, arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the process has ended"}')
        assert "error" not in answer, answer["error"]
        return answer["result"]
