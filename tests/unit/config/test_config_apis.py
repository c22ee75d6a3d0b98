"""APIs that describe and alter configs, on a broker without sockets."""

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
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DenyAll
from tests.unit.config.api_broker import broker_with_topic, context

TOPIC, BROKER, LOGGER = ConfigResource.TOPIC, ConfigResource.BROKER, ConfigResource.BROKER_LOGGER
SET, DELETE, APPEND, SUBTRACT = (
    ConfigOperation.SET,
    ConfigOperation.DELETE,
    ConfigOperation.APPEND,
    ConfigOperation.SUBTRACT,
)
Result = tuple[ErrorCode, str | None]


async def alter(
    broker: Broker, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Result:
    """`changes`: (config, operation, value). Returns the error code and message."""
    resource = incremental_schema.AlterConfigsResource(
        resource_type=cast(i8, int(kind)),
        resource_name=name,
        configs=tuple(
            incremental_schema.AlterableConfig(name=key, config_operation=cast(i8, int(change)), value=value)
            for key, change, value in changes
        ),
    )
    request = incremental_schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    (response,) = (await incremental_alter_configs(context(broker, 1), request)).responses
    return response.error_code, response.error_message


async def replace_configs(broker: Broker, kind: int, name: str, configs: Mapping[str, str | None]) -> Result:
    """Sends AlterConfigs, which removes all other configs. Returns the error code and message."""
    resource = alter_schema.AlterConfigsResource(
        resource_type=cast(i8, int(kind)),
        resource_name=name,
        configs=tuple(alter_schema.AlterableConfig(name=key, value=value) for key, value in configs.items()),
    )
    request = alter_schema.AlterConfigsRequest(resources=(resource,), validate_only=False)
    (response,) = (await alter_configs(context(broker, 2), request)).responses
    return response.error_code, response.error_message


async def describe(broker: Broker, kind: int, name: str, *keys: str) -> DescribeConfigsResult:
    resource = describe_schema.DescribeConfigsResource(
        resource_type=cast(i8, int(kind)), resource_name=name, configuration_keys=keys or None
    )
    request = describe_schema.DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=True
    )
    (result,) = (await describe_configs(context(broker, 4), request)).results
    return result


async def get_value(broker: Broker, kind: int, name: str, key: str) -> tuple[str | None, ConfigSource]:
    (config,) = (await describe(broker, kind, name, key)).configs
    return config.value, ConfigSource(config.config_source)


@async_test
async def test_topic_configs_are_set_deleted_and_described(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        assert await alter(broker, TOPIC, "t", ("segment.ms", SET, "7")) == (ErrorCode.none, None)
        assert await get_value(broker, TOPIC, "t", "segment.ms") == ("7", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert await get_value(broker, TOPIC, "t", "retention.ms") == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        partition = broker.partitions.leader("t", 0)
        assert (partition.log.config.segment_ms, partition.log.config.retention_ms) == (7, 5)
        await alter(broker, TOPIC, "t", ("retention.ms", DELETE, None))
        assert await get_value(broker, TOPIC, "t", "retention.ms") == (
            "604800000",
            ConfigSource.DEFAULT_CONFIG,
        )
        assert partition.log.config.retention_ms == 604800000
        result = await describe(broker, TOPIC, "t")
        assert len(result.configs) == 33
        assert all(config.documentation for config in result.configs)


@async_test
async def test_values_are_appended_to_and_subtracted_from_lists(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        for operation, entries, expected in (
            (APPEND, "compact,compact", "delete,compact"),  # not set yet, so it is appended to the default
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete,absent", "compact"),
            (APPEND, "delete", "compact,delete"),
        ):
            assert (await alter(broker, TOPIC, "t", ("cleanup.policy", operation, entries)))[0] is ErrorCode.none
            assert (await get_value(broker, TOPIC, "t", "cleanup.policy"))[0] == expected
        throttled = "leader.replication.throttled.replicas"
        await alter(broker, TOPIC, "t", (throttled, APPEND, "0:1,1:1"))
        await alter(broker, TOPIC, "t", (throttled, SUBTRACT, "0:1,1:1"))
        assert (await get_value(broker, TOPIC, "t", throttled))[0] == ""
        code, message = await alter(broker, TOPIC, "t", ("segment.ms", APPEND, "1"))
        assert code is ErrorCode.invalid_config
        assert "segment.ms is not a list" in str(message)


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
        (BROKER, "one", [("max.connections", SET, "1")], ErrorCode.invalid_request, "'one' is not a broker id"),
        (BROKER, "1", [("num.partitions", SET, "1")], ErrorCode.invalid_request, "num.partitions is read-only"),
        (LOGGER, "2", [("root", SET, "INFO")], ErrorCode.invalid_request, "this is broker 1"),
        (LOGGER, "1", [("root", SET, "LOUD")], ErrorCode.invalid_config, "allowed: TRACE, DEBUG"),
        (LOGGER, "1", [("root", APPEND, "INFO")], ErrorCode.invalid_request, "can only be set or deleted"),
        (ConfigResource.GROUP, "g", [("consumer.session.timeout.ms", SET, "1")], ErrorCode.invalid_config, "45000"),
        (ConfigResource.GROUP, "g", [("streams.num.standby.replicas", SET, "3")], ErrorCode.invalid_config, "most 2"),
        (ConfigResource.GROUP, "g", [("no.such", SET, "1")], ErrorCode.invalid_config, "setting of a group"),
        (ConfigResource.CLIENT_METRICS, "m", [("match", SET, "1")], ErrorCode.invalid_config, "PARAMETER=REGULAR"),
        (ConfigResource.CLIENT_METRICS, "m", [("match", SET, "client_id=(")], ErrorCode.invalid_config, "is malformed"),
        (ConfigResource.CLIENT_METRICS, "m", [("interval.ms", SET, "99")], ErrorCode.invalid_request, "100 to 3600000"),
        (ConfigResource.CLIENT_METRICS, "m", [("interval.ms", SET, "x")], ErrorCode.invalid_config, "interval.ms"),
        (ConfigResource.CLIENT_METRICS, "m", [("retention.ms", SET, "1")], ErrorCode.invalid_request, "retention.ms"),
        (ConfigResource.CLIENT_METRICS, "", [("metrics", SET, "*")], ErrorCode.invalid_request, "a name is required"),
        (3, "t", [("a", SET, "1")], ErrorCode.invalid_request, "resource type 3 has no configs"),
        (3, "t", [("a", APPEND, "1")], ErrorCode.invalid_request, "resource type 3 has no configs"),
    ],
)
@async_test
async def test_rejected_change_has_no_effect(
    tmp_path: Path, kind: int, name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode, sentence: str
) -> None:
    async with broker_with_topic(tmp_path) as broker:
        before = broker.image.end_offset
        result = await alter(broker, kind, name, *changes)
        assert result[0] is code
        assert sentence in str(result[1])
        assert broker.image.end_offset == before


@async_test
async def test_invalid_value_rejects_all_changes_of_its_resource(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        result = await alter(broker, TOPIC, "t", ("segment.ms", SET, "7"), ("segment.bytes", SET, "no"))
        assert result[0] is ErrorCode.invalid_config
        assert (await get_value(broker, TOPIC, "t", "segment.ms"))[1] is ConfigSource.DEFAULT_CONFIG


@async_test
async def test_validate_only_returns_the_same_errors_and_changes_nothing(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        before = broker.image.end_offset
        invalid, valid = ("segment.ms", SET, "no"), ("segment.ms", SET, "7")
        assert (await alter(broker, TOPIC, "t", invalid, validate_only=True))[0] is ErrorCode.invalid_config
        assert await alter(broker, TOPIC, "t", valid, validate_only=True) == (ErrorCode.none, None)
        assert broker.image.end_offset == before


@async_test
async def test_config_of_a_broker_takes_precedence_over_the_cluster_default(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path, max_connections="3") as broker:
        key = "max.connections"
        assert await get_value(broker, BROKER, "1", key) == ("3", ConfigSource.STATIC_BROKER_CONFIG)
        await alter(broker, BROKER, "", (key, SET, "4"))
        assert broker.config(MAX_CONNECTIONS) == 4
        await alter(broker, BROKER, "1", (key, SET, "5"))
        assert broker.config(MAX_CONNECTIONS) == 5
        (config,) = (await describe(broker, BROKER, "1", key)).configs
        assert [(ConfigSource(synonym.source), synonym.value) for synonym in config.synonyms] == [
            (ConfigSource.DYNAMIC_BROKER_CONFIG, "5"),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, "4"),
            (ConfigSource.STATIC_BROKER_CONFIG, "3"),
            (ConfigSource.DEFAULT_CONFIG, "2147483647"),
        ]
        assert [config.name for config in (await describe(broker, BROKER, "")).configs] == [key]
        await alter(broker, BROKER, "1", (key, DELETE, None))
        await alter(broker, BROKER, "", (key, DELETE, None))
        assert broker.config(MAX_CONNECTIONS) == 3
        other = await describe(broker, BROKER, "2")
        assert other.error_code is ErrorCode.invalid_request
        assert "send this request to broker '2'" in str(other.error_message)


@async_test
async def test_cluster_default_applies_to_topics(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        await alter(broker, BROKER, "", ("message.max.bytes", SET, "99"))
        assert await get_value(broker, TOPIC, "t", "max.message.bytes") == (
            "99",
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        )
        assert broker.partitions.leader("t", 0).log.config.max_message_bytes == 99


@async_test
async def test_alter_configs_replaces_all_configs_of_a_topic(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        assert await replace_configs(broker, TOPIC, "t", {"segment.ms": "9"}) == (ErrorCode.none, None)
        assert broker.image.topic_config("t") == {"segment.ms": "9"}
        assert (await replace_configs(broker, TOPIC, "t", {"segment.ms": None}))[0] is ErrorCode.invalid_request
        assert (await replace_configs(broker, LOGGER, "1", {"root": "INFO"}))[0] is ErrorCode.invalid_request
        assert (await replace_configs(broker, TOPIC, "t", {"segment": "9"}))[0] is ErrorCode.invalid_config
        assert broker.image.topic_config("t") == {"segment.ms": "9"}
        assert await replace_configs(broker, TOPIC, "t", {}) == (ErrorCode.none, None)
        assert broker.image.topic_config("t") == {}


@async_test
async def test_configs_survive_a_restart(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        await alter(broker, TOPIC, "t", ("segment.ms", SET, "7"))
        await alter(broker, BROKER, "", ("max.connections", SET, "6"))
    async with broker_with_topic(tmp_path) as broker:
        assert broker.config(MAX_CONNECTIONS) == 6
        assert broker.partitions.leader("t", 1).log.config.segment_ms == 7


@async_test
async def test_levels_of_loggers_are_changed(tmp_path: Path) -> None:
    name = "ottla_broker.broker_bootstrap"
    async with broker_with_topic(tmp_path) as broker:
        assert await alter(broker, LOGGER, "1", (name, SET, "ERROR"), validate_only=True) == (
            ErrorCode.none,
            None,
        )
        assert logging.getLogger(name).level == logging.NOTSET
        assert await alter(broker, LOGGER, "1", (name, SET, "ERROR")) == (ErrorCode.none, None)
        assert await get_value(broker, LOGGER, "1", name) == (
            "ERROR",
            ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        )
        await alter(broker, LOGGER, "1", (name, DELETE, None))
        assert logging.getLogger(name).level == logging.NOTSET


@async_test
async def test_resources_are_listed_by_kind(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:

        async def list_resources(version: int, *kinds: int) -> list[tuple[int, str]]:
            request = ListConfigResourcesRequest(resource_types=tuple(cast(i8, kind) for kind in kinds))
            response = await list_config_resources(context(broker, version), request)
            return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]

        assert await list_resources(1) == [(2, "t"), (4, "1"), (8, "1")]
        assert await list_resources(1, 4) == [(4, "1")]
        assert await list_resources(1, 16, 32) == []
        assert await list_resources(0) == []
        with pytest.raises(KafkaError) as raised:
            await list_resources(1, 99)
        assert raised.value.code is ErrorCode.unsupported_version


@async_test
async def test_requests_without_authorization_are_rejected(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
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
        response = await describe_configs(context(broker, 4, DenyAll()), request)
        assert [result.error_code for result in response.results] == list(expected.values())
        with pytest.raises(KafkaError) as raised:
            await list_config_resources(context(broker, 1, DenyAll()), ListConfigResourcesRequest())
        assert raised.value.code is ErrorCode.cluster_authorization_failed
