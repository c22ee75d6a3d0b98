"""Configs of topics, brokers, groups and mirrors, and reports of pipelines and rolls
(DescribeConfigs, IncrementalAlterConfigs)."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResult
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.pipeline_report import PIPELINE_RESOURCE
from ottla_broker.wire.roll_report import ROLL_RESOURCE
from ottla_operator.kafka.client import BROKER_TIMEOUT_S, KafkaClient, Unreachable, raise_for_error

INVALID_VALUE_ERRORS: Final = (ErrorCode.invalid_config, ErrorCode.invalid_request)
"""Errors that mean that a value is invalid. Requests that failed with another error may succeed
later.
"""
BROKER_NODE: Final = "broker.node"
MIN_ISR: Final = "min.insync.replicas"
DEFAULT_BROKER: Final = ""
"""Name of the broker resource whose configuration applies to all brokers."""
_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "file",
    5: "default",
    6: "logger",
    7: "client-metrics",
    8: "group",
}


class ConfigResourceType(IntEnum):
    """Kafka's types, and Ottla's for mirrors (docs/mirroring.md), pipelines and rolls."""

    topic = 2
    broker = 4
    group = 32
    mirror = 101
    mirrored_topic = 102
    pipeline = PIPELINE_RESOURCE
    roll = ROLL_RESOURCE


class ConfigOperation(IntEnum):
    set = 0
    delete = 1


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """`value` is None if it is sensitive. `source`: topic, broker, cluster (all brokers), file,
    default, …
    """

    name: str
    value: str | None
    source: str


async def describe_configs(
    client: KafkaClient,
    type_: ConfigResourceType,
    names: Iterable[str],
    keys: tuple[str, ...] | None = None,
    *,
    broker: int | None = None,
) -> tuple[DescribeConfigsResult, ...]:
    """Configurations of resources of one type. Raises KafkaError for the first error.

    `keys`: None for all. `broker`: the broker that gets the request; None for any.
    """
    resources = tuple(_describe_resource(type_, name, keys) for name in names)
    if not resources:
        return ()
    request = DescribeConfigsRequest(resources=resources)
    results: tuple[DescribeConfigsResult, ...] = (await client.send(request, broker=broker)).results
    for result in results:
        _raise_for_result(type_, result)
    return results


async def describe_config_at_controller(
    client: KafkaClient, type_: ConfigResourceType, name: str
) -> DescribeConfigsResult:
    """Configuration of one resource, from the controller: other brokers do not know all of it."""
    request = DescribeConfigsRequest(resources=(_describe_resource(type_, name, None),))
    result: DescribeConfigsResult = (await client.send_to_controller(request)).results[0]
    _raise_for_result(type_, result)
    return result


def _describe_resource(type_: ConfigResourceType, name: str, keys: tuple[str, ...] | None) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=i8(type_), resource_name=name, configuration_keys=keys)


def _raise_for_result(type_: ConfigResourceType, result: DescribeConfigsResult) -> None:
    raise_for_error(result.error_code, result.error_message, f"{_label(type_)} {result.resource_name!r}")


async def alter_configs(
    client: KafkaClient,
    type_: ConfigResourceType,
    changes: Mapping[str, Mapping[str, str | None]],
    *,
    broker: int | None = None,
    allow: Collection[ErrorCode] = (),
) -> None:
    """Sets and deletes keys. Raises KafkaError for the first error that is not in `allow`.

    `changes`: resource name → key → value; None deletes the key. `broker`: the broker that gets the
    request, as Apache Kafka alters a broker's configuration only on that broker; None for the
    controller.
    """
    if not any(changes.values()):
        return
    request = IncrementalAlterConfigsRequest(
        resources=tuple(
            AlterConfigsResource(
                resource_type=i8(type_),
                resource_name=name,
                configs=tuple(
                    AlterableConfig(
                        name=key,
                        config_operation=i8(ConfigOperation.delete if value is None else ConfigOperation.set),
                        value=value,
                    )
                    for key, value in values.items()
                ),
            )
            for name, values in changes.items()
        ),
        validate_only=False,
    )
    response = await (client.send_to_controller(request) if broker is None else client.send(request, broker=broker))
    for result in response.responses:
        subject = f"{_label(type_)} {result.resource_name!r}" if result.resource_name else "all brokers"
        raise_for_error(result.error_code, result.error_message, subject, allow=allow)


def _label(type_: ConfigResourceType) -> str:
    return type_.name.replace("_", " ")


async def describe_topic_configs(client: KafkaClient, names: Iterable[str]) -> dict[str, list[ConfigEntry]]:
    """Every setting of each topic, its own and the inherited ones, sorted by name."""
    results = await describe_configs(client, ConfigResourceType.topic, names)
    return {
        result.resource_name: [
            ConfigEntry(str(entry.name), entry.value, _SOURCES.get(entry.config_source, "unknown"))
            for entry in sorted(result.configs, key=lambda it: str(it.name))
        ]
        for result in results
    }


async def describe_topic_overrides(client: KafkaClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Settings that are set on each topic itself."""
    return {
        name: {entry.name: entry.value or "" for entry in entries if entry.source == "topic"}
        for name, entries in (await describe_topic_configs(client, names)).items()
    }


async def alter_topic_config(
    client: KafkaClient, name: str, to_set: Mapping[str, str], to_unset: Iterable[str]
) -> None:
    await alter_configs(client, ConfigResourceType.topic, {name: {**to_set, **dict.fromkeys(to_unset)}})


async def describe_group_overrides(client: KafkaClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Settings that are set on each group itself."""
    results = await describe_configs(client, ConfigResourceType.group, names)
    return {
        result.resource_name: {
            str(entry.name): entry.value or ""
            for entry in result.configs
            if _SOURCES.get(entry.config_source) == "group"
        }
        for result in results
    }


async def alter_group_config(
    client: KafkaClient, name: str, to_set: Mapping[str, str], to_unset: Iterable[str]
) -> None:
    await alter_configs(client, ConfigResourceType.group, {name: {**to_set, **dict.fromkeys(to_unset)}})


async def describe_min_isr(client: KafkaClient, topics: Iterable[str]) -> dict[str, int]:
    """Topic → effective min.insync.replicas."""
    results = await describe_configs(client, ConfigResourceType.topic, topics, (MIN_ISR,))
    return {
        result.resource_name: int(str(next(entry.value for entry in result.configs if entry.name == MIN_ISR)))
        for result in results
    }


async def describe_nodes(client: KafkaClient, brokers: Iterable[int]) -> dict[int, str]:
    """Broker → its broker.node. Omits brokers that have none (Apache Kafka, earlier versions) or do
    not respond; empty if the user may not describe configurations of the cluster.
    """
    ids = list(brokers)
    found = await asyncio.gather(*(_describe_node(client, it) for it in ids))
    return {broker: node for broker, node in zip(ids, found, strict=True) if node}


async def _describe_node(client: KafkaClient, broker: int) -> str | None:
    try:
        async with asyncio.timeout(BROKER_TIMEOUT_S):
            (result,) = await describe_configs(
                client, ConfigResourceType.broker, (str(broker),), (BROKER_NODE,), broker=broker
            )
    except (Unreachable, TimeoutError):
        return None
    except KafkaError as error:
        if error.code in (ErrorCode.broker_not_available, ErrorCode.cluster_authorization_failed):
            return None
        raise
    return next((entry.value for entry in result.configs if entry.name == BROKER_NODE), None)


async def list_dynamic_broker_configs(client: KafkaClient, broker: int) -> set[str]:
    """Settings that can be altered while the broker runs."""
    (result,) = await describe_configs(client, ConfigResourceType.broker, (str(broker),), broker=broker)
    return {str(entry.name) for entry in result.configs if not entry.read_only}


async def alter_default_broker_configs(client: KafkaClient, to_set: Mapping[str, str], to_unset: Iterable[str]) -> None:
    """Alters settings of all brokers. Raises KafkaError if one is refused; then none is altered."""
    changes = {DEFAULT_BROKER: {**to_set, **dict.fromkeys(to_unset)}}
    await alter_configs(client, ConfigResourceType.broker, changes)
