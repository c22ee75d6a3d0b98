"""The APIs of configs against a whole broker."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from kio.schema.alter_configs.v2 import request as alter_schema
from kio.schema.describe_configs.v4 import request as describe_schema
from kio.schema.describe_configs.v4.response import DescribeConfigsResult
from kio.schema.incremental_alter_configs.v1 import request as incremental_schema
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.static.primitive import i8

from ottla_broker.api.alter_configs import alter_configs
from ottla_broker.api.describe_configs import describe_configs
from ottla_broker.api.incremental_alter_configs import ConfigOperation, incremental_alter_configs
from ottla_broker.api.list_config_resources import list_config_resources
from ottla_broker.broker import Broker
from ottla_broker.config import MAX_CONNECTIONS, ConfigSource
from ottla_broker.requests.config_resources import ConfigResource
from ottla_broker.wire.errors import ErrorCode, KafkaError

from .running import Nobody, broker, context

TOPIC, BROKER, LOGGER = ConfigResource.TOPIC, ConfigResource.BROKER, ConfigResource.BROKER_LOGGER
SET, DELETE, APPEND, SUBTRACT = (
    ConfigOperation.SET,
    ConfigOperation.DELETE,
    ConfigOperation.APPEND,
    ConfigOperation.SUBTRACT,
)
Said = tuple[ErrorCode, str | None]


async def incrementally(
    on: Broker, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Said:
    resource = incremental_schema.AlterConfigsResource(
        resource_type=cast(i8, int(kind)),
        resource_name=name,
        configs=tuple(
            incremental_schema.AlterableConfig(name=key, config_operation=cast(i8, int(change)), value=value)
            for key, change, value in changes
        ),
    )
    request = incremental_schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    (response,) = (await incremental_alter_configs(context(on, 1), request)).responses
    return response.error_code, response.error_message


async def wholly(on: Broker, kind: int, name: str, configs: Mapping[str, str | None]) -> Said:
    resource = alter_schema.AlterConfigsResource(
        resource_type=cast(i8, int(kind)),
        resource_name=name,
        configs=tuple(alter_schema.AlterableConfig(name=key, value=value) for key, value in configs.items()),
    )
    request = alter_schema.AlterConfigsRequest(resources=(resource,), validate_only=False)
    (response,) = (await alter_configs(context(on, 2), request)).responses
    return response.error_code, response.error_message


async def described(on: Broker, kind: int, name: str, *keys: str) -> DescribeConfigsResult:
    resource = describe_schema.DescribeConfigsResource(
        resource_type=cast(i8, int(kind)), resource_name=name, configuration_keys=keys or None
    )
    request = describe_schema.DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=True
    )
    (result,) = (await describe_configs(context(on, 4), request)).results
    return result


async def value(on: Broker, kind: int, name: str, key: str) -> tuple[str | None, ConfigSource]:
    (config,) = (await described(on, kind, name, key)).configs
    return config.value, ConfigSource(config.config_source)


def test_a_topics_settings_are_set_deleted_and_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:
            assert await incrementally(on, TOPIC, "t", ("segment.ms", SET, "7")) == (ErrorCode.none, None)
            assert await value(on, TOPIC, "t", "segment.ms") == ("7", ConfigSource.DYNAMIC_TOPIC_CONFIG)
            assert await value(on, TOPIC, "t", "retention.ms") == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
            partition = on.partitions.leader("t", 0)
            assert (partition.log.config.segment_ms, partition.log.config.retention_ms) == (7, 5)
            await incrementally(on, TOPIC, "t", ("retention.ms", DELETE, None))
            assert await value(on, TOPIC, "t", "retention.ms") == ("604800000", ConfigSource.DEFAULT_CONFIG)
            assert partition.log.config.retention_ms == 604800000
            result = await described(on, TOPIC, "t")
            assert len(result.configs) == 33
            assert all(config.documentation for config in result.configs)

    asyncio.run(scenario())


def test_lists_grow_and_shrink_as_they_count(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:
            for change, entries, after in (
                (APPEND, "compact", "delete,compact"),  # not set before: the default is appended to
                (APPEND, "compact", "delete,compact"),
                (SUBTRACT, "delete,absent", "compact"),
                (APPEND, "delete", "compact,delete"),
            ):
                assert (await incrementally(on, TOPIC, "t", ("cleanup.policy", change, entries)))[0] is ErrorCode.none
                assert (await value(on, TOPIC, "t", "cleanup.policy"))[0] == after
            throttled = "leader.replication.throttled.replicas"
            await incrementally(on, TOPIC, "t", (throttled, APPEND, "0:1,1:1"))
            await incrementally(on, TOPIC, "t", (throttled, SUBTRACT, "0:1,1:1"))
            assert (await value(on, TOPIC, "t", throttled))[0] == ""
            code, message = await incrementally(on, TOPIC, "t", ("segment.ms", APPEND, "1"))
            assert code is ErrorCode.invalid_config
            assert "segment.ms is no list" in str(message)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "sentence"),
    [
        (TOPIC, "t", [("cleanup.policy", SET, "x")], ErrorCode.invalid_config, "allowed: a comma-separated list of"),
        (TOPIC, "t", [("cleanup.polcy", SET, "x")], ErrorCode.invalid_config, "did you mean cleanup.policy?"),
        (TOPIC, "none", [("segment.ms", SET, "1")], ErrorCode.unknown_topic_or_partition, "there is no topic 'none'"),
        (TOPIC, "a/b", [("segment.ms", SET, "1")], ErrorCode.invalid_topic_exception, "allowed are"),
        (TOPIC, "t", [("segment.ms", SET, None)], ErrorCode.invalid_request, "segment.ms has no value"),
        (TOPIC, "t", [("segment.ms", 9, "1")], ErrorCode.invalid_request, "operation 9 is none of 0 to 3"),
        (TOPIC, "t", [("segment.ms", SET, "1")] * 2, ErrorCode.invalid_request, "names segment.ms twice"),
        (BROKER, "one", [("max.connections", SET, "1")], ErrorCode.invalid_request, "'one' is no broker id"),
        (BROKER, "1", [("num.partitions", SET, "1")], ErrorCode.invalid_request, "num.partitions is read-only"),
        (LOGGER, "2", [("root", SET, "INFO")], ErrorCode.invalid_request, "this is broker 1"),
        (LOGGER, "1", [("root", SET, "LOUD")], ErrorCode.invalid_config, "allowed: TRACE, DEBUG"),
        (LOGGER, "1", [("root", APPEND, "INFO")], ErrorCode.invalid_request, "can only be set or deleted"),
        (ConfigResource.GROUP, "g", [("consumer.session.timeout.ms", SET, "1")], ErrorCode.invalid_config, "groups"),
        (ConfigResource.CLIENT_METRICS, "m", [("match", SET, "1")], ErrorCode.invalid_config, "not collected"),
        (3, "t", [("a", SET, "1")], ErrorCode.invalid_request, "resource type 3 has no configs"),
        (3, "t", [("a", APPEND, "1")], ErrorCode.invalid_request, "resource type 3 has no configs"),
    ],
)
def test_what_is_refused_changes_nothing(
    tmp_path: Path, kind: int, name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode, sentence: str
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:
            before = on.image.end_offset
            said = await incrementally(on, kind, name, *changes)
            assert said[0] is code
            assert sentence in str(said[1])
            assert on.image.end_offset == before

    asyncio.run(scenario())


def test_one_wrong_setting_holds_back_the_others_of_its_resource(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:
            said = await incrementally(on, TOPIC, "t", ("segment.ms", SET, "7"), ("segment.bytes", SET, "no"))
            assert said[0] is ErrorCode.invalid_config
            assert (await value(on, TOPIC, "t", "segment.ms"))[1] is ConfigSource.DEFAULT_CONFIG

    asyncio.run(scenario())


def test_validate_only_says_the_same_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:
            before = on.image.end_offset
            wrong, right = ("segment.ms", SET, "no"), ("segment.ms", SET, "7")
            assert (await incrementally(on, TOPIC, "t", wrong, validate_only=True))[0] is ErrorCode.invalid_config
            assert await incrementally(on, TOPIC, "t", right, validate_only=True) == (ErrorCode.none, None)
            assert on.image.end_offset == before

    asyncio.run(scenario())


def test_brokers_have_their_own_value_over_the_default_of_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, max_connections="3") as on:
            key = "max.connections"
            assert await value(on, BROKER, "1", key) == ("3", ConfigSource.STATIC_BROKER_CONFIG)
            await incrementally(on, BROKER, "", (key, SET, "4"))
            assert on.config(MAX_CONNECTIONS) == 4
            await incrementally(on, BROKER, "1", (key, SET, "5"))
            assert on.config(MAX_CONNECTIONS) == 5
            (config,) = (await described(on, BROKER, "1", key)).configs
            assert [(ConfigSource(synonym.source), synonym.value) for synonym in config.synonyms] == [
                (ConfigSource.DYNAMIC_BROKER_CONFIG, "5"),
                (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, "4"),
                (ConfigSource.STATIC_BROKER_CONFIG, "3"),
                (ConfigSource.DEFAULT_CONFIG, "2147483647"),
            ]
            assert [config.name for config in (await described(on, BROKER, "")).configs] == [key]
            await incrementally(on, BROKER, "1", (key, DELETE, None))
            await incrementally(on, BROKER, "", (key, DELETE, None))
            assert on.config(MAX_CONNECTIONS) == 3
            other = await described(on, BROKER, "2")
            assert other.error_code is ErrorCode.invalid_request
            assert "send this request to broker '2'" in str(other.error_message)

    asyncio.run(scenario())


def test_a_default_of_all_brokers_reaches_the_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:
            await incrementally(on, BROKER, "", ("message.max.bytes", SET, "99"))
            assert await value(on, TOPIC, "t", "max.message.bytes") == (
                "99",
                ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            )
            assert on.partitions.leader("t", 0).log.config.max_message_bytes == 99

    asyncio.run(scenario())


def test_alter_configs_replaces_all_that_was_set(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:
            assert await wholly(on, TOPIC, "t", {"segment.ms": "9"}) == (ErrorCode.none, None)
            assert on.image.topic_config("t") == {"segment.ms": "9"}
            assert (await wholly(on, TOPIC, "t", {"segment.ms": None}))[0] is ErrorCode.invalid_request
            assert (await wholly(on, LOGGER, "1", {"root": "INFO"}))[0] is ErrorCode.invalid_request
            assert (await wholly(on, TOPIC, "t", {"segment": "9"}))[0] is ErrorCode.invalid_config
            assert on.image.topic_config("t") == {"segment.ms": "9"}
            assert await wholly(on, TOPIC, "t", {}) == (ErrorCode.none, None)
            assert on.image.topic_config("t") == {}

    asyncio.run(scenario())


def test_configs_survive_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:
            await incrementally(on, TOPIC, "t", ("segment.ms", SET, "7"))
            await incrementally(on, BROKER, "", ("max.connections", SET, "6"))
        async with broker(tmp_path) as on:
            assert on.config(MAX_CONNECTIONS) == 6
            assert on.partitions.leader("t", 1).log.config.segment_ms == 7

    asyncio.run(scenario())


def test_levels_of_this_brokers_loggers(tmp_path: Path) -> None:
    name = "ottla_broker.broker"

    async def scenario() -> None:
        async with broker(tmp_path) as on:
            assert await incrementally(on, LOGGER, "1", (name, SET, "ERROR"), validate_only=True) == (
                ErrorCode.none,
                None,
            )
            assert logging.getLogger(name).level == logging.NOTSET
            assert await incrementally(on, LOGGER, "1", (name, SET, "ERROR")) == (ErrorCode.none, None)
            assert await value(on, LOGGER, "1", name) == ("ERROR", ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)
            await incrementally(on, LOGGER, "1", (name, DELETE, None))
            assert logging.getLogger(name).level == logging.NOTSET

    asyncio.run(scenario())


def test_resources_are_listed_by_kind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:

            async def listed(version: int, *kinds: int) -> list[tuple[int, str]]:
                request = ListConfigResourcesRequest(resource_types=tuple(cast(i8, kind) for kind in kinds))
                response = await list_config_resources(context(on, version), request)
                return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]

            assert await listed(1) == [(2, "t"), (4, "1"), (8, "1")]
            assert await listed(1, 4) == [(4, "1")]
            assert await listed(1, 16, 32) == []
            assert await listed(0) == []
            with pytest.raises(KafkaError) as refused:
                await listed(1, 99)
            assert refused.value.code is ErrorCode.unsupported_version

    asyncio.run(scenario())


def test_who_may_not_is_told_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as on:
            expected = {
                TOPIC: ErrorCode.topic_authorization_failed,
                BROKER: ErrorCode.cluster_authorization_failed,
                ConfigResource.GROUP: ErrorCode.group_authorization_failed,
            }
            request = describe_schema.DescribeConfigsRequest(
                resources=tuple(
                    describe_schema.DescribeConfigsResource(
                        resource_type=cast(i8, int(kind)), resource_name="t", configuration_keys=None
                    )
                    for kind in expected
                )
            )
            answer = await describe_configs(context(on, 4, Nobody()), request)
            assert [result.error_code for result in answer.results] == list(expected.values())
            with pytest.raises(KafkaError) as refused:
                await list_config_resources(context(on, 1, Nobody()), ListConfigResourcesRequest())
            assert refused.value.code is ErrorCode.cluster_authorization_failed

    asyncio.run(scenario())
