"""AlterPartition requests, by which a leader proposes ISRs to the controller."""

import asyncio
from pathlib import Path
from typing import Any, cast

from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.alter_partition.v3.response import AlterPartitionResponse, PartitionData, TopicData

from ottla_broker.replication.alter_partition_sender import AlterPartitionSender
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test, run_event_loop, wait_until
from tests.unit.replication.leader_partition import BATCH, FakeClusterView, create_leader, record_fetch, update_metadata


class FakeController:
    """Responds with these error codes in order, and raises an exception among them in place of a
    response. `bump`: by how much the partition epochs of responses exceed those of requests.
    """

    def __init__(self, *results: ErrorCode | Exception, bump: int = 1) -> None:
        self.results = list(results)
        self.bump = bump
        self.requests: list[AlterPartitionRequest] = []

    async def send(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(request)
        await asyncio.sleep(0)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        topics = tuple(
            TopicData(
                topic_id=topic.topic_id,
                partitions=tuple(
                    PartitionData(
                        partition_index=partition.partition_index,
                        error_code=result,
                        leader_id=cast(Any, 1),
                        leader_epoch=partition.leader_epoch,
                        partition_epoch=cast(Any, partition.partition_epoch + self.bump),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return AlterPartitionResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, topics=topics)

    @property
    def isrs(self) -> list[list[tuple[int, int]]]:
        return [
            [(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs]
            for request in self.requests
            for topic in request.topics
            for partition in topic.partitions
        ]


class SendingClusterView(FakeClusterView):
    """Sends proposed ISRs to the controller."""

    proposals: AlterPartitionSender

    def propose(self, partition: Partition) -> None:
        self.proposals.send(partition)


def propose_isr(folder: Path, controller: FakeController) -> Partition:
    """A leader that proposes to add broker 3 to the ISR of brokers 1 and 2."""
    view = SendingClusterView()
    view.proposals = AlterPartitionSender(1, lambda: 10, lambda broker: broker * 10, controller.send)
    partition = create_leader(folder, view, isr=(1, 2))
    record_fetch(partition, 2, 0)
    record_fetch(partition, 3, 0)
    return partition


@async_test
async def test_proposal_has_broker_epochs_of_all_members_and_is_pending_until_new_metadata(tmp_path: Path) -> None:
    controller = FakeController(ErrorCode.none)
    partition = propose_isr(tmp_path, controller)
    await wait_until(lambda: controller.requests and not controller.results)
    await run_event_loop()
    assert controller.isrs == [[(1, 10), (2, 20), (3, 30)]]
    assert controller.requests[0].broker_epoch == 10
    assert partition.pending_isr_change is not None
    update_metadata(partition, isr=(1, 2, 3))
    assert partition.pending_isr_change is None


@async_test
async def test_proposal_with_unknown_outcome_is_repeated_with_the_same_epochs(tmp_path: Path) -> None:
    controller = FakeController(
        ConnectionResetError("gone"),
        KafkaError(ErrorCode.not_controller),
        ErrorCode.unknown_server_error,
        ErrorCode.none,
    )
    partition = propose_isr(tmp_path, controller)
    await wait_until(lambda: not controller.results)
    assert controller.isrs == [[(1, 10), (2, 20), (3, 30)]] * 4
    assert len({repr(request) for request in controller.requests}) == 1
    assert partition.pending_isr_change is not None


@async_test
async def test_rule_1_fenced_leader_stops_and_an_outdated_proposal_waits_for_metadata(tmp_path: Path) -> None:
    for code, is_leader, is_pending in (
        (ErrorCode.fenced_leader_epoch, False, True),
        (ErrorCode.invalid_update_version, True, True),
        (ErrorCode.ineligible_replica, True, False),
    ):
        controller = FakeController(code)
        partition = propose_isr(tmp_path / code.name, controller)
        await wait_until(lambda: not controller.results)  # noqa: B023
        await run_event_loop()
        assert (partition.is_leader, partition.pending_isr_change is not None) == (is_leader, is_pending), code


@async_test
async def test_rejected_repetition_does_not_end_a_proposal_that_may_have_been_accepted(tmp_path: Path) -> None:
    """The first request may still be processed. A proposal of the current ISR prevents that, and
    until it is committed the proposed member counts.
    """
    controller = FakeController(ConnectionResetError("gone"), ErrorCode.ineligible_replica, ErrorCode.none)
    partition = propose_isr(tmp_path, controller)
    await wait_until(lambda: not controller.results)
    await run_event_loop()
    assert controller.isrs[-1] == [(1, 10), (2, 20)]
    partition.append_records(BATCH, acks=1)
    record_fetch(partition, 2, 1)
    assert partition.log.high_watermark == 0
    cast(SendingClusterView, partition._cluster).joinable.clear()
    update_metadata(partition, isr=(1, 2))
    assert partition.log.high_watermark == 1


@async_test
async def test_proposal_ends_if_the_controller_already_has_this_isr(tmp_path: Path) -> None:
    controller = FakeController(ErrorCode.none, bump=0)
    partition = propose_isr(tmp_path, controller)
    await wait_until(lambda: partition.pending_isr_change is None)


@async_test
async def test_unregistered_broker_sends_no_proposal(tmp_path: Path) -> None:
    controller = FakeController()
    proposals = AlterPartitionSender(1, lambda: -1, lambda broker: -1, controller.send)
    view = SendingClusterView()
    view.proposals = proposals
    partition = create_leader(tmp_path, view, isr=(1, 2))
    record_fetch(partition, 3, 0)
    await run_event_loop()
    assert controller.requests == []
    assert partition.pending_isr_change is not None
    proposals.close()
