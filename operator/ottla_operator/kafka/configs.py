"""Settings of all brokers of a cluster that change while they run (the broker resource without a name)."""

from collections.abc import Iterable, Mapping
from typing import Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.wire.errors import ErrorCode
from ottla_operator.kafka.client import KafkaClient, raise_for_error
from ottla_operator.kafka.topics import BROKER_RESOURCE, DELETE, SET, TOPIC_RESOURCE

ALL_BROKERS: Final = ""
MIN_ISR: Final = "min.insync.replicas"
INVALID_VALUE_ERRORS: Final = (ErrorCode.invalid_config, ErrorCode.invalid_request)
"""Codes by which brokers say that a value is wrong. With any other it may be right, and is to be tried again."""


async def list_dynamic_broker_configs(link: KafkaClient, broker: int) -> set[str]:
    """Settings that a running broker takes."""
    resource = DescribeConfigsResource(
        resource_type=i8(BROKER_RESOURCE), resource_name=str(broker), configuration_keys=None
    )
    (result,) = (await link.ask(DescribeConfigsRequest(resources=(resource,)), broker=broker)).results
    raise_for_error(result.error_code, result.error_message, f"broker {broker}")
    return {it.name for it in result.configs if not it.read_only}


async def alter_default_broker_configs(link: KafkaClient, to_set: Mapping[str, str], to_unset: Iterable[str]) -> None:
    """Sets some for all brokers, and takes others off. KafkaError when one is refused; then none is changed."""
    changes = [
        *(AlterableConfig(name=key, config_operation=i8(SET), value=value) for key, value in to_set.items()),
        *(AlterableConfig(name=key, config_operation=i8(DELETE), value=None) for key in to_unset),
    ]
    if not changes:
        return
    resource = AlterConfigsResource(
        resource_type=i8(BROKER_RESOURCE), resource_name=ALL_BROKERS, configs=tuple(changes)
    )
    answer = await link.ask_controller(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    (result,) = answer.responses
    raise_for_error(result.error_code, result.error_message, "settings of all brokers")


async def describe_min_isr(link: KafkaClient, topics: Iterable[str]) -> dict[str, int]:
    """The min.insync.replicas that hold for each topic."""
    resources = tuple(
        DescribeConfigsResource(resource_type=i8(TOPIC_RESOURCE), resource_name=it, configuration_keys=(MIN_ISR,))
        for it in topics
    )
    if not resources:
        return {}
    found: dict[str, int] = {}
    for result in (await link.ask(DescribeConfigsRequest(resources=resources))).results:
        raise_for_error(result.error_code, result.error_message, f"topic {result.resource_name!r}")
        found[result.resource_name] = int(next(it.value for it in result.configs if it.name == MIN_ISR))
    return found
