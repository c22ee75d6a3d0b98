"""Mirrors as brokers keep them: their settings, and how their copies are (config resources 101 and 102, docs/mirroring.md)."""

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from typing import Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResult
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.static.primitive import i8

from ottla_operator.kafka import cluster, topics
from ottla_operator.kafka.client import KafkaClient, Unreachable, raise_for_error
from ottla_operator.kafka.topics import DELETE, SET
from ottla_operator.plan.mirror import UNKNOWN, UNREPORTED, ObservedMirror, ObservedMirrorPartition

MIRROR: Final = 101
MIRRORED_TOPIC: Final = 102
SET_HERE: Final = 101  # where a setting's value comes from: the mirror itself


async def list_mirrors(link: KafkaClient) -> list[str]:
    answer = await link.ask(ListConfigResourcesRequest(resource_types=(i8(MIRROR),)))
    raise_for_error(answer.error_code, None, "mirrors")
    return sorted(it.resource_name for it in answer.config_resources)


async def describe_mirror(link: KafkaClient, name: str) -> ObservedMirror:
    """No settings for a mirror that is not there."""
    resource = DescribeConfigsResource(resource_type=i8(MIRROR), resource_name=name, configuration_keys=None)
    (result,) = (await link.ask_controller(DescribeConfigsRequest(resources=(resource,)))).results
    raise_for_error(result.error_code, result.error_message, f"mirror {name!r}")
    told = {str(it.name): it.value or "" for it in result.configs if it.read_only}
    return ObservedMirror(
        {it.name: it.value or "" for it in result.configs if it.config_source == SET_HERE and not it.read_only},
        told.get("trouble", ""),
        json.loads(told.get("refused", "{}")),
    )


async def alter_mirror(link: KafkaClient, name: str, changes: Mapping[str, str | None]) -> None:
    """None takes a setting off. A mirror without settings is none."""
    configs = tuple(
        AlterableConfig(name=key, config_operation=i8(DELETE if value is None else SET), value=value)
        for key, value in changes.items()
    )
    resource = AlterConfigsResource(resource_type=i8(MIRROR), resource_name=name, configs=configs)
    answer = await link.ask_controller(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    (result,) = answer.responses
    raise_for_error(result.error_code, result.error_message, f"mirror {name!r}")


async def describe_mirrored_partitions(link: KafkaClient, name: str) -> list[ObservedMirrorPartition]:
    """Every partition of the mirror's copies, as its leader tells; `UNTOLD` are those that nobody tells of, because they have no leader, or that does not
    answer: every broker knows which topics are copies, and how many partitions of a source are appended."""
    every = [it for it in await topics.list_topics(link) if not it.is_internal]
    brokers = [it.id for it in (await cluster.describe_cluster(link)).brokers]
    told = await asyncio.gather(*(_told_by(link, broker, [it.name for it in every], name) for broker in brokers))
    seen = [it for some, _ in told for it in some]
    copied = {topic: partitions for _, known in told for topic, partitions in known.items()}
    places = {(it.topic, it.partition) for it in seen}
    seen += [
        ObservedMirrorPartition(topic.name, it.index, UNREPORTED, UNKNOWN, reason=_why_untold(it.leader))
        for topic in every
        for it in topic.partitions
        if it.index < copied.get(topic.name, 0) and (topic.name, it.index) not in places
    ]
    return sorted(seen, key=lambda it: (it.topic, it.partition))


def _why_untold(leader: int) -> str:
    return "it has no leader" if leader < 0 else f"its leader, broker {leader}, does not tell"


async def _told_by(
    link: KafkaClient, broker: int, found: Iterable[str], mirror: str
) -> tuple[list[ObservedMirrorPartition], dict[str, float]]:
    """The partitions that it leads; and of how many partitions of each topic the mirror has copies, all of them where copies are identical."""
    try:
        results = await _described(link, broker, MIRRORED_TOPIC, found)
    except Unreachable:
        return [], {}
    seen: list[ObservedMirrorPartition] = []
    copies: dict[str, float] = {}
    for result in results:
        values = {str(it.name): it.value or "" for it in result.configs}
        own = {key.removeprefix(f"{mirror}/"): it for key, it in values.items() if key.startswith(f"{mirror}/")}
        if "source.partitions" in own:
            copies[result.resource_name] = int(own["source.partitions"])
        if values.get("mirror") == mirror:
            copies[result.resource_name] = math.inf
            own |= values
        seen += [_seen(result.resource_name, key, value) for key, value in own.items() if key.isdigit()]
    return seen, copies


def _seen(topic: str, partition: str, value: str) -> ObservedMirrorPartition:
    told = json.loads(value)
    return ObservedMirrorPartition(
        topic,
        int(partition),
        told["state"],
        told["end"],
        told.get("sourceEnd", UNKNOWN),
        told.get("lag", UNKNOWN),
        told.get("lagSeconds", UNKNOWN),
        told.get("sourceEpoch", UNKNOWN),
        told.get("why", ""),
        told.get("diverging", 0),
        told.get("lagBytes", UNKNOWN),
        told.get("silentSeconds", UNKNOWN),
    )


async def _described(
    link: KafkaClient, broker: int | None, kind: int, wanted: Iterable[str]
) -> tuple[DescribeConfigsResult, ...]:
    resources = tuple(
        DescribeConfigsResource(resource_type=i8(kind), resource_name=name, configuration_keys=None) for name in wanted
    )
    if not resources:
        return ()
    results: tuple[DescribeConfigsResult, ...] = (
        await link.ask(DescribeConfigsRequest(resources=resources), broker=broker)
    ).results
    for result in results:
        raise_for_error(result.error_code, result.error_message, result.resource_name)
    return results
