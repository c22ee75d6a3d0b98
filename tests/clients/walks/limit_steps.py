"""Steps that fetch batches of many sizes within limits of bytes and of time."""

from typing import Any, Final

from tests.clients.walks.record_steps import PLENTY
from tests.clients.walks.step_generator import TIMES, StepGenerator
from tests.clients.walks.steps import BatchSpec, Reference, Step

WAIT_MS: Final = 400  # long compared with the time of a response
SIZES: Final = (1, 1, 100, 100, 400, 900)  # of values
LIMITS: Final = (1, 70, 170, 250, 500, 1000, 3000)  # of bytes; a batch's header alone takes 61


def fill(generator: StepGenerator) -> list[Step]:
    """Steps that produce one to five batches to each partition of a topic."""
    topic = generator.topic()
    steps = []
    for _ in range(generator.choose(1, 2, 3, 5)):
        partitions = [
            {"index": index, "records": (a_batch(generator),)} for index in range(generator.created.get(topic, 1))
        ]
        data = [{**generator.topic_fields(topic), "partition_data": partitions}]
        steps.append(generator.step("produce", low=3, acks=-1, timeout=10_000, topic_data=data))
    return steps


def a_batch(generator: StepGenerator) -> BatchSpec:
    values = tuple(b"x" * generator.choose(*SIZES) for _ in range(generator.choose(1, 1, 2)))
    # The last of these times is a week after the others, so that a segment ends there.
    return BatchSpec(
        values, generator.random.choices(TIMES, (8, 1, 1, 1, 1))[0], compression=generator.choose(0, 0, 0, 1)
    )


def fetch(generator: StepGenerator) -> Step:
    """A fetch without a session: in sessions brokers differ in which partition they serve first if
    not all fit.
    """
    names = list(dict.fromkeys(generator.topic() for _ in range(generator.choose(1, 1, 2, 3))))
    topics = [{**generator.topic_fields(name), "partitions": wanted_partitions(generator, name)} for name in names]
    return generator.step(
        "fetch",
        replica_id=-1,
        max_wait=WAIT_MS,
        min_bytes=generator.choose(0, 1, 1, *LIMITS),
        max_bytes=limit(generator),
        isolation_level=generator.choose(0, 0, 1),
        topics=topics,
        session_id=0,
        session_epoch=-1,
    )


def wanted_partitions(generator: StepGenerator, topic: str) -> list[dict[str, Any]]:
    indexes = list(range(generator.created.get(topic, 1)))
    return [
        {
            "partition": index,
            "fetch_offset": generator.choose(0, 0, 1, 2, Reference("end", (topic, index), generator.choose(0, -1, -2))),
            "partition_max_bytes": limit(generator),
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
        }
        for index in generator.random.sample(indexes, generator.choose(*indexes) + 1)
    ]


def limit(generator: StepGenerator) -> int:
    return PLENTY if generator.chance(0.4) else int(generator.choose(*LIMITS))
