"""Producing, consuming and administration with librdkafka (confluent-kafka)."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.clients.sample_messages import Message

WITHIN_S = 30.0
UNUSED_GROUP = "unused"  # group id of consumers that assign partitions to themselves


def admin_client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: object) -> None:
    """Creates a topic and returns when it is usable. Names in `config` have `_` in place of `.`."""
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    client = admin_client(bootstrap)  # keep a reference until the result: the client ends with its last reference
    for made in client.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
        made.result(WITHIN_S)


def produce(
    bootstrap: str, topic: str, records: Iterable[Message], *, partition: int = 0, **settings: object
) -> list[int]:
    """Produces all records; returns their offsets. Raises KafkaException for the first rejected
    record.
    """
    return produce_with(open_producer(bootstrap, **settings), topic, records, partition)


def open_producer(bootstrap: str, **settings: object) -> ck.Producer:
    return ck.Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": int(WITHIN_S * 1000)} | to_librdkafka_names(settings)
    )


def produce_with(producer: ck.Producer, topic: str, records: Iterable[Message], partition: int = 0) -> list[int]:
    """As `produce`, with a producer that stays open."""
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


def produce_one(settings: Mapping[str, Any], topic: str) -> ck.KafkaError | None:
    """Produces one record, `one`, with these settings. Returns its delivery error, or None."""
    errors: list[ck.KafkaError | None] = []
    producer = ck.Producer({**settings, "message.timeout.ms": 10_000, "logger": None, "log_level": 0})
    producer.produce(topic, b"one", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    (error,) = errors
    return error


@contextmanager
def open_consumer(bootstrap: str, group: str = UNUSED_GROUP, **settings: Any) -> Iterator[ck.Consumer]:
    base = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    made = ck.Consumer(base | to_librdkafka_names(settings))
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
    quick = {"fetch_wait_max_ms": 10}  # time without records after which librdkafka reports the end
    with open_consumer(bootstrap, enable_partition_eof=True, **quick | settings) as reader:
        reader.list_topics(topic, timeout=WITHIN_S)  # otherwise the first metadata retry takes half a second
        reader.assign([ck.TopicPartition(topic, partition, offset)])
        return list(_read_records(reader, count))


def _read_records(reader: ck.Consumer, count: int | None) -> Iterator[ck.Message]:
    deadline = time.monotonic() + WITHIN_S
    seen = 0
    while count is None or seen < count:
        message = reader.poll(0.2)
        assert time.monotonic() < deadline, f"only {seen} records in {WITHIN_S} s"
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


def poll_message(reader: ck.Consumer) -> ck.Message:
    """The next record or error event."""
    message = reader.poll(WITHIN_S)
    assert message is not None, f"nothing within {WITHIN_S} s"
    return message


def to_messages(received: Sequence[ck.Message]) -> list[Message]:
    return [Message(m.key(), m.value(), m.timestamp()[1], tuple(m.headers() or ())) for m in received]


def values_of(received: Sequence[ck.Message]) -> list[bytes | None]:
    return [message.value() for message in received]


def numbered_messages(start: int, stop: int) -> list[Message]:
    """Messages `start` to `stop - 1`, with the current time."""
    now = int(time.time() * 1000)
    return [Message(b"%d" % number, b"value %d" % number, now) for number in range(start, stop)]


def to_librdkafka_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with `.` in place of `_` in their names, except in those of callbacks."""
    return {key if key.endswith("_cb") else key.replace("_", "."): value for key, value in settings.items()}


def config_change(topic: str, key: str, value: str) -> ConfigResource:
    """A config change of a topic for `incremental_alter_configs`."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])


def describe_topic_configs(bootstrap: str, topic: str) -> dict[str, ConfigEntry]:
    """The configs of a topic by name."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = admin_client(bootstrap)  # keep a reference until the result
    found: dict[str, ConfigEntry] = client.describe_configs([resource])[resource].result(WITHIN_S)
    return found


def allow(admin: AdminClient, user: str, *rules: tuple[ResourceType, str, AclOperation]) -> None:
    """Adds access rules: each allows the user an operation on the resource of this name."""
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in rules
    ]
    for added in admin.create_acls(bindings).values():
        added.result(WITHIN_S)


def allow_to_produce_and_consume(admin: AdminClient, user: str, topic: str) -> None:
    """Lets a user produce to a topic, and consume it as `produce` and `consume` do."""
    allow(
        admin,
        user,
        (ResourceType.TOPIC, topic, AclOperation.WRITE),
        (ResourceType.TOPIC, topic, AclOperation.READ),
        (ResourceType.GROUP, UNUSED_GROUP, AclOperation.READ),
    )


def topic_id(bootstrap: str, topic: str) -> str:
    client = admin_client(bootstrap)
    return str(client.describe_topics(ck.TopicCollection([topic]))[topic].result(30).topic_id)
