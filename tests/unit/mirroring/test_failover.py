"""Failover of a mirrored partition: the offset from which it accepts producers, and the
transactions that are aborted.
"""

import asyncio
from pathlib import Path
from uuid import UUID

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.mirror_plans import MirrorReport, produce_rejection
from ottla_broker.metadata.records import MirroredPartitionRecord, MirroredTopicRecord
from ottla_broker.mirroring.failover import abort_open_transactions, report_end_offset
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test, run_event_loop, wait_until
from tests.unit.log.log_fixtures import batch, marker
from tests.unit.replication.leader_partition import (
    ME,
    TOPIC,
    FakeClusterView,
    create_leader,
    record_fetch,
    update_metadata,
)


class Controller:
    """Receives reports, and rejects the first `rejections` of them."""

    def __init__(self, rejections: int = 0) -> None:
        self.reports: list[MirrorReport] = []
        self._rejections = rejections

    async def send_report(self, topic: str, report: MirrorReport) -> None:
        assert topic == "t"
        if self._rejections:
            self._rejections -= 1
            raise KafkaError(ErrorCode.not_controller)
        self.reports.append(report)


@async_test
async def test_end_offset_is_reported_when_every_in_sync_replica_has_it(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2), records=5)
    controller = Controller(rejections=1)
    reporting = asyncio.create_task(report_end_offset(partition, ME, 9, controller.send_report))
    await run_event_loop()
    assert not controller.reports
    record_fetch(partition, 2, 5)
    await reporting
    assert controller.reports == [MirrorReport(ME, TOPIC, 0, 1, end=5, source_end=9)]


@async_test
async def test_start_of_an_empty_log_is_reported_when_every_in_sync_replica_starts_there(tmp_path: Path) -> None:
    """Otherwise a later leader that has not moved its log start would append producers' records
    below it.
    """
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2))
    partition.log.truncate_fully_and_start_at(121)
    assert partition.log.high_watermark == 121
    controller = Controller()
    reporting = asyncio.create_task(report_end_offset(partition, ME, 130, controller.send_report))
    await run_event_loop()
    record_fetch(partition, 2, 0)
    await run_event_loop()
    assert not controller.reports
    record_fetch(partition, 2, 121)
    await reporting
    assert controller.reports == [MirrorReport(ME, TOPIC, 0, 1, end=121, source_end=130)]


@async_test
async def test_former_leader_reports_nothing(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2), records=5)
    controller = Controller()
    reporting = asyncio.create_task(report_end_offset(partition, ME, 9, controller.send_report))
    await asyncio.sleep(0)
    update_metadata(partition, leader=2, leader_epoch=2)
    await wait_until(reporting.done)
    assert not controller.reports


@async_test
async def test_only_transactions_of_the_source_are_aborted(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1,))
    log = partition.log
    for producer in (5, 6):
        log.append_as_leader(
            batch(2, producer=(producer, 1, 0), transactional=True), leader_epoch=1, now_ms=1, from_client=False
        )
    log.append_as_leader(marker(True, 6, producer_epoch=1), leader_epoch=1, now_ms=1, from_client=False)
    end = log.end
    log.append_as_leader(batch(1, producer=(7, 0, 0), transactional=True), leader_epoch=1, now_ms=1, from_client=False)
    assert abort_open_transactions(partition, end, 1) == 1
    assert [one.producer_id for one in log.aborted_transactions(0, log.end)] == [5]
    assert log.last_stable_offset == end, "the transaction that began here is still open"
    assert abort_open_transactions(partition, end, 1) == 0


def test_topic_is_writable_once_the_end_offset_is_known() -> None:
    image = MetadataImage()
    topic = UUID(int=1)
    assert image.is_writable(topic, 0)
    image.mirrored_topics[topic] = MirroredTopicRecord(topic, "west", "t", UUID(int=2))
    assert not image.is_writable(topic, 0)
    assert produce_rejection(image, topic, "t").code is ErrorCode.invalid_topic_exception
    image.mirrored_topics[topic] = MirroredTopicRecord(topic, "west", "t", UUID(int=2), failed_over=True)
    assert not image.is_writable(topic, 0)
    assert produce_rejection(image, topic, "t").code is ErrorCode.not_enough_replicas
    image.mirrored_partitions[topic, 0] = MirroredPartitionRecord(topic, 0, end=0)
    assert image.is_writable(topic, 0)
    assert not image.is_writable(topic, 1)
