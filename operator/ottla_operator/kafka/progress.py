"""How far partitions are that move: who has arrived, and how much of the rest is copied."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_operator.kafka import log_dirs, reassignments, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.reassignments import PartitionReassignment


@dataclass(frozen=True, slots=True)
class ReassignmentProgress:
    """`partitions`: that were to move; `moving`: of them, that still do. `bytes`: copied so far of those that still move, out of `total_bytes`.
    `elsewhere`: partitions that rest, and not where they were to go."""

    partitions: int
    unfinished: int
    copied_bytes: int
    total_bytes: int
    misplaced: tuple[TopicPartition, ...]


async def measure_progress(link: KafkaClient, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> ReassignmentProgress:
    """`wanted`: replicas that each partition is to have."""
    every = await reassignments.list_reassignments(link)
    moving = {place: it for place, it in every.items() if place in wanted}
    brokers = sorted({broker for it in moving.values() for broker in it.replicas})
    sizes = await log_dirs.describe_replica_sizes(link, brokers, moving) if moving else {}
    copied, total = copied_bytes(moving, sizes)
    elsewhere: list[TopicPartition] = []
    if not moving:
        found = await topics.describe_topics(link, sorted({topic for topic, _ in wanted}))
        there = {(topic.name, it.index): it.replicas for topic in found.values() for it in topic.partitions}
        elsewhere = sorted(place for place, it in wanted.items() if place in there and set(there[place]) != set(it))
    return ReassignmentProgress(len(wanted), len(moving), copied, total, tuple(elsewhere))


def copied_bytes(
    moving: Mapping[TopicPartition, PartitionReassignment], sizes: log_dirs.ReplicaSizes
) -> tuple[int, int]:
    """Bytes that the replicas that are being added have, and should have; pure. The largest of the others counts as what they should have."""
    have = want = 0
    for place, it in moving.items():
        whole = max(
            (sizes[broker].get(place, 0) for broker in it.replicas if broker in sizes and broker not in it.adding),
            default=0,
        )
        for broker in it.adding:
            have += min(whole, sizes.get(broker, {}).get(place, 0))
            want += whole
    return have, want
