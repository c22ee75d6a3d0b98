"""Requests of the runner to the brokers, through the Kafka client in the JVM: topic ids, offsets,
record timestamps.

Spark commits no offsets, so tools that show consumer groups would not see a pipeline. After each
batch the runner commits the batch's end offsets to the pipeline's consumer group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, TypeVar, cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ottla_spark.errors import BrokersUnavailable, PipelineError
from ottla_spark.progress import Offsets, TopicPartition

_T = TypeVar("_T")

Isolation = Literal["read_committed", "read_uncommitted"]

_TIMEOUT_MS: Final = 20_000
_DESERIALIZER: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class KafkaAdmin(AbstractContextManager["KafkaAdmin"]):
    """An admin client and a consumer. Every method may raise PipelineError. Only `list_offsets` is
    thread-safe.
    """

    def __init__(self, spark: SparkSession, kafka: Mapping[str, str]) -> None:
        """`kafka`: client properties, including bootstrap.servers."""
        self._jvm = cast(Any, spark._jvm)
        self._bootstrap = kafka["bootstrap.servers"]
        timeouts = {"default.api.timeout.ms": str(_TIMEOUT_MS), "request.timeout.ms": str(_TIMEOUT_MS // 2)}
        admin_properties = self._properties(kafka, timeouts)
        admin_client = self._jvm.org.apache.kafka.clients.admin.AdminClient
        self._admin = self._call(lambda: admin_client.create(admin_properties))
        consumer_defaults = {
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            # One record of each partition is needed. Brokers send the first batch whole regardless
            # of the limit.
            "max.poll.records": "1",
            "max.partition.fetch.bytes": "1",
            "isolation.level": "read_committed",
            "default.api.timeout.ms": str(_TIMEOUT_MS),
            "key.deserializer": _DESERIALIZER,
            "value.deserializer": _DESERIALIZER,
        }
        self._partitions: dict[TopicPartition, Any] = {}
        self._poll_timeout = self._jvm.java.time.Duration.ofMillis(100)
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer
        self._consumer = self._call(lambda: consumer(self._properties(kafka, consumer_defaults)))

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self._admin.close()

    def describe_topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Topic → id in Kafka's text form. Raises PipelineError if a topic does not exist."""
        names = list(topics)
        answers = self._admin.describeTopics(self._list(names)).topicNameValues()
        return {
            topic: self._call(lambda topic=topic: answers.get(topic).get().topicId().toString(), topic)  # type: ignore[misc]
            for topic in names
        }

    def count_partitions(self, topic: str) -> int | None:
        """Number of partitions of a topic; None if it does not exist."""
        topics = self._call(lambda: self._admin.listTopics().names().get())
        if not topics.contains(topic):
            return None
        answers = self._call(lambda: self._admin.describeTopics(self._list([topic])).allTopicNames().get())
        return int(answers.get(topic).partitions().size())

    def read_topic_config(self, topic: str, key: str) -> str | None:
        """Value of a topic's setting. None if the user may not describe the topic's configs."""
        kinds = self._jvm.org.apache.kafka.common.config.ConfigResource
        resource = kinds(kinds.Type.TOPIC, topic)

        def describe() -> Any:
            try:
                return self._admin.describeConfigs(self._list([resource])).all().get()
            except Py4JJavaError as error:
                if "AuthorizationException" in str(error.java_exception):
                    return None
                raise

        answers = self._call(describe, topic)
        return None if answers is None else str(answers.get(resource).get(key).value())

    def list_offsets(
        self, topics: Iterable[str], which: Literal["earliest", "latest"], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """Start or end offset of each partition of the topics. With read_committed, the end is the
        last stable offset.
        """
        names = list(topics)
        answers = self._call(lambda: self._admin.describeTopics(self._list(names)).allTopicNames().get())
        partitions = [(topic, at) for topic in names for at in range(answers.get(topic).partitions().size())]
        return self._list_offsets(partitions, which, isolation)

    def list_offsets_at(self, topic: str, time_ms: int) -> dict[TopicPartition, int]:
        """Offset of the first record at or after a time in each partition; the end offset of a
        partition that has none.
        """
        ends = self.list_offsets([topic], "latest")
        at_time = self._list_offsets(list(ends), time_ms)
        return {partition: offset if (offset := at_time[partition]) >= 0 else end for partition, end in ends.items()}

    def list_end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition."""
        return self._list_offsets(list(partitions), "latest")

    def _list_offsets(
        self,
        partitions: Sequence[TopicPartition],
        which: Literal["earliest", "latest"] | int,
        isolation: Isolation = "read_uncommitted",
    ) -> dict[TopicPartition, int]:
        """`which`: earliest, latest, or the first record at or after a time in ms. The offset is −1
        in partitions without such a record.
        """
        level = getattr(self._jvm.org.apache.kafka.common.IsolationLevel, isolation.upper())
        options = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        position = spec.forTimestamp(which) if isinstance(which, int) else getattr(spec, which)()
        request = self._jvm.java.util.HashMap()
        for partition in partitions:
            request.put(self._partition(*partition), position)
        results = self._call(lambda: self._admin.listOffsets(request, options).all().get())
        return {partition: results.get(self._partition(*partition)).offset() for partition in partitions}

    def commit_offsets(self, group: str, offsets: Offsets) -> None:
        """Commits offsets to a consumer group without members."""
        metadata = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
        request = self._jvm.java.util.HashMap()
        for (topic, partition), offset in offsets.items():
            request.put(self._partition(topic, partition), metadata(offset))
        self._call(lambda: self._admin.alterConsumerGroupOffsets(group, request).all().get())

    def read_timestamps(self, offsets: Offsets, timeout_s: float) -> dict[TopicPartition, int]:
        """Timestamp in ms of the first record at or after each offset. Omits partitions of which no
        record is read within `timeout_s`.
        """
        found: dict[TopicPartition, int] = {}
        if not offsets:
            return found
        assignment = self._list([self._partition(topic, partition) for topic, partition in offsets])
        self._consumer.assign(assignment)
        self._consumer.resume(assignment)
        for (topic, partition), offset in offsets.items():
            self._consumer.seek(self._partition(topic, partition), offset)
        deadline = time.monotonic() + timeout_s
        while len(found) < len(offsets) and time.monotonic() < deadline:
            records = self._call(lambda: self._consumer.poll(self._poll_timeout)).iterator()
            while records.hasNext():
                record = records.next()
                at = (record.topic(), record.partition())
                found.setdefault(at, record.timestamp())
                self._consumer.pause(self._list([self._partition(*at)]))
        return found

    def _partition(self, topic: str, partition: int) -> Any:
        found = self._partitions.get((topic, partition))
        if found is None:
            found = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
            self._partitions[topic, partition] = found
        return found

    def _list(self, items: Iterable[Any]) -> Any:
        java_list = self._jvm.java.util.ArrayList()
        for item in items:
            java_list.add(item)
        return java_list

    def _properties(self, kafka: Mapping[str, str], defaults: Mapping[str, str]) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in {**defaults, **kafka}.items():
            properties.setProperty(name, value)
        return properties

    def _call(self, call: Callable[[], _T], topic: str = "") -> _T:
        """Raises PipelineError for Java's errors, BrokersUnavailable if brokers do not respond.
        `topic`: named in the error.
        """
        try:
            return call()
        except Py4JJavaError as error:
            cause = error.java_exception
            while cause.getCause() is not None:
                cause = cause.getCause()
            kind = cause.getClass().getSimpleName()
            if kind == "UnknownTopicOrPartitionException" and topic:
                raise PipelineError(f"the topic {topic} does not exist") from error
            if kind in ("TimeoutException", "DisconnectException") or "bootstrap" in str(cause.getMessage()):
                raise BrokersUnavailable(f"the brokers at {self._bootstrap} do not respond") from error
            raise PipelineError(f"{self._bootstrap}: {cause.getMessage() or kind}") from error
