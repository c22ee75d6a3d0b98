"""Steps that write, read, find and remove records."""

from dataclasses import replace
from typing import Any

from tests.clients.walks.drawing import PRODUCERS, SESSIONS, TIMES, Draw
from tests.clients.walks.faults import FAULTS
from tests.clients.walks.steps import Batch, Ref, Step

LAST_SEQUENCE = (1 << 31) - 1
PLENTY = 1 << 20


def produce(draw: Draw) -> Step:
    acks = draw.chance.choices((-1, 1, 2), (8, 3, 0.2))[0]
    data = []
    for topic in draw.topics():
        partitions = [{"index": index, "records": batches(draw, topic, index)} for index in draw.partitions(topic)]
        data.append({**draw.named(topic), "partition_data": partitions})
    if len(data) == len(data[0]["partition_data"]) == 1 and draw.rarely():
        # Alone, because Kafka refuses a whole request for one batch that is none, and we only that one.
        [batch, *_] = data[0]["partition_data"][0]["records"]
        data[0]["partition_data"][0]["records"] = (replace(batch, fault=draw.one(*FAULTS)),)
    return draw.step("produce", low=3, acks=acks, timeout=10_000, topic_data=data)


def batches(draw: Draw, topic: str, index: int) -> tuple[Batch, ...]:
    return tuple(a_batch(draw, topic, index) for _ in range(1 if draw.chance.random() < 0.95 else 2))


def a_batch(draw: Draw, topic: str, index: int) -> Batch:
    values = tuple(
        draw.chance.choices((b"v", b"w", None, b"x" * 150), (6, 3, 1, 2))[0] for _ in range(draw.one(1, 1, 2, 3))
    )
    batch: dict[str, Any] = {
        "values": values,
        "at_ms": draw.one(*TIMES),
        "key": draw.chance.choices((b"k", b"l", None), (6, 3, 1))[0],
        "compression": draw.chance.choices((0, 1, 4), (8, 1, 1))[0],
    }
    if draw.rarely(0.5):
        producer = draw.chance.choices(PRODUCERS, (6, 3, 1))[0]
        batch |= {
            "producer": producer,
            "epoch": draw.chance.choices((0, 1, 2), (8, 3, 1))[0],
            "sequence": sequence(draw, topic, index, producer),
        }
    return Batch(**batch)


def sequence(draw: Draw, topic: str, index: int, producer: int) -> int | Ref:
    if draw.rarely(0.7):
        return Ref("sequence", (topic, index, producer), draw.chance.choices((0, -1, -2, -3, 1), (8, 2, 1, 1, 1))[0])
    return int(draw.one(0, 0, 1, 2, LAST_SEQUENCE, LAST_SEQUENCE - 1))


def fetch(draw: Draw) -> Step:
    alone = draw.rarely(0.4)
    name = draw.one(*SESSIONS)
    # Only newer versions can be told where logs part: a session that is asked in older ones, too, must not ask it.
    # From 13 on ids name topics, and sessions keep to one way.
    low, high = (0, 99) if alone else (12, 99) if name == "b" else (7, 99 if draw.rarely() else 12)
    topics = [wanted(draw, topic, alone=alone, parting=low != 7) for topic in draw.topics()]
    common = {"replica_id": -1, "max_wait": 0, "min_bytes": draw.one(0, 1), "isolation_level": draw.one(0, 0, 1)}
    if alone:
        return draw.step("fetch", **common, topics=topics, session_id=0, session_epoch=-1)
    session = Ref("session", (name,))
    what = draw.chance.choices(("new", "renew", "next", "wrong", "close"), (3, 1, 12, 1, 0.7))[0]
    session_epoch = {
        "new": 0,
        "renew": 0,
        "next": Ref("session epoch", (name,)),
        "wrong": Ref("session epoch", (name,), draw.one(-1, 1)),
        "close": -1,
    }[what]
    if what == "next" and draw.rarely(0.4):
        topics = []
    forgotten = [
        {**draw.named(topic), "partitions": draw.partitions(topic)}
        for topic in (draw.topics() if what == "next" and draw.rarely(0.25) else ())
    ]
    return draw.step(
        "fetch",
        low=low,
        high=high,
        learns=(name,),
        **common,
        topics=topics,
        session_id=0 if what == "new" else session,
        session_epoch=session_epoch,
        forgotten_topics_data=forgotten,
    )


def wanted(draw: Draw, topic: str, *, alone: bool, parting: bool) -> dict[str, Any]:
    partitions = [
        {
            "partition": index,
            "fetch_offset": draw.offset(topic, index),
            # In a session it is the broker's own affair who is served first when there is not enough for all.
            "partition_max_bytes": 1 if alone and draw.rarely() else PLENTY,
            "current_leader_epoch": draw.chance.choices((-1, 0, 1), (8, 3, 1))[0],
            "last_fetched_epoch": draw.chance.choices((-1, 0, 1), (8, 2, 1))[0] if parting else -1,
        }
        for index in draw.partitions(topic)
    ]
    return {**draw.named(topic), "partitions": partitions}


def list_offsets(draw: Draw) -> Step:
    topics = []
    for topic in draw.topics():
        partitions = [
            {
                "partition_index": index,
                # Of the largest timestamp Kafka tells even when that record is deleted; we do not.
                "timestamp": draw.one(
                    -1, -2, -4, -5, -6, *TIMES, TIMES[-1] + 10, 0, *(() if topic in draw.cut else (-3, -3))
                ),
                "current_leader_epoch": draw.chance.choices((-1, 0, 1), (8, 2, 1))[0],
            }
            for index in draw.partitions(topic)
        ]
        topics.append({"name": Ref("name", (topic,)), "partitions": partitions})
    return draw.step("list_offsets", replica_id=-1, isolation_level=draw.one(0, 0, 1), topics=topics, timeout=10_000)


def delete_records(draw: Draw) -> Step:
    names = draw.topics()
    draw.cut.update(names)
    topics = [
        {
            "name": Ref("name", (topic,)),
            "partitions": [
                {"partition_index": index, "offset": draw.offset(topic, index)} for index in draw.partitions(topic)
            ],
        }
        for topic in names
    ]
    return draw.step("delete_records", topics=topics, timeout=10_000)


def offset_for_leader_epoch(draw: Draw) -> Step:
    topics = [
        {
            "topic": Ref("name", (topic,)),
            "partitions": [
                {
                    "partition": index,
                    "current_leader_epoch": draw.chance.choices((-1, 0, 1), (8, 2, 1))[0],
                    "leader_epoch": draw.one(0, 0, 1, -1, 5),
                }
                for index in draw.partitions(topic)
            ],
        }
        for topic in draw.topics()
    ]
    return draw.step("offset_for_leader_epoch", replica_id=-1, topics=topics)


def describe_producers(draw: Draw) -> Step:
    topics = [{"name": Ref("name", (topic,)), "partition_indexes": draw.partitions(topic)} for topic in draw.topics()]
    return draw.step("describe_producers", topics=topics)


def init_producer_id(draw: Draw) -> Step:
    return draw.step(
        "init_producer_id",
        transactional_id=None,
        transaction_timeout=60_000,
        producer_id=draw.one(-1, -1, 5),
        producer_epoch=draw.one(-1, -1, 3),
    )
