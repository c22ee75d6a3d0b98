"""Snapshots of the metadata image: written, read at start, and fetched by brokers far behind."""

import asyncio
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from ottla_broker.log.disk import OsDisk
from ottla_broker.metadata import snapshot_generator
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    Endpoint,
    LeaderChangeRecord,
    MetadataRecord,
    MirroredPartitionRecord,
    MirroredTopicRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from ottla_broker.metadata.snapshots import SnapshotStore
from ottla_broker.metadata.voter_set import Voter
from ottla_broker.security.acls import AccessControlEntry
from ottla_broker.security.scram import ScramCredential
from tests.unit.metadata.whole_cluster import WholeCluster, run_scenario

# --- the image as records


def random_records(random: Random, length: int) -> list[MetadataRecord]:
    """Random records in an order that a controller could have committed."""
    records: list[MetadataRecord] = []
    topics: dict[str, UUID] = {}
    epochs: dict[int, int] = {}
    for offset in range(length):
        name = f"topic-{random.randrange(4)}"
        broker = random.randrange(3)
        match random.randrange(13):
            case 0 if name not in topics:
                topics[name] = UUID(int=offset + 1)
                records.append(TopicRecord(name, topics[name]))
            case 1 if name in topics:
                records.append(RemoveTopicRecord(topics.pop(name)))
            case 2 | 3 if name in topics:
                records.append(
                    PartitionRecord(
                        topics[name], random.randrange(3), (1, 2), (1,), 1, leader_epoch=offset, eligible=(2,)
                    )
                )
            case 8 if name in topics:
                records.append(MirroredTopicRecord(topics[name], "west", name, UUID(int=offset), random.random() < 0.5))
            case 9 if name in topics:
                records.append(PartitionRecord(topics[name], 0, (1, 2), (1,), 1, leader_epoch=offset))
                records.append(MirroredPartitionRecord(topics[name], 0, ((offset, offset),)))
            case 4:
                value = random.choice(("1", "2", None))
                records.append(ConfigRecord(2, random.choice(list(topics) or ["nothing"]), random.choice("ab"), value))
            case 5:
                epochs[broker] = len(records)
                records.append(
                    RegisterBrokerRecord(
                        broker,
                        UUID(int=offset),
                        {"PLAINTEXT": Endpoint("here", offset)},
                        rack="r",
                        http="h:1",
                        node="n",
                    )
                )
            case 6 if broker in epochs:
                if random.random() < 0.2:
                    records.append(UnregisterBrokerRecord(broker, epochs.pop(broker)))
                else:
                    directories = random.choice((None, (UUID(int=7),)))
                    records.append(
                        BrokerRegistrationChangeRecord(
                            broker, epochs[broker], random.random() < 0.5, random.random() < 0.5, directories
                        )
                    )
            case 10:
                entry = AccessControlEntry(2, random.choice("ab"), 3, "User:alice", "*", 3, random.choice((2, 3)))
                ids = [one.id for one in records if isinstance(one, AccessControlEntryRecord)]
                records.append(AccessControlEntryRecord(UUID(int=offset), entry))
                if ids and random.random() < 0.5:
                    records.append(RemoveAccessControlEntryRecord(random.choice(ids)))
            case 11:
                name, credential = random.choice("ab"), ScramCredential(b"s", b"k", bytes([offset % 256]), 4096)
                records.append(UserScramCredentialRecord(name, random.choice((1, 2)), credential))
                if random.random() < 0.5:
                    records.append(RemoveUserScramCredentialRecord(random.choice("ab"), 1))
            case 12:
                entity = random.choice(((("user", "a"),), (("user", None), ("client-id", "c")), (("ip", "::1"),)))
                records.append(ClientQuotaRecord(entity, random.choice("kl"), random.choice((1.0, 2.5, None))))
            case 7:
                records.append(random.choice((LeaderChangeRecord(broker, offset), ProducerIdsRecord(offset * 1000))))
    return records


def build_image(records: list[MetadataRecord]) -> MetadataImage:
    image = MetadataImage()
    image.apply_records(enumerate(records))
    return image


@pytest.mark.parametrize("seed", range(40))
def test_an_image_is_restored_from_its_records(seed: int) -> None:
    image = build_image(random_records(Random(seed), 120))
    restored = build_image(image.to_records(epoch=5))
    restored.end_offset = image.end_offset
    assert restored == image


@pytest.mark.parametrize("seed", range(20))
def test_replacing_an_image_returns_deleted_and_created_topics_and_all_partitions(seed: int) -> None:
    history = random_records(Random(seed), 120)
    image, target = build_image(history[:40]), build_image(history)
    before = dict(image.topic_names)
    changes = image.replace_with(target)
    assert image == build_image(history)
    assert {topic.id for topic in changes.deleted_topics} == before.keys() - image.topic_names.keys()
    assert {image.topics[name].id for name in changes.created_topics} == image.topic_names.keys() - before.keys()
    assert changes.changed_partitions == {(name, p) for name, topic in image.topics.items() for p in topic.partitions}
    assert changes.controller_changed, "the same broker may have been elected again"


# --- files

VOTERS = (Voter(1, UUID(int=1), "one:9092"), Voter(2, UUID(int=2), "[::1]:9093", (0, 2)))


def test_two_snapshots_are_kept_and_partial_ones_are_deleted(tmp_path: Path) -> None:
    snapshots = SnapshotStore(str(tmp_path), OsDisk())
    for end in (3, 5, 9):
        snapshots.write(EpochAndOffset(1, end), VOTERS, [ProducerIdsRecord(end)], now_ms=0)
        snapshots.add_snapshot(EpochAndOffset(1, end))
    snapshots.create_partial(EpochAndOffset(2, 12))
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "00000000000000000005-0000000001.checkpoint",
        "00000000000000000009-0000000001.checkpoint",
        "00000000000000000012-0000000002.checkpoint.part",
    ]
    restored = SnapshotStore(str(tmp_path), OsDisk())
    assert restored.snapshot_ids == [EpochAndOffset(1, 5), EpochAndOffset(1, 9)]
    assert list(restored.read_records(EpochAndOffset(1, 9))) == [ProducerIdsRecord(9)]
    assert restored.epoch_before(5) == 1
    assert restored.epoch_before(6) is None
    assert len(list(tmp_path.iterdir())) == 2


def test_an_interrupted_transfer_of_a_snapshot_begins_again(tmp_path: Path) -> None:
    snapshots, snapshot_id = SnapshotStore(str(tmp_path), OsDisk()), EpochAndOffset(2, 12)
    snapshots.create_partial(snapshot_id)
    snapshots.append_partial(snapshot_id, b"first chunk")
    snapshots.create_partial(snapshot_id)
    snapshots.append_partial(snapshot_id, b"whole snapshot")
    snapshots.complete_partial(snapshot_id)
    assert snapshots.read_bytes(snapshot_id, 0, 100) == b"whole snapshot"


def test_a_failed_snapshot_stays_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval counts from the last snapshot, not from the attempt that failed."""
    since = []

    def is_due(log: object, intervals: object, since_s: float) -> bool:
        since.append(since_s)
        return True

    async def fail(log: object, runtime: object) -> None:
        if len(since) == 3:
            raise asyncio.CancelledError
        raise OSError

    monkeypatch.setattr(snapshot_generator, "CHECK_INTERVAL_S", 0.001)
    monkeypatch.setattr(snapshot_generator, "RETRY_PAUSE_S", 0.01)
    monkeypatch.setattr(snapshot_generator, "is_snapshot_due", is_due)
    monkeypatch.setattr(snapshot_generator, "generate_snapshot", fail)
    log = MetadataLog(None, MetadataImage(), None, None, lambda delta: None)  # type: ignore[arg-type]
    run = snapshot_generator.run_snapshot_generator(log, snapshot_generator.SnapshotIntervals(), None)  # type: ignore[arg-type]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run)
    assert since[2] >= since[1] + 0.01 >= since[0] + 0.02


def test_a_snapshot_of_many_records_is_written_in_several_batches(tmp_path: Path) -> None:
    snapshots = SnapshotStore(str(tmp_path), OsDisk())
    records: list[MetadataRecord] = [ConfigRecord(2, "t", str(number), "v") for number in range(1_234)]
    snapshots.write(EpochAndOffset(1, 3), VOTERS, records, now_ms=0)
    assert list(snapshots.read_records(EpochAndOffset(1, 3))) == records
    assert snapshots.read_voters(EpochAndOffset(1, 3)) == VOTERS


# --- brokers

FREQUENT_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "4000"}


async def create_topics(cluster: WholeCluster, count: int) -> None:
    for number in range(count):
        await cluster.create_topic(f"topic-{number}")
        await cluster.pause(0.1)


@pytest.mark.parametrize("seed", [1, 2])
def test_records_read_at_start_do_not_grow_with_history(seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        for _ in range(3):
            for value in range(60):
                await cluster.set_retention_ms(value + 1)
            await cluster.pause(3)
        for node in cluster:
            node.lose_power()
            node.power_on()
        await cluster.start_all()
        await cluster.wait_until_equal(compare_from=-1)
        for node in cluster:
            assert node.broker is not None
            assert node.broker.image.end_offset > 180
            assert node.broker.quorum.metadata_log.records_read < 110
            assert node.broker.quorum.metadata_log.partition_log.start > 60
        assert leader.broker is not None

    run_scenario(scenario, seed=seed, settings=FREQUENT_SNAPSHOTS)


def test_a_broker_far_behind_fetches_a_snapshot() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        lagging = cluster.others(leader)[0]
        lagging.kill()
        await create_topics(cluster, 40)
        await cluster.pause(3)
        leader = cluster.leader
        assert leader.broker is not None
        start = leader.broker.quorum.metadata_log.partition_log.start
        lagging.start()
        await cluster.until(lambda: lagging.is_serving)
        await cluster.wait_until_equal(*(f"topic-{number}" for number in range(40)), compare_from=-1)
        assert lagging.broker is not None
        assert lagging.broker.quorum.metadata_log.partition_log.start >= start > 0

    run_scenario(scenario, settings=FREQUENT_SNAPSHOTS)


def test_a_running_broker_that_was_isolated_fetches_a_snapshot() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        await cluster.create_topic("gone")
        lagging = cluster.others(leader)[0]
        others = [node.host for node in cluster.others(lagging)]
        cluster.network.isolate_host(lagging.host, others)
        await cluster.delete_topic("gone")
        await create_topics(cluster, 40)
        await cluster.pause(3)
        cluster.network.rejoin_host(lagging.host, others)
        await cluster.wait_until_equal(*(f"topic-{number}" for number in range(40)), compare_from=-1)
        assert lagging.broker is not None
        assert "gone" not in lagging.broker.image.topics

    run_scenario(scenario, settings=FREQUENT_SNAPSHOTS)
