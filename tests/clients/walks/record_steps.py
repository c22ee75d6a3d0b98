"""Steps that produce, fetch, find and delete records."""

from dataclasses import replace
from typing import Any

from tests.clients.walks.batch_faults import FAULTS
from tests.clients.walks.step_generator import PRODUCERS, SESSIONS, TIMES, StepGenerator
from tests.clients.walks.steps import BatchSpec, Reference, Step

LAST_SEQUENCE = (1 << 31) - 1
PLENTY = 1 << 20


def produce(generator: StepGenerator) -> Step:
    acks = generator.random.choices((-1, 1, 2), (8, 3, 0.2))[0]
    data = []
    for topic in generator.topics():
        partitions = [
            {"index": index, "records": build_batches(generator, topic, index)} for index in generator.partitions(topic)
        ]
        data.append({**generator.topic_fields(topic), "partition_data": partitions})
    if len(data) == len(data[0]["partition_data"]) == 1 and generator.chance():
        # Only in a request of one partition, because Kafka rejects the whole request for one
        # malformed batch, and Ottla only that batch.
        [batch, *_] = data[0]["partition_data"][0]["records"]
        data[0]["partition_data"][0]["records"] = (replace(batch, fault=generator.choose(*FAULTS)),)
    return generator.step("produce", low=3, acks=acks, timeout=10_000, topic_data=data)


def build_batches(generator: StepGenerator, topic: str, index: int) -> tuple[BatchSpec, ...]:
    return tuple(build_batch(generator, topic, index) for _ in range(1 if generator.random.random() < 0.95 else 2))


def build_batch(generator: StepGenerator, topic: str, index: int) -> BatchSpec:
    values = tuple(
        generator.random.choices((b"v", b"w", None, b"x" * 150), (6, 3, 1, 2))[0]
        for _ in range(generator.choose(1, 1, 2, 3))
    )
    batch: dict[str, Any] = {
        "values": values,
        "at_ms": generator.choose(*TIMES),
        "key": generator.random.choices((b"k", b"l", None), (6, 3, 1))[0],
        "compression": generator.random.choices((0, 1, 4), (8, 1, 1))[0],
    }
    if generator.chance(0.5):
        producer = generator.random.choices(PRODUCERS, (6, 3, 1))[0]
        batch |= {
            "producer": producer,
            "epoch": generator.random.choices((0, 1, 2), (8, 3, 1))[0],
            "sequence": choose_sequence(generator, topic, index, producer),
        }
    return BatchSpec(**batch)


def choose_sequence(generator: StepGenerator, topic: str, index: int, producer: int) -> int | Reference:
    if generator.chance(0.7):
        return Reference(
            "sequence", (topic, index, producer), generator.random.choices((0, -1, -2, -3, 1), (8, 2, 1, 1, 1))[0]
        )
    return int(generator.choose(0, 0, 1, 2, LAST_SEQUENCE, LAST_SEQUENCE - 1))


def fetch(generator: StepGenerator) -> Step:
    without_session = generator.chance(0.4)
    name = generator.choose(*SESSIONS)
    # Only newer versions can report divergence, so a session that also uses older ones must not
    # request it. From version 13 on topics have ids, and a session uses either names or ids.
    low, high = (0, 99) if without_session else (12, 99) if name == "b" else (7, 99 if generator.chance() else 12)
    topics = [
        fetched_topic(generator, topic, without_session=without_session, diverges=low != 7)
        for topic in generator.topics()
    ]
    common = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": generator.choose(0, 1),
        "isolation_level": generator.choose(0, 0, 1),
    }
    if without_session:
        return generator.step("fetch", **common, topics=topics, session_id=0, session_epoch=-1)
    session = Reference("session", (name,))
    what = generator.random.choices(("new", "renew", "next", "wrong", "close"), (3, 1, 12, 1, 0.7))[0]
    session_epoch = {
        "new": 0,
        "renew": 0,
        "next": Reference("session epoch", (name,)),
        "wrong": Reference("session epoch", (name,), generator.choose(-1, 1)),
        "close": -1,
    }[what]
    if what == "next" and generator.chance(0.4):
        topics = []
    forgotten = [
        {**generator.topic_fields(topic), "partitions": generator.partitions(topic)}
        for topic in (generator.topics() if what == "next" and generator.chance(0.25) else ())
    ]
    return generator.step(
        "fetch",
        low=low,
        high=high,
        source=(name,),
        **common,
        topics=topics,
        session_id=0 if what == "new" else session,
        session_epoch=session_epoch,
        forgotten_topics_data=forgotten,
    )


def fetched_topic(generator: StepGenerator, topic: str, *, without_session: bool, diverges: bool) -> dict[str, Any]:
    partitions = [
        {
            "partition": index,
            "fetch_offset": generator.offset(topic, index),
            # In a session brokers differ in which partition they serve first if not all fit.
            "partition_max_bytes": 1 if without_session and generator.chance() else PLENTY,
            "current_leader_epoch": generator.random.choices((-1, 0, 1), (8, 3, 1))[0],
            "last_fetched_epoch": generator.random.choices((-1, 0, 1), (8, 2, 1))[0] if diverges else -1,
        }
        for index in generator.partitions(topic)
    ]
    return {**generator.topic_fields(topic), "partitions": partitions}


def list_offsets(generator: StepGenerator) -> Step:
    topics = []
    for topic in generator.topics():
        partitions = [
            {
                "partition_index": index,
                # Kafka returns the largest timestamp even if its record is deleted; Ottla does not.
                "timestamp": generator.choose(
                    -1,
                    -2,
                    -4,
                    -5,
                    -6,
                    *TIMES,
                    TIMES[-1] + 10,
                    0,
                    *(() if topic in generator.deleted_from else (-3, -3)),
                ),
                "current_leader_epoch": generator.random.choices((-1, 0, 1), (8, 2, 1))[0],
            }
            for index in generator.partitions(topic)
        ]
        topics.append({"name": Reference("name", (topic,)), "partitions": partitions})
    return generator.step(
        "list_offsets", replica_id=-1, isolation_level=generator.choose(0, 0, 1), topics=topics, timeout=10_000
    )


def delete_records(generator: StepGenerator) -> Step:
    names = generator.topics()
    generator.deleted_from.update(names)
    topics = [
        {
            "name": Reference("name", (topic,)),
            "partitions": [
                {"partition_index": index, "offset": generator.offset(topic, index)}
                for index in generator.partitions(topic)
            ],
        }
        for topic in names
    ]
    return generator.step("delete_records", topics=topics, timeout=10_000)


def offset_for_leader_epoch(generator: StepGenerator) -> Step:
    topics = [
        {
            "topic": Reference("name", (topic,)),
            "partitions": [
                {
                    "partition": index,
                    "current_leader_epoch": generator.random.choices((-1, 0, 1), (8, 2, 1))[0],
                    "leader_epoch": generator.choose(0, 0, 1, -1, 5),
                }
                for index in generator.partitions(topic)
            ],
        }
        for topic in generator.topics()
    ]
    return generator.step("offset_for_leader_epoch", replica_id=-1, topics=topics)


def describe_producers(generator: StepGenerator) -> Step:
    topics = [
        {"name": Reference("name", (topic,)), "partition_indexes": generator.partitions(topic)}
        for topic in generator.topics()
    ]
    return generator.step("describe_producers", topics=topics)


def init_producer_id(generator: StepGenerator) -> Step:
    return generator.step(
        "init_producer_id",
        transactional_id=None,
        transaction_timeout=60_000,
        producer_id=generator.choose(-1, -1, 5),
        producer_epoch=generator.choose(-1, -1, 3),
    )
