"""Mirrors on the brokers: configuration and state (config resource types 101 and 102,
docs/mirroring.md).
"""

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from typing import Final

from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.static.primitive import i8

from ottla_operator.kafka import cluster, topics
from ottla_operator.kafka.client import KafkaClient, Unreachable, raise_for_error
from ottla_operator.kafka.configs import (
    ConfigResourceType,
    alter_configs,
    describe_config_at_controller,
    describe_configs,
)
from ottla_operator.plan.mirror import UNKNOWN, UNREPORTED, ObservedMirror, ObservedMirrorPartition

_SOURCE_MIRROR: Final = 101
"""config_source of settings that are set on the mirror."""


async def list_mirrors(client: KafkaClient) -> list[str]:
    response = await client.send(ListConfigResourcesRequest(resource_types=(i8(ConfigResourceType.mirror),)))
    raise_for_error(response.error_code, None, "mirrors")
    return sorted(it.resource_name for it in response.config_resources)


async def describe_mirror(client: KafkaClient, name: str) -> ObservedMirror:
    """The mirror as the controller reports it. One that does not exist has no settings."""
    result = await describe_config_at_controller(client, ConfigResourceType.mirror, name)
    state = {str(it.name): it.value or "" for it in result.configs if it.read_only}
    return ObservedMirror(
        {it.name: it.value or "" for it in result.configs if it.config_source == _SOURCE_MIRROR and not it.read_only},
        state.get("trouble", ""),
        json.loads(state.get("refused", "{}")),
        state.get("target.error", ""),
    )


async def alter_mirror(client: KafkaClient, name: str, changes: Mapping[str, str | None]) -> None:
    """Sets settings, or deletes those whose value is None. A mirror without settings is deleted."""
    await alter_configs(client, ConfigResourceType.mirror, {name: changes})


async def describe_mirrored_partitions(client: KafkaClient, mirror: str) -> list[ObservedMirrorPartition]:
    """State of every mirrored partition, as its leader reports it, sorted by partition.

    Partitions without a leader, and those whose leader does not respond, are UNREPORTED. Every
    broker knows which topics are mirrored, and how many of their partitions.
    """
    found = [topic for topic in await topics.list_topics(client) if not topic.is_internal]
    names = [topic.name for topic in found]
    brokers = await cluster.list_broker_ids(client)
    reports = await asyncio.gather(*(_report_of_broker(client, broker, names, mirror) for broker in brokers))
    partitions = [partition for of_broker, _ in reports for partition in of_broker]
    mirrored = {topic: count for _, counts in reports for topic, count in counts.items()}
    reported = {(it.topic, it.partition) for it in partitions}
    partitions += [
        ObservedMirrorPartition(topic.name, it.index, UNREPORTED, UNKNOWN, reason=_unreported_reason(it.leader))
        for topic in found
        for it in topic.partitions
        if it.index < mirrored.get(topic.name, 0) and (topic.name, it.index) not in reported
    ]
    return sorted(partitions, key=lambda it: (it.topic, it.partition))


def _unreported_reason(leader: int) -> str:
    return "the partition has no leader" if leader < 0 else f"its leader, broker {leader}, does not report"


async def _report_of_broker(
    client: KafkaClient, broker: int, names: Iterable[str], mirror: str
) -> tuple[list[ObservedMirrorPartition], dict[str, float]]:
    """The mirrored partitions that a broker leads, and the number of mirrored partitions of each
    topic (inf: all). Both are empty if the broker does not respond.
    """
    try:
        results = await describe_configs(client, ConfigResourceType.mirrored_topic, names, broker=broker)
    except Unreachable:
        return [], {}
    partitions: list[ObservedMirrorPartition] = []
    counts: dict[str, float] = {}
    for result in results:
        values = {str(it.name): it.value or "" for it in result.configs}
        state = {key.removeprefix(f"{mirror}/"): it for key, it in values.items() if key.startswith(f"{mirror}/")}
        if "source.partitions" in state:
            counts[result.resource_name] = int(state["source.partitions"])
        if values.get("mirror") == mirror:
            counts[result.resource_name] = math.inf
            state |= values
        partitions += [_partition(result.resource_name, key, value) for key, value in state.items() if key.isdigit()]
    return partitions, counts


def _partition(topic: str, index: str, value: str) -> ObservedMirrorPartition:
    state = json.loads(value)
    return ObservedMirrorPartition(
        topic,
        int(index),
        state["state"],
        state["end"],
        state.get("sourceEnd", UNKNOWN),
        state.get("lag", UNKNOWN),
        state.get("lagSeconds", UNKNOWN),
        state.get("sourceEpoch", UNKNOWN),
        state.get("why", ""),
        state.get("diverging", 0),
        state.get("lagBytes", UNKNOWN),
        state.get("silentSeconds", UNKNOWN),
    )
