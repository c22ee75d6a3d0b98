"""ISRs on their way to the controller."""

import asyncio
from pathlib import Path
from typing import Any, cast

from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.alter_partition.v3.response import AlterPartitionResponse, PartitionData, TopicData

from ottla_broker.replication.alter_partition_sender import AlterPartitionSender
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.replication.leading import BATCH, Peers, committed, fetch, led
from tests.unit.replication.test_leading import on_a_loop


class Controller:
    """Answers with what the test says, in order; an exception stands for an answer that was lost."""

    def __init__(self, *answers: ErrorCode | Exception, bump: int = 1) -> None:
        self.answers = list(answers)
        self.bump = bump
        self.requests: list[AlterPartitionRequest] = []

    async def ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(request)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        topics = tuple(
            TopicData(
                topic_id=topic.topic_id,
                partitions=tuple(
                    PartitionData(
                        partition_index=one.partition_index,
                        error_code=answer,
                        leader_id=cast(Any, 1),
                        leader_epoch=one.leader_epoch,
                        partition_epoch=cast(Any, one.partition_epoch + self.bump),
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return AlterPartitionResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, topics=topics)

    @property
    def isrs(self) -> list[list[tuple[int, int]]]:
        return [
            [(member.broker_id, member.broker_epoch) for member in one.new_isr_with_epochs]
            for request in self.requests
            for topic in request.topics
            for one in topic.partitions
        ]


class Sending(Peers):
    proposals: AlterPartitionSender

    def propose(self, partition: Partition) -> None:
        self.proposals.send(partition)


def proposing(folder: Path, controller: Controller) -> Partition:
    peers = Sending()
    peers.proposals = AlterPartitionSender(1, lambda: 10, lambda broker: broker * 10, controller.ask)
    partition = led(folder, peers, isr=(1, 2))
    fetch(partition, 2, 0)
    fetch(partition, 3, 0)
    return partition


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@on_a_loop
async def test_a_proposal_names_the_lives_of_all_members_and_counts_until_the_metadata_tell(tmp_path: Path) -> None:
    controller = Controller(ErrorCode.none)
    partition = proposing(tmp_path, controller)
    await until(lambda: controller.requests and not controller.answers)
    await asyncio.sleep(0.01)
    assert controller.isrs == [[(1, 10), (2, 20), (3, 30)]]
    assert controller.requests[0].broker_epoch == 10
    assert partition.pending_isr_change is not None
    committed(partition, isr=(1, 2, 3))
    assert partition.pending_isr_change is None


@on_a_loop
async def test_an_unknown_outcome_is_asked_about_again_with_the_same_epochs(tmp_path: Path) -> None:
    controller = Controller(
        ConnectionResetError("gone"),
        KafkaError(ErrorCode.not_controller),
        ErrorCode.unknown_server_error,
        ErrorCode.none,
    )
    partition = proposing(tmp_path, controller)
    await until(lambda: not controller.answers)
    assert controller.isrs == [[(1, 10), (2, 20), (3, 30)]] * 4
    assert len({repr(request) for request in controller.requests}) == 1
    assert partition.pending_isr_change is not None


@on_a_loop
async def test_rule_1_a_newer_leader_stops_us_and_a_newer_state_is_waited_for(tmp_path: Path) -> None:
    for code, leads, pends in (
        (ErrorCode.fenced_leader_epoch, False, True),
        (ErrorCode.invalid_update_version, True, True),
        (ErrorCode.ineligible_replica, True, False),
    ):
        controller = Controller(code)
        partition = proposing(tmp_path / code.name, controller)
        await until(lambda: not controller.answers)  # noqa: B023
        await asyncio.sleep(0.01)
        assert (partition.is_leader, partition.pending_isr_change is not None) == (leads, pends), code


@on_a_loop
async def test_a_refusal_proves_nothing_of_a_proposal_that_was_sent_before(tmp_path: Path) -> None:
    """The first copy may still come to be: the ISR as it is, proposed anew, ends that, and until then the member counts."""
    controller = Controller(ConnectionResetError("gone"), ErrorCode.ineligible_replica, ErrorCode.none)
    partition = proposing(tmp_path, controller)
    await until(lambda: not controller.answers)
    await asyncio.sleep(0.01)
    assert controller.isrs[-1] == [(1, 10), (2, 20)]
    partition.append_records(BATCH, acks=1)
    fetch(partition, 2, 1)
    assert partition.log.high_watermark == 0
    cast(Sending, partition._cluster).joinable.clear()
    committed(partition, isr=(1, 2))
    assert partition.log.high_watermark == 1


@on_a_loop
async def test_what_is_so_already_is_no_proposal(tmp_path: Path) -> None:
    controller = Controller(ErrorCode.none, bump=0)
    partition = proposing(tmp_path, controller)
    await until(lambda: partition.pending_isr_change is None)


@on_a_loop
async def test_an_unregistered_broker_asks_nobody(tmp_path: Path) -> None:
    controller = Controller()
    proposals = AlterPartitionSender(1, lambda: -1, lambda broker: -1, controller.ask)
    peers = Sending()
    peers.proposals = proposals
    partition = led(tmp_path, peers, isr=(1, 2))
    fetch(partition, 3, 0)
    await asyncio.sleep(0.01)
    assert controller.requests == []
    assert partition.pending_isr_change is not None
    proposals.close()
