"""What only the controller answers: between brokers, and for people. Through the forms, in every version."""

from types import SimpleNamespace
from typing import Any, cast
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

from ottla_broker.config import Config
from ottla_broker.dispatcher import answer_locally
from ottla_broker.metadata.controller import Controller
from ottla_broker.security.authorizer import AllowAll, Authorizer
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.config.running import Nobody
from tests.unit.metadata.small_controller import SmallController, on_a_loop


class Asking:
    """Asks a broker that is the controller (or with `controller=None` is none) as it would ask itself."""

    def __init__(self, small: SmallController, *, is_controller: bool = True, authorizer: Authorizer | None = None):
        def active_controller() -> Controller:
            if not is_controller:
                raise KafkaError(ErrorCode.not_controller)
            return small.controller

        broker = SimpleNamespace(
            active_controller=active_controller,
            image=small.image,
            cluster_id="",  # as of a controller that was elected while it starts
            quorum=SimpleNamespace(cluster_id="c"),
            node_id=1,
            config=Config.of({"log.dirs": "/nowhere"}),
        )
        self._broker = cast(Any, broker)
        self._authorizer = authorizer or AllowAll()

    async def ask(self, request: Any) -> Any:
        return await answer_locally(self._broker, request, self._authorizer)


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


@on_a_loop
async def test_a_broker_registers_lives_and_leaves() -> None:
    small = SmallController()
    ask = Asking(small).ask
    answer = await ask(registration(7))
    assert (answer.error_code, answer.broker_epoch) == (ErrorCode.none, 100)
    assert small.image.brokers[7].endpoints["P"].protocol == "PLAINTEXT"
    answer = await ask(heartbeat(7, 100, 100))
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)
    answer = await ask(heartbeat(7, 99, 100))
    assert answer.error_code is ErrorCode.stale_broker_epoch
    answer = await ask(AllocateProducerIdsRequest(broker_id=BrokerId(7), broker_epoch=i64(100)))
    assert (answer.error_code, answer.producer_id_len) == (ErrorCode.none, 1000)
    first = answer.producer_id_start
    assert first >= 1 << 40, "no other cluster's, whose records may be copied here"
    answer = await ask(AllocateProducerIdsRequest(broker_id=BrokerId(7), broker_epoch=i64(100)))
    assert answer.producer_id_start == first + 1000
    answer = await ask(AllocateProducerIdsRequest(broker_id=BrokerId(8), broker_epoch=i64(100)))
    assert answer.error_code is ErrorCode.broker_id_not_registered
    answer = await ask(heartbeat(7, 100, 102, want_shut_down=True))
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    answer = await ask(UnregisterBrokerRequest(broker_id=BrokerId(7)))
    assert answer.error_code is ErrorCode.none
    answer = await ask(UnregisterBrokerRequest(broker_id=BrokerId(7)))
    assert (answer.error_code, "no broker 7" in answer.error_message) == (ErrorCode.broker_id_not_registered, True)


@on_a_loop
async def test_what_cannot_be_registered() -> None:
    ask = Asking(SmallController()).ask
    for request, code in (
        (registration(7, cluster="another"), ErrorCode.inconsistent_cluster_id),
        (registration(7, protocol=9), ErrorCode.invalid_registration),
    ):
        answer = await ask(request)
        assert (answer.error_code, answer.broker_epoch) == (code, -1)


EVERYTHING: list[Any] = [
    registration(7),
    heartbeat(7, 1, 1),
    AllocateProducerIdsRequest(broker_id=BrokerId(7), broker_epoch=i64(1)),
    UnregisterBrokerRequest(broker_id=BrokerId(7)),
    AlterPartitionRequest(broker_id=BrokerId(7), broker_epoch=i64(1), topics=()),
    ElectLeadersRequest(election_type=i8(0), topic_partitions=None),
    AlterPartitionReassignmentsRequest(topics=()),
    ListPartitionReassignmentsRequest(topics=None),
]


@pytest.mark.parametrize("request_", EVERYTHING, ids=lambda request: type(request).__name__)
def test_only_the_controller_answers_and_only_those_who_may_ask(request_: Any) -> None:
    @on_a_loop
    async def ask() -> None:
        small = SmallController()
        answer = await Asking(small, is_controller=False).ask(request_)
        assert answer.error_code is ErrorCode.not_controller
        answer = await Asking(small, authorizer=Nobody()).ask(request_)
        assert answer.error_code is ErrorCode.cluster_authorization_failed

    ask()


@on_a_loop
async def test_a_leader_alters_isrs() -> None:
    small = await SmallController().come(1, 2, 3)
    [state, _] = await small.topic(partitions=2)
    ask = Asking(small).ask
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
    answer = await ask(request)
    assert answer.error_code is ErrorCode.none
    [done, refused] = answer.topics[0].partitions
    assert (done.error_code, done.isr, done.leader_id, done.partition_epoch) == (ErrorCode.none, (1, 2), 1, 1)
    assert refused.error_code is ErrorCode.not_controller
    stale = await ask(AlterPartitionRequest(broker_id=BrokerId(1), broker_epoch=i64(1), topics=()))
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
    answer = await ask(old)
    assert answer.topics[0].partitions[0].isr == (1, 2, 3)


def moves(
    *partitions: tuple[int, tuple[int, ...] | None], other_factor: bool = True
) -> AlterPartitionReassignmentsRequest:
    wanted = tuple(
        ReassignablePartition(
            partition_index=i32(p), replicas=None if replicas is None else tuple(BrokerId(b) for b in replicas)
        )
        for p, replicas in partitions
    )
    return AlterPartitionReassignmentsRequest(
        topics=(ReassignableTopic(name=TopicName("t"), partitions=wanted),),
        allow_replication_factor_change=other_factor,
    )


@on_a_loop
async def test_moves_are_begun_listed_and_cancelled() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic(partitions=3, replicas=(1, 2))
    ask = Asking(small).ask
    answer = await ask(moves((0, (3, 2)), (1, None), (2, (1,)), (2, (2,))))
    codes = [one.error_code for one in answer.responses[0].partitions]
    assert codes == [
        ErrorCode.none,
        ErrorCode.no_reassignment_in_progress,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
    ]
    answer = await ask(moves((1, (1,)), other_factor=False))
    assert answer.responses[0].partitions[0].error_code is ErrorCode.invalid_replication_factor
    for topics in (None, (ListPartitionReassignmentsTopics(name=TopicName("t"), partition_indexes=(i32(0), i32(1))),)):
        listed = await ask(ListPartitionReassignmentsRequest(topics=topics))
        [topic] = listed.topics
        [one] = topic.partitions
        assert (one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas) == (
            0,
            (3, 2, 1),
            (3,),
            (1,),
        )
    nothing = (ListPartitionReassignmentsTopics(name=TopicName("t"), partition_indexes=(i32(2),)),)
    assert (await ask(ListPartitionReassignmentsRequest(topics=nothing))).topics == ()
    answer = await ask(moves((0, None)))
    assert answer.responses[0].partitions[0].error_code is ErrorCode.none
    assert (await ask(ListPartitionReassignmentsRequest(topics=None))).topics == ()


@on_a_loop
async def test_people_elect_leaders() -> None:
    small = await SmallController().come(1, 2)
    await small.topic(partitions=2, replicas=(1, 2))
    ask = Asking(small).ask
    wanted = (TopicPartitions(topic=TopicName("t"), partitions=(i32(0), i32(5))),)
    answer = await ask(ElectLeadersRequest(election_type=i8(0), topic_partitions=wanted))
    [topic] = answer.replica_election_results
    assert [(one.partition_id, one.error_code) for one in topic.partition_result] == [
        (0, ErrorCode.election_not_needed),
        (5, ErrorCode.unknown_topic_or_partition),
    ]
    answer = await ask(ElectLeadersRequest(election_type=i8(1), topic_partitions=None))
    assert (answer.error_code, answer.replica_election_results) == (ErrorCode.none, ())
    answer = await ask(ElectLeadersRequest(election_type=i8(2), topic_partitions=None))
    assert answer.error_code is ErrorCode.invalid_request
