"""A copy that fails over: where its own records begin, and what is aborted."""

import asyncio
from pathlib import Path
from uuid import UUID

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.mirror_plans import MirrorReport, produce_rejection
from ottla_broker.metadata.records import MirroredPartitionRecord, MirroredTopicRecord
from ottla_broker.mirroring.failover import abort_open_transactions, report_end_offset
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.log.log_fixtures import batch, marker
from tests.unit.metadata.small_controller import on_a_loop, until
from tests.unit.replication.leading import ME, TOPIC, Peers, committed, fetch, led


class Controller:
    """Hears reports; refuses so many first."""

    def __init__(self, refuses: int = 0) -> None:
        self.heard: list[MirrorReport] = []
        self._refuses = refuses

    async def tell(self, topic: str, report: MirrorReport) -> None:
        assert topic == "t"
        if self._refuses:
            self._refuses -= 1
            raise KafkaError(ErrorCode.not_controller)
        self.heard.append(report)


@on_a_loop
async def test_the_end_is_told_when_every_in_sync_replica_has_it(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2), records=5)
    controller = Controller(refuses=1)
    telling = asyncio.create_task(report_end_offset(partition, ME, 9, controller.tell))
    await asyncio.sleep(0.01)
    assert not controller.heard
    fetch(partition, 2, 5)
    await telling
    assert controller.heard == [MirrorReport(ME, TOPIC, 0, 1, end=5, source_end=9)]


@on_a_loop
async def test_where_an_empty_copy_begins_is_told_when_every_in_sync_replica_begins_there(tmp_path: Path) -> None:
    """Or another leader, who has not heard of it, would take producers' records below."""
    partition = led(tmp_path, Peers(), isr=(1, 2))
    partition.log.truncate_fully_and_start_at(121)
    assert partition.log.high_watermark == 121
    controller = Controller()
    telling = asyncio.create_task(report_end_offset(partition, ME, 130, controller.tell))
    await asyncio.sleep(0.01)
    fetch(partition, 2, 0)
    await asyncio.sleep(0.01)
    assert not controller.heard
    fetch(partition, 2, 121)
    await telling
    assert controller.heard == [MirrorReport(ME, TOPIC, 0, 1, end=121, source_end=130)]


@on_a_loop
async def test_who_leads_no_longer_tells_nothing(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2), records=5)
    controller = Controller()
    telling = asyncio.create_task(report_end_offset(partition, ME, 9, controller.tell))
    await asyncio.sleep(0)
    committed(partition, leader=2, leader_epoch=2)
    await until(telling.done)
    assert not controller.heard


@on_a_loop
async def test_only_transactions_of_the_source_are_aborted(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1,))
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
    assert log.last_stable_offset == end, "the one that began here is open still"
    assert abort_open_transactions(partition, end, 1) == 0


def test_producers_wait_until_the_end_is_known() -> None:
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
