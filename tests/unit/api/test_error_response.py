"""The response to a request that raised an error."""

import pytest
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse
from kio.schema.list_groups.v5.response import ListGroupsResponse
from kio.schema.streams_group_heartbeat.v0.response import StreamsGroupHeartbeatResponse

from ottla_broker.requests.api import build_error_response
from ottla_broker.wire.errors import ErrorCode, KafkaError

ERROR = KafkaError(ErrorCode.cluster_authorization_failed, "not allowed")


def test_lists_that_may_be_null_are_null() -> None:
    quotas = build_error_response(DescribeClientQuotasResponse, ERROR)
    assert (quotas.error_code, quotas.error_message, quotas.entries) == (ERROR.code, "not allowed", None)
    heartbeat = build_error_response(StreamsGroupHeartbeatResponse, ERROR)
    lists = heartbeat.status, heartbeat.active_tasks, heartbeat.standby_tasks, heartbeat.warmup_tasks
    assert (*lists, heartbeat.partitions_by_user_endpoint) == (None,) * 5


def test_other_lists_are_empty() -> None:
    groups = build_error_response(ListGroupsResponse, ERROR)
    assert (groups.error_code, groups.groups) == (ERROR.code, ())


def test_a_response_without_a_place_for_the_error_raises_it() -> None:
    with pytest.raises(KafkaError) as raised:
        build_error_response(ConsumerGroupDescribeResponse, ERROR)
    assert raised.value is ERROR
