"""How fast replicas may be copied while partitions move (KIP-73): a rate on every broker that takes part, and on every topic the replicas that it holds for.

Settings as Kafka's kafka-reassign-partitions sets them, so that either tool can take them off.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.wire.errors import ErrorCode
from ottla_operator.kafka.client import KafkaClient, raise_for_error
from ottla_operator.kafka.topics import BROKER_RESOURCE, DELETE, SET, TOPIC_RESOURCE
from ottla_operator.plan.moves import Move

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


async def set_throttle(link: KafkaClient, moves: Iterable[Move], rate: int, brokers: Iterable[int]) -> None:
    """`rate`: bytes per second that each broker may take in, and give out, for these moves. `brokers`: those that are up."""
    leaders, followers, involved = throttled_replicas(moves)
    for broker in sorted(involved & set(brokers)):
        await _alter(link, BROKER_RESOURCE, {str(broker): dict.fromkeys(RATES, str(rate))}, broker)
    topics = {it: dict(zip(REPLICAS, (leaders[it], followers[it]), strict=True)) for it in sorted(leaders)}
    await _alter(link, TOPIC_RESOURCE, topics)


async def remove_throttle(link: KafkaClient, brokers: Iterable[int], topics: Iterable[str]) -> None:
    """Takes the throttle off; what has none is left as it is, and what is gone has none. `brokers`: those that are up."""
    off = {it: dict.fromkeys(REPLICAS) for it in sorted(topics)}
    await _alter(link, TOPIC_RESOURCE, off, allow=(ErrorCode.unknown_topic_or_partition,))
    for broker in sorted(brokers):
        await _alter(link, BROKER_RESOURCE, {str(broker): dict.fromkeys(RATES)}, broker)


def throttled_replicas(moves: Iterable[Move]) -> tuple[dict[str, str], dict[str, str], set[int]]:
    """For each topic, the replicas that are read and those that are written, as `partition:broker,…`; and every broker of them. Pure."""
    read: dict[str, list[str]] = defaultdict(list)
    written: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for it in moves:
        if it.adding:
            read[it.topic] += [f"{it.partition}:{broker}" for broker in it.before]
            written[it.topic] += [f"{it.partition}:{broker}" for broker in it.adding]
            brokers.update(it.before, it.adding)
    return (
        {topic: ",".join(found) for topic, found in read.items()},
        {topic: ",".join(found) for topic, found in written.items()},
        brokers,
    )


async def _alter(
    link: KafkaClient,
    kind: int,
    wanted: Mapping[str, Mapping[str, str | None]],
    broker: int | None = None,
    allow: Collection[ErrorCode] = (),
) -> None:
    """Name of the resource → setting → value, None to take it off. Apache Kafka takes a broker's settings from that broker alone."""
    if not wanted:
        return
    request = IncrementalAlterConfigsRequest(
        resources=tuple(
            AlterConfigsResource(
                resource_type=i8(kind),
                resource_name=name,
                configs=tuple(
                    AlterableConfig(name=key, config_operation=i8(DELETE if value is None else SET), value=value)
                    for key, value in settings.items()
                ),
            )
            for name, settings in wanted.items()
        ),
        validate_only=False,
    )
    answer = await (link.ask_controller(request) if broker is None else link.ask(request, broker=broker))
    for it in answer.responses:
        about = f"throttle of {'topic' if kind == TOPIC_RESOURCE else 'broker'} {it.resource_name}"
        raise_for_error(it.error_code, it.error_message, about, allow=allow)
