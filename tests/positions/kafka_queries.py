"""The process that ``kafka.Queries`` starts: a Spark with Kafka's connector, which runs commands.

Each line of its input is a command with arguments, and each line of its output the answer.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""With this setting, the source has the name ``visits``."""


class Commands:
    """The commands, with one session for each run of a query."""

    def __init__(self, jars: str, address: str) -> None:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.extraClassPath", jars).config("spark.sql.shuffle.partitions", "2")
        self.spark: SparkSession = builder.getOrCreate()
        self.address = address
        self.java: Any = self.spark.sparkContext._jvm  # no public function has it
        options = self.java.java.util.HashMap()
        options.put("bootstrap.servers", address)
        self.admin = self.java.org.apache.kafka.clients.admin.AdminClient.create(options)
        self.started: StreamingQuery | None = None
        self.counts: dict[str, int] = {}

    def create(self, topic: str, partitions: int) -> None:
        if topic in list(self.admin.listTopics().names().get()):
            self.admin.deleteTopics(self._list(topic)).all().get()
        optional = self.java.java.util.Optional
        new = self.java.org.apache.kafka.clients.admin.NewTopic(topic, optional.of(partitions), optional.empty())
        for attempt in range(100):
            try:
                self.admin.createTopics(self._list(new)).all().get()
            except Exception:  # the broker is deleting the old topic yet
                if attempt == 99:
                    raise
                time.sleep(0.1)
            else:
                return

    def add_partition(self, topic: str) -> None:
        found = self.admin.describeTopics(self._list(topic)).allTopicNames().get().get(topic)
        more = self.java.org.apache.kafka.clients.admin.NewPartitions.increaseTo(len(found.partitions()) + 1)
        changes = self.java.java.util.HashMap()
        changes.put(topic, more)
        self.admin.createPartitions(changes).all().get()

    def put(self, topic: str, partition: int, keys: list[str]) -> None:
        rows = self.spark.createDataFrame(
            [(key, key, partition) for key in keys], "key string, value string, partition int"
        )
        rows.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", self.address).option(
            "topic", topic
        ).save()

    def run(self, checkpoint: str, topic: str, options: dict[str, str]) -> dict[str, int]:
        self.counts = {}
        self._query(checkpoint, topic, options).trigger(availableNow=True).start().awaitTermination()
        return self.counts

    def refusal(self, checkpoint: str, topic: str) -> str:
        try:
            self.run(checkpoint, topic, {})
        except Exception as error:
            return f"{error} {error.__cause__}"
        return ""

    def start(self, checkpoint: str, topic: str) -> None:
        self.started = self._query(checkpoint, topic, {}).trigger(processingTime="0 seconds").start()
        self.started.processAllAvailable()

    def last_words(self) -> str:
        assert self.started is not None
        try:
            self.started.awaitTermination(60)
        except Exception as error:
            return str(error)
        self.started.stop()
        return ""

    def _query(self, checkpoint: str, topic: str, options: dict[str, str]) -> Any:
        session = self.spark.newSession()
        for name, value in options.items():
            session.conf.set(name, value)
        reader = session.readStream.name("visits") if options.get(EVOLUTION) else session.readStream
        stream = reader.format("kafka").option("kafka.bootstrap.servers", self.address)
        stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
        rows = stream.load().selectExpr("CAST(key AS STRING) AS key")

        def collect(frame: DataFrame, batch: int) -> None:
            self.counts.update({row["key"]: row["n"] for row in frame.selectExpr("key", "count AS n").collect()})

        writer = rows.groupBy("key").count().writeStream.outputMode("update").foreachBatch(collect)
        return writer.option("checkpointLocation", checkpoint)

    def _list(self, item: Any) -> Any:
        items = self.java.java.util.ArrayList()
        items.add(item)
        return items


def main() -> None:
    commands = Commands(*sys.argv[1:])
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"result": getattr(commands, name)(**arguments)}
        except Exception as error:
            answer = {"error": f"{name}: {error}"[:5000]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
