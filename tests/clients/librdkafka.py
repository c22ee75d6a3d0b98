"""Producing and consuming with librdkafka (confluent-kafka), as most tests need it."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.clients.sample import Message

WITHIN_S = 30.0


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})


def create(bootstrap: str, topic: str, partitions: int = 1, **config: object) -> None:
    """Returns when the topic can be used; settings with `_` for `.`."""
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    client = admin(bootstrap)  # held until the answer is there: it ends with its last reference
    for made in client.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
        made.result(WITHIN_S)


def produce(
    bootstrap: str, topic: str, records: Iterable[Message], *, partition: int = 0, **settings: object
) -> list[int]:
    """Sends everything; the offset of each record, in order. KafkaException for the first one that is refused."""
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": int(WITHIN_S * 1000)} | dotted(settings)
    )
    offsets: list[int] = []
    errors: list[ck.KafkaError] = []

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            errors.append(error)

    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            on_delivery=delivered,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
        producer.poll(0)
    left = producer.flush(WITHIN_S)
    if errors:
        raise ck.KafkaException(errors[0])
    assert not left, f"{left} records were not acknowledged"
    return offsets


@contextmanager
def consumer(bootstrap: str, group: str = "unused", **settings: Any) -> Iterator[ck.Consumer]:
    base = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    made = ck.Consumer(base | dotted(settings))
    try:
        yield made
    finally:
        made.close()


def consume(
    bootstrap: str,
    topic: str,
    count: int | None = None,
    *,
    partition: int = 0,
    offset: int = ck.OFFSET_BEGINNING,
    **settings: Any,
) -> list[ck.Message]:
    """`count` records of one partition from `offset`; without a count, up to the end."""
    quick = {"fetch_wait_max_ms": 10}  # the end is told when nothing came for so long
    with consumer(bootstrap, enable_partition_eof=True, **quick | settings) as reader:
        reader.list_topics(topic, timeout=WITHIN_S)  # who has not heard of a leader looks again in half a second
        reader.assign([ck.TopicPartition(topic, partition, offset)])
        return list(_until_end(reader, count))


def _until_end(reader: ck.Consumer, count: int | None) -> Iterator[ck.Message]:
    deadline = time.monotonic() + WITHIN_S
    seen = 0
    while count is None or seen < count:
        message = reader.poll(0.2)
        assert time.monotonic() < deadline, f"only {seen} records within {WITHIN_S} s"
        if message is None:
            continue
        if (error := message.error()) is None:
            seen += 1
            yield message
        elif error.code() == ck.KafkaError._PARTITION_EOF:
            if count is None:
                return
        else:
            raise ck.KafkaException(error)


def next_message(reader: ck.Consumer, within_s: float = WITHIN_S) -> ck.Message:
    """The next record or error event."""
    message = reader.poll(within_s)
    assert message is not None, f"nothing within {within_s} s"
    return message


def plain(received: Sequence[ck.Message]) -> list[Message]:
    return [Message(m.key(), m.value(), m.timestamp()[1], tuple(m.headers() or ())) for m in received]


def values(received: Sequence[ck.Message]) -> list[bytes | None]:
    return [message.value() for message in received]


def numbered(start: int, stop: int) -> list[Message]:
    """Records `start`…`stop - 1`, stamped now."""
    now = int(time.time() * 1000)
    return [Message(b"%d" % number, b"value %d" % number, now) for number in range(start, stop)]


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in settings.items()}


def config_change(topic: str, key: str, value: str) -> ConfigResource:
    """One setting of a topic, as `incremental_alter_configs` takes it."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
