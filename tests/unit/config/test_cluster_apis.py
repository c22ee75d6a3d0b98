"""DescribeCluster and DescribeLogDirs against a whole broker, and every version of these APIs and
of the APIs for configs on the wire.
"""

from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_configs.v2 import request as alter_schema
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_configs.v4 import request as describe_schema
from kio.schema.describe_log_dirs.v5.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.incremental_alter_configs.v1 import request as incremental_schema
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from ottla_broker.api.describe_cluster import describe_cluster
from ottla_broker.api.describe_log_dirs import describe_log_dirs
from ottla_broker.metadata.cluster_control import BrokerHeartbeat
from ottla_broker.metadata.records import BrokerRegistrationChangeRecord, Endpoint, RegisterBrokerRecord
from ottla_broker.requests.api import find_handler
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_request, read_response, write_request, write_response
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch
from ottla_broker.wire.request_header import read_request_header
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DenyAll
from tests.unit.config.api_broker import broker_with_topic, context


def cluster_request(
    endpoint_type: int = 1, *, fenced: bool = False, operations: bool = False
) -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=operations, endpoint_type=i8(endpoint_type), include_fenced_brokers=fenced
    )


@async_test
async def test_cluster_is_described_with_endpoints_of_the_listener_of_the_request(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        response = await describe_cluster(context(broker, 2), cluster_request())
        assert (response.cluster_id, response.controller_id) == (broker.cluster_id, 1)
        assert [(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in response.brokers] == [
            (1, "somewhere", 9092, "r1", False)
        ]
        assert response.cluster_authorized_operations == -(2**31)

        incarnation = broker.runtime.new_uuid()
        for other, listener in ((2, "PLAINTEXT"), (3, "INSIDE")):
            registration = RegisterBrokerRecord(
                other, incarnation, {listener: Endpoint("other", 1)}, directories=(incarnation,)
            )
            epoch = await broker.active_controller().cluster_control.register_broker(registration, previous_epoch=-1)
            await broker.active_controller().cluster_control.process_heartbeat(
                BrokerHeartbeat(other, epoch, metadata_offset=epoch)
            )
        broker.image.apply_records(
            [
                (
                    broker.image.end_offset,
                    BrokerRegistrationChangeRecord(2, broker.image.brokers[2].epoch, fenced=True),
                )
            ]
        )
        response = await describe_cluster(context(broker, 2), cluster_request(operations=True))
        assert [b.broker_id for b in response.brokers] == [1]
        assert response.cluster_authorized_operations > 0
        response = await describe_cluster(context(broker, 2), cluster_request(fenced=True))
        assert [(b.broker_id, b.is_fenced) for b in response.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)]
)
@async_test
async def test_endpoint_types_other_than_broker_are_rejected(
    tmp_path: Path, endpoint_type: int, code: ErrorCode
) -> None:
    async with broker_with_topic(tmp_path) as broker:
        with pytest.raises(KafkaError) as raised:
            await describe_cluster(context(broker, 2), cluster_request(endpoint_type))
        assert raised.value.code is code


@async_test
async def test_log_directories_are_described_with_sizes(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        batch = encode_batch([Record(1, None, b"x" * 100)])
        broker.partitions.leader("t", 1).append_records(batch, acks=1)
        (result,) = (await describe_log_dirs(context(broker, 5), DescribeLogDirsRequest(topics=None))).results
        assert result.log_dir == str(tmp_path / "data")
        assert 0 < result.usable_bytes <= result.total_bytes
        (topic,) = result.topics
        assert topic.name == "t"
        assert [(p.partition_index, p.partition_size, p.offset_lag, p.is_future_key) for p in topic.partitions] == [
            (0, 0, 0, False),
            (1, len(batch), 0, False),
        ]
        requested = (
            DescribableLogDirTopic(topic=TopicName("t"), partitions=(i32(1), i32(7))),
            DescribableLogDirTopic(topic=TopicName("none"), partitions=(i32(0),)),
        )
        (result,) = (await describe_log_dirs(context(broker, 5), DescribeLogDirsRequest(topics=requested))).results
        assert [[p.partition_index for p in topic.partitions] for topic in result.topics] == [[1]]
        rejected = await describe_log_dirs(context(broker, 5, DenyAll()), DescribeLogDirsRequest(topics=None))
        assert (rejected.error_code, rejected.results) == (ErrorCode.cluster_authorization_failed, ())


@async_test
async def test_failed_log_directory_is_described_with_its_error(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        broker.log_dirs[0].failure = "the disk is gone"
        (result,) = (await describe_log_dirs(context(broker, 5), DescribeLogDirsRequest(topics=None))).results
        assert (result.error_code, result.topics) == (ErrorCode.kafka_storage_error, ())
        broker.log_dirs[0].failure = None


REQUESTS: dict[int, Any] = {
    ApiKey.DESCRIBE_CONFIGS: describe_schema.DescribeConfigsRequest(
        resources=(
            describe_schema.DescribeConfigsResource(resource_type=i8(2), resource_name="t", configuration_keys=None),
            describe_schema.DescribeConfigsResource(resource_type=i8(4), resource_name="1", configuration_keys=None),
        ),
        include_synonyms=True,
    ),
    ApiKey.ALTER_CONFIGS: alter_schema.AlterConfigsRequest(
        resources=(
            alter_schema.AlterConfigsResource(
                resource_type=i8(2),
                resource_name="t",
                configs=(alter_schema.AlterableConfig(name="segment.ms", value="4"),),
            ),
        ),
        validate_only=False,
    ),
    ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsRequest(topics=None),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_schema.IncrementalAlterConfigsRequest(
        resources=(
            incremental_schema.AlterConfigsResource(
                resource_type=i8(2),
                resource_name="t",
                configs=(incremental_schema.AlterableConfig(name="segment.ms", config_operation=i8(0), value="4"),),
            ),
        ),
        validate_only=False,
    ),
    ApiKey.DESCRIBE_CLUSTER: cluster_request(),
    ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesRequest(),
}


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, v) for key in REQUESTS for v in range(SERVED_VERSIONS[key][0], SERVED_VERSIONS[key][1] + 1)],
)
@async_test
async def test_requests_of_every_version_are_decoded_and_answered(tmp_path: Path, key: int, version: int) -> None:
    async with broker_with_topic(tmp_path) as broker:
        handler = find_handler(key, version)
        assert handler is not None
        frame = bytes(write_request(key, version, 5, "a test", REQUESTS[key]))[4:]
        request = read_request(frame, read_request_header(frame), handler.request)
        response = await handler.handle(context(broker, version), request)
        written = bytes(write_response(key, version, 5, response))[4:]
        decoded = read_response(written, key, version)
        codes = [
            getattr(part, "error_code", ErrorCode.none)
            for part in (decoded, *getattr(decoded, "results", ()), *getattr(decoded, "responses", ()))
        ]
        assert codes == [ErrorCode.none] * len(codes)
