"""Throttle of reassignments (KIP-73): a rate on each broker, and the throttled replicas on each
topic.

The settings are those of kafka-reassign-partitions, so that either tool can remove them.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from ottla_broker.wire.errors import ErrorCode
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.configs import ConfigResourceType, alter_configs
from ottla_operator.plan.moves import Move

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


async def set_throttle(client: KafkaClient, moves: Iterable[Move], rate: int, brokers: Iterable[int]) -> None:
    """Limits the replication of these moves.

    `rate`: bytes per second into, and out of, each broker. `brokers`: ids of the brokers that are
    up.
    """
    leaders, followers, involved = throttled_replicas(moves)
    for broker in sorted(involved & set(brokers)):
        changes = {str(broker): dict.fromkeys(RATES, str(rate))}
        await alter_configs(client, ConfigResourceType.broker, changes, broker=broker)
    topics = {it: dict(zip(REPLICAS, (leaders[it], followers[it]), strict=True)) for it in sorted(leaders)}
    await alter_configs(client, ConfigResourceType.topic, topics)


async def remove_throttle(client: KafkaClient, brokers: Iterable[int], topics: Iterable[str]) -> None:
    """Removes the throttle from topics and brokers, if it is set. `brokers`: ids of the brokers
    that are up.
    """
    changes = {topic: dict.fromkeys(REPLICAS) for topic in sorted(topics)}
    missing = (ErrorCode.unknown_topic_or_partition,)
    await alter_configs(client, ConfigResourceType.topic, changes, allow=missing)
    for broker in sorted(brokers):
        await alter_configs(client, ConfigResourceType.broker, {str(broker): dict.fromkeys(RATES)}, broker=broker)


def throttled_replicas(moves: Iterable[Move]) -> tuple[dict[str, str], dict[str, str], set[int]]:
    """The throttled leader and follower replicas of each topic, as `partition:broker,…`, and the
    brokers involved.
    """
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for move in moves:
        if move.adding:
            leaders[move.topic] += [f"{move.partition}:{broker}" for broker in move.before]
            followers[move.topic] += [f"{move.partition}:{broker}" for broker in move.adding]
            brokers.update(move.before, move.adding)
    return (
        {topic: ",".join(replicas) for topic, replicas in leaders.items()},
        {topic: ",".join(replicas) for topic, replicas in followers.items()},
        brokers,
    )
