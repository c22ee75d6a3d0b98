"""The rights that StreamsGroupHeartbeat and StreamsGroupDescribe ask for."""

import datetime
from typing import Any, cast

import pytest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.streams_group_heartbeat.v0.request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i16, i32

from ottla_broker.api import streams_group_describe, streams_group_heartbeat
from ottla_broker.requests.api import Api
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.security.principal import Principal
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from tests.unit.coordination.small_coordinator import SmallCoordinator, run_with_coordinator

Grant = tuple[Operation, Resource]
GROUP, INPUT, CHANGELOG = Resource.group("g"), Resource.topic("t"), Resource.topic("g-counts-changelog")
READ_GROUP, DESCRIBE_GROUP = (Operation.read, GROUP), (Operation.describe, GROUP)
DESCRIBE_INPUT, DESCRIBE_CHANGELOG = (Operation.describe, INPUT), (Operation.describe, CHANGELOG)
CREATE_CHANGELOG, CREATE_ANY = (Operation.create, CHANGELOG), (Operation.create, CLUSTER)
JOINS: tuple[Grant, ...] = (READ_GROUP, DESCRIBE_INPUT, DESCRIBE_CHANGELOG)
MISSING_INTERNAL_TOPICS = 3


class Granted:
    """An authorizer that allows what was granted. `asked`: the operations and types of resources
    that `allows` was asked for; `allows_any` records nothing.
    """

    allows_everything = False
    generation = 0

    def __init__(self, *grants: Grant) -> None:
        self.grants = grants
        self.asked: set[tuple[Operation, ResourceType]] = set()

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        self.asked.add((operation, resource.kind))
        return (operation, resource) in self.grants

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        return any((operation, kind) == (granted, resource.kind) for granted, resource in self.grants)


class Controller:
    """A controller that creates nothing and reports no error. `requested`: names of the topics
    that it was asked to create.
    """

    def __init__(self) -> None:
        self.requested: list[str] = []

    async def send_request(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self.requested += [str(topic.name) for topic in request.topics]
        return CreateTopicsResponse(throttle_time=cast(Any, datetime.timedelta()), topics=())


def add_controller(broker: SmallCoordinator) -> Controller:
    controller = Controller()
    broker.controller_channel = controller  # type: ignore[attr-defined]
    return controller


async def join(broker: SmallCoordinator) -> Any:
    """Joins the group g, with a topology that reads `t` and needs the changelog topic."""
    changelog = TopicInfo(
        name=TopicName(CHANGELOG.name), partitions=i32(0), replication_factor=i16(1), topic_configs=()
    )
    part = Subtopology(
        subtopology_id="0",
        source_topics=(TopicName(INPUT.name),),
        state_changelog_topics=(changelog,),
        repartition_source_topics=(),
        copartition_groups=(),
    )
    request = StreamsGroupHeartbeatRequest(
        group_id=GroupId(GROUP.name),
        member_id="m",
        member_epoch=i32(0),
        endpoint_information_epoch=i32(0),
        rebalance_timeout=cast(Any, datetime.timedelta(seconds=60)),
        topology=Topology(epoch=i32(0), subtopologies=(part,)),
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id="p",
        client_tags=(),
        task_offsets=None,
        task_end_offsets=None,
    )
    return await broker.send_message(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, request)


@pytest.mark.parametrize(
    ("grants", "code"),
    [
        ((), ErrorCode.group_authorization_failed),
        ((DESCRIBE_GROUP, *JOINS[1:]), ErrorCode.group_authorization_failed),
        ((READ_GROUP,), ErrorCode.topic_authorization_failed),
        ((READ_GROUP, DESCRIBE_INPUT), ErrorCode.topic_authorization_failed),
        ((READ_GROUP, DESCRIBE_CHANGELOG), ErrorCode.topic_authorization_failed),
        (JOINS, ErrorCode.none),
    ],
)
def test_a_member_needs_read_on_the_group_and_describe_on_all_topics(
    grants: tuple[Grant, ...], code: ErrorCode
) -> None:
    async def test(broker: SmallCoordinator) -> None:
        add_controller(broker)
        broker.authorizer = Granted(*grants)
        assert (await join(broker)).error_code is code
        assert [one.id for one in broker.group_coordinator.list_groups()] == [GROUP.name] * (code is ErrorCode.none)

    run_with_coordinator(test)


@pytest.mark.parametrize(("grants", "is_created"), [((), False), ((CREATE_CHANGELOG,), True), ((CREATE_ANY,), True)])
def test_internal_topics_need_create_on_the_cluster_or_on_them(grants: tuple[Grant, ...], is_created: bool) -> None:
    async def test(broker: SmallCoordinator) -> None:
        controller = add_controller(broker)
        broker.authorizer = Granted(*JOINS, *grants)
        joined = await join(broker)
        assert controller.requested == [CHANGELOG.name] * is_created
        [detail] = [one.status_detail for one in joined.status if one.status_code == MISSING_INTERNAL_TOPICS]
        assert ("Unauthorized to CREATE" in detail) == (not is_created)

    run_with_coordinator(test)


@pytest.mark.parametrize(
    ("grants", "code"),
    [
        ((), ErrorCode.group_authorization_failed),
        ((READ_GROUP, *JOINS[1:]), ErrorCode.group_authorization_failed),
        ((DESCRIBE_GROUP,), ErrorCode.topic_authorization_failed),
        ((DESCRIBE_GROUP, DESCRIBE_INPUT), ErrorCode.topic_authorization_failed),
        ((DESCRIBE_GROUP, DESCRIBE_CHANGELOG), ErrorCode.topic_authorization_failed),
        ((DESCRIBE_GROUP, DESCRIBE_INPUT, DESCRIBE_CHANGELOG), ErrorCode.none),
    ],
)
def test_a_group_is_described_with_describe_on_it_and_on_all_topics(grants: tuple[Grant, ...], code: ErrorCode) -> None:
    async def test(broker: SmallCoordinator) -> None:
        add_controller(broker)
        assert (await join(broker)).error_code is ErrorCode.none
        broker.authorizer = Granted(*grants)
        response = await broker.send(ApiKey.STREAMS_GROUP_DESCRIBE, 0, group_ids=(GROUP.name,))
        [group] = response.groups
        assert group.error_code is code
        assert len(group.members) == (code is ErrorCode.none)

    run_with_coordinator(test)


@pytest.mark.parametrize("api", [streams_group_heartbeat.API, streams_group_describe.API], ids=lambda api: api.key.name)
def test_exactly_the_declared_rights_are_asked_for(api: Api) -> None:
    declared = {(right.operation, right.kind) for right in api.rights}

    async def test(broker: SmallCoordinator) -> None:
        add_controller(broker)
        authorizer = Granted(*JOINS, DESCRIBE_GROUP)
        broker.authorizer = authorizer
        await join(broker)
        if api is streams_group_describe.API:
            authorizer.asked.clear()
            await broker.send(ApiKey.STREAMS_GROUP_DESCRIBE, 0, group_ids=(GROUP.name,))
        assert authorizer.asked == declared

    run_with_coordinator(test)
