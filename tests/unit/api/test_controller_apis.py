"""APIs that only the controller serves, for brokers and for administrators."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.alter_partition.v2.request import AlterPartitionRequest as AlterPartitionV2
from kio.schema.alter_partition.v2.request import PartitionData as DataV2
from kio.schema.alter_partition.v2.request import TopicData as TopicV2
from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.broker_registration.v3.request import BrokerRegistrationRequest, Listener
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.list_partition_reassignments.v0.request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kio.schema.types import BrokerId, TopicName
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.static.primitive import i8, i16, i32, i64, u16

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.registration_message import OttlaBrokerRegistrationRequest
from tests.unit.api.controller_apis import ControllerApis
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DenyAll
from tests.unit.metadata.small_controller import SmallController


def registration(broker: int, cluster: str = "c", protocol: int = 0) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=BrokerId(broker),
        cluster_id=cluster,
        incarnation_id=UUID(int=broker),
        listeners=(Listener(name="P", host="h", port=u16(9), security_protocol=i16(protocol)),),
        features=(),
        rack="r",
        log_dirs=(UUID(int=100 + broker),),
    )


def heartbeat(broker: int, epoch: int, offset: int, *, want_shut_down: bool = False) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=BrokerId(broker),
        broker_epoch=i64(epoch),
        current_metadata_offset=i64(offset),
        want_fence=False,
        want_shut_down=want_shut_down,
    )


@async_test
async def test_a_broker_registers_with_its_node_and_one_of_an_earlier_version_without() -> None:
    small = SmallController()
    send = ControllerApis(small).send
    with_node = convert_message(registration(7), OttlaBrokerRegistrationRequest)
    assert (await send(replace(with_node, node="n1"))).error_code is ErrorCode.none
    assert (await send(registration(8))).error_code is ErrorCode.none
    assert [small.image.brokers[broker].node for broker in (7, 8)] == ["n1", None]
    restored = MetadataImage()
    restored.apply_records(enumerate(small.image.brokers[7].to_records()))
    assert restored.brokers[7] == small.image.brokers[7]


@async_test
async def test_broker_registers_sends_heartbeats_and_is_unregistered() -> None:
    small = SmallController()
    send = ControllerApis(small).send
    response = await send(registration(7))
    assert (response.error_code, response.broker_epoch) == (ErrorCode.none, 100)
    assert small.image.brokers[7].endpoints["P"].protocol == "PLAINTEXT"
    response = await send(heartbeat(7, 100, 100))
    assert (response.is_caught_up, response.is_fenced, response.should_shut_down) == (True, False, False)
    response = await send(heartbeat(7, 99, 100))
    assert response.error_code is ErrorCode.stale_broker_epoch
    response = await send(AllocateProducerIdsRequest(broker_id=BrokerId(7), broker_epoch=i64(100)))
    assert (response.error_code, response.producer_id_len) == (ErrorCode.none, 1000)
    first = response.producer_id_start
    assert first >= 1 << 40, "ids differ from those of another cluster, whose records may be mirrored here"
    response = await send(AllocateProducerIdsRequest(broker_id=BrokerId(7), broker_epoch=i64(100)))
    assert response.producer_id_start == first + 1000
    response = await send(AllocateProducerIdsRequest(broker_id=BrokerId(8), broker_epoch=i64(100)))
    assert response.error_code is ErrorCode.broker_id_not_registered
    response = await send(heartbeat(7, 100, 102, want_shut_down=True))
    assert (response.is_fenced, response.should_shut_down) == (True, True)
    response = await send(UnregisterBrokerRequest(broker_id=BrokerId(7)))
    assert response.error_code is ErrorCode.none
    response = await send(UnregisterBrokerRequest(broker_id=BrokerId(7)))
    assert (response.error_code, "no broker 7" in response.error_message) == (ErrorCode.broker_id_not_registered, True)


@async_test
async def test_invalid_registrations_are_rejected() -> None:
    send = ControllerApis(SmallController()).send
    for request, code in (
        (registration(7, cluster="another"), ErrorCode.inconsistent_cluster_id),
        (registration(7, protocol=9), ErrorCode.invalid_registration),
    ):
        response = await send(request)
        assert (response.error_code, response.broker_epoch) == (code, -1)


REQUESTS: list[Any] = [
    registration(7),
    heartbeat(7, 1, 1),
    AllocateProducerIdsRequest(broker_id=BrokerId(7), broker_epoch=i64(1)),
    UnregisterBrokerRequest(broker_id=BrokerId(7)),
    AlterPartitionRequest(broker_id=BrokerId(7), broker_epoch=i64(1), topics=()),
    ElectLeadersRequest(election_type=i8(0), topic_partitions=None),
    AlterPartitionReassignmentsRequest(topics=()),
    ListPartitionReassignmentsRequest(topics=None),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_requests_need_the_controller_and_authorization(request_: Any) -> None:
    @async_test
    async def scenario() -> None:
        small = SmallController()
        response = await ControllerApis(small, is_controller=False).send(request_)
        assert response.error_code is ErrorCode.not_controller
        response = await ControllerApis(small, authorizer=DenyAll()).send(request_)
        assert response.error_code is ErrorCode.cluster_authorization_failed

    scenario()


@async_test
async def test_leader_changes_the_isr_in_both_versions() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    [state, _] = await small.add_topic(partitions=2)
    send = ControllerApis(small).send
    epochs = {broker: small.image.brokers[broker].epoch for broker in (1, 2)}
    members = tuple(BrokerState(broker_id=BrokerId(b), broker_epoch=i64(epoch)) for b, epoch in epochs.items())
    partitions = tuple(
        PartitionData(
            partition_index=i32(p), leader_epoch=i32(0), new_isr_with_epochs=members, partition_epoch=i32(p * 5)
        )
        for p in (0, 1)
    )
    request = AlterPartitionRequest(
        broker_id=BrokerId(1),
        broker_epoch=i64(epochs[1]),
        topics=(TopicData(topic_id=state.topic, partitions=partitions),),
    )
    response = await send(request)
    assert response.error_code is ErrorCode.none
    [changed, rejected] = response.topics[0].partitions
    assert (changed.error_code, changed.isr, changed.leader_id, changed.partition_epoch) == (
        ErrorCode.none,
        (1, 2),
        1,
        1,
    )
    assert rejected.error_code is ErrorCode.not_controller
    stale = await send(AlterPartitionRequest(broker_id=BrokerId(1), broker_epoch=i64(1), topics=()))
    assert stale.error_code is ErrorCode.stale_broker_epoch
    old = AlterPartitionV2(
        broker_id=BrokerId(1),
        broker_epoch=i64(epochs[1]),
        topics=(
            TopicV2(
                topic_id=state.topic,
                partitions=(
                    DataV2(
                        partition_index=i32(0),
                        leader_epoch=i32(0),
                        new_isr=(BrokerId(1), BrokerId(2), BrokerId(3)),
                        partition_epoch=i32(1),
                    ),
                ),
            ),
        ),
    )
    response = await send(old)
    assert response.topics[0].partitions[0].isr == (1, 2, 3)


def reassignment(
    *partitions: tuple[int, tuple[int, ...] | None], allow_factor_change: bool = True
) -> AlterPartitionReassignmentsRequest:
    reassignments = tuple(
        ReassignablePartition(
            partition_index=i32(p), replicas=None if replicas is None else tuple(BrokerId(b) for b in replicas)
        )
        for p, replicas in partitions
    )
    return AlterPartitionReassignmentsRequest(
        topics=(ReassignableTopic(name=TopicName("t"), partitions=reassignments),),
        allow_replication_factor_change=allow_factor_change,
    )


@async_test
async def test_reassignments_are_started_listed_and_cancelled() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic(partitions=3, replicas=(1, 2))
    send = ControllerApis(small).send
    response = await send(reassignment((0, (3, 2)), (1, None), (2, (1,)), (2, (2,))))
    codes = [it.error_code for it in response.responses[0].partitions]
    assert codes == [
        ErrorCode.none,
        ErrorCode.no_reassignment_in_progress,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
    ]
    response = await send(reassignment((1, (1,)), allow_factor_change=False))
    assert response.responses[0].partitions[0].error_code is ErrorCode.invalid_replication_factor
    for topics in (None, (ListPartitionReassignmentsTopics(name=TopicName("t"), partition_indexes=(i32(0), i32(1))),)):
        listed = await send(ListPartitionReassignmentsRequest(topics=topics))
        [topic] = listed.topics
        [partition] = topic.partitions
        assert (
            partition.partition_index,
            partition.replicas,
            partition.adding_replicas,
            partition.removing_replicas,
        ) == (
            0,
            (3, 2, 1),
            (3,),
            (1,),
        )
    others = (ListPartitionReassignmentsTopics(name=TopicName("t"), partition_indexes=(i32(2),)),)
    assert (await send(ListPartitionReassignmentsRequest(topics=others))).topics == ()
    response = await send(reassignment((0, None)))
    assert response.responses[0].partitions[0].error_code is ErrorCode.none
    assert (await send(ListPartitionReassignmentsRequest(topics=None))).topics == ()


@async_test
async def test_administrators_elect_leaders() -> None:
    small = await SmallController().add_brokers(1, 2)
    await small.add_topic(partitions=2, replicas=(1, 2))
    send = ControllerApis(small).send
    partitions = (TopicPartitions(topic=TopicName("t"), partitions=(i32(0), i32(5))),)
    response = await send(ElectLeadersRequest(election_type=i8(0), topic_partitions=partitions))
    [topic] = response.replica_election_results
    assert [(it.partition_id, it.error_code) for it in topic.partition_result] == [
        (0, ErrorCode.election_not_needed),
        (5, ErrorCode.unknown_topic_or_partition),
    ]
    response = await send(ElectLeadersRequest(election_type=i8(1), topic_partitions=None))
    assert (response.error_code, response.replica_election_results) == (ErrorCode.none, ())
    response = await send(ElectLeadersRequest(election_type=i8(2), topic_partitions=None))
    assert response.error_code is ErrorCode.invalid_request
