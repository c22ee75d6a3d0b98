"""What the runner itself asks brokers, through the Kafka client on Spark's side: topic ids, how old what waits is,
and committed offsets.

Spark commits no offsets, so no tool that looks at consumer groups would see a pipeline. After each batch the runner
commits where it ended to a group of the pipeline's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from ottla_spark.trouble import Trouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Partition = tuple[str, int]
_T = TypeVar("_T")

_PATIENCE_MS: Final = 20_000
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class Cluster(AbstractContextManager["Cluster"]):
    """A client of the brokers. Every call may raise Trouble; none is made from two threads at once."""

    def __init__(self, spark: SparkSession, kafka: Mapping[str, str]) -> None:
        self._jvm = cast(Any, spark._jvm)
        self._bootstrap = kafka["bootstrap.servers"]
        properties = self._properties(
            kafka, {"default.api.timeout.ms": str(_PATIENCE_MS), "request.timeout.ms": str(_PATIENCE_MS // 2)}
        )
        admin = self._jvm.org.apache.kafka.clients.admin.AdminClient
        self._admin = self._asked(lambda: admin.create(properties))
        reading = {
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            "max.poll.records": "1",
            "max.partition.fetch.bytes": "1",  # the first batch comes whole all the same, and one record is all we want
            "isolation.level": "read_committed",
            "default.api.timeout.ms": str(_PATIENCE_MS),
            "key.deserializer": _BYTES,
            "value.deserializer": _BYTES,
        }
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer
        self._consumer = self._asked(lambda: consumer(self._properties(kafka, reading)))

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self._admin.close()

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each topic, in Kafka's text form. Trouble when one does not exist."""
        asked = self._jvm.java.util.ArrayList()
        for topic in topics:
            asked.add(topic)
        answers = self._admin.describeTopics(asked).topicNameValues()
        return {
            topic: self._asked(lambda topic=topic: answers.get(topic).get().topicId().toString(), topic)  # type: ignore[misc]
            for topic in topics
        }

    def offsets(self, topics: Iterable[str], which: Literal["earliest", "latest"]) -> dict[Partition, int]:
        """The first offset of each partition of the topics, or the next that would be written."""
        described = self._jvm.java.util.ArrayList()
        for topic in topics:
            described.add(topic)
        answers = self._asked(lambda: self._admin.describeTopics(described).allTopicNames().get())
        wanted = [(topic, at) for topic in topics for at in range(answers.get(topic).partitions().size())]
        return self._listed(wanted, which)

    def newest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset of each that would be written next."""
        return self._listed(list(partitions), "latest")

    def _listed(self, wanted: Sequence[Partition], which: Literal["earliest", "latest"]) -> dict[Partition, int]:
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        asked = self._jvm.java.util.HashMap()
        for partition in wanted:
            asked.put(self._partition(*partition), spec.earliest() if which == "earliest" else spec.latest())
        found = self._asked(lambda: self._admin.listOffsets(asked).all().get())
        return {partition: found.get(self._partition(*partition)).offset() for partition in wanted}

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commits offsets to a consumer group that has no members."""
        asked = self._jvm.java.util.HashMap()
        metadata = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
        for (topic, partition), offset in offsets.items():
            asked.put(self._partition(topic, partition), metadata(offset))
        self._asked(lambda: self._admin.alterConsumerGroupOffsets(group, asked).all().get())

    def written_ms(self, offsets: Mapping[Partition, int], patience_s: float) -> dict[Partition, int]:
        """When the first record from each offset on was written, in milliseconds since 1970.

        Those not read in time are left out.
        """
        found: dict[Partition, int] = {}
        if not offsets:
            return found
        asked = self._jvm.java.util.ArrayList()
        for topic, partition in offsets:
            asked.add(self._partition(topic, partition))
        self._consumer.assign(asked)
        self._consumer.resume(asked)
        for (topic, partition), offset in offsets.items():
            self._consumer.seek(self._partition(topic, partition), offset)
        wait = self._jvm.java.time.Duration.ofMillis(100)
        deadline = time.monotonic() + patience_s
        while len(found) < len(offsets) and time.monotonic() < deadline:
            records = self._asked(lambda: self._consumer.poll(wait)).iterator()
            while records.hasNext():
                record = records.next()
                at = (record.topic(), record.partition())
                found.setdefault(at, record.timestamp())
                self._consumer.pause(self._jvm.java.util.Collections.singletonList(self._partition(*at)))
        return found

    def _partition(self, topic: str, partition: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)

    def _properties(self, kafka: Mapping[str, str], more: Mapping[str, str]) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in {**more, **kafka}.items():
            properties.setProperty(name, value)
        return properties

    def _asked(self, ask: Callable[[], _T], topic: str = "") -> _T:
        """The answer; Java's errors as Trouble."""
        from py4j.protocol import Py4JJavaError

        try:
            return ask()
        except Py4JJavaError as error:
            cause = error.java_exception
            while cause.getCause() is not None:
                cause = cause.getCause()
            kind = cause.getClass().getSimpleName()
            if kind == "UnknownTopicOrPartitionException" and topic:
                raise Trouble(f"the topic {topic} does not exist") from error
            if kind in ("TimeoutException", "DisconnectException") or "bootstrap" in str(cause.getMessage()):
                raise Trouble(f"no broker answers at {self._bootstrap}") from error
            raise Trouble(f"{self._bootstrap} says: {cause.getMessage() or kind}") from error
