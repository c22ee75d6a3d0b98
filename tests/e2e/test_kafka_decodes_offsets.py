"""`__consumer_offsets` has Kafka's format. Kafka's decoder reads each record that Ottla writes,
Kafka's coordinator serves groups from them, and Ottla loads what Kafka wrote.
"""

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.coordinator_loader import CoordinatorLoader
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.records import (
    GROUP_METADATA,
    OFFSETS_TOPIC,
    GroupMetadata,
    GroupMetadataKey,
    MemberMetadata,
    OffsetCommit,
    OffsetCommitKey,
    coordinator_partition,
    decode_key,
    decode_offset_commit,
    decode_value,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from ottla_broker.runtime import uuid_text
from ottla_broker.wire.records import Record, encode_batch, iter_records
from tests.brokers import BrokerProcess, run_apache_kafka, run_ottla_broker
from tests.e2e.dump_log_segments import run_dump_log_segments
from tests.waiting import eventually

PARTITIONS = 5
COORDINATOR_STARTING = (
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
SUBSCRIPTION = bytes.fromhex("000000000001000174ffffffff")  # topic t, no user data
ASSIGNMENT = bytes.fromhex("0000000000010001740000000100000000ffffffff")  # t-0
RECORD_LINE = re.compile(r"\| offset: (\d+) .* key: (\{.*?\}\}) payload: (.*)$")

Row = tuple[dict[str, Any], dict[str, Any] | None]  # key and value as Kafka's decoder prints them


def decode_with_kafka(log: Path) -> list[Row]:
    """(key, value) of every record, as `DumpLogSegments --offsets-decoder` prints them; None for a
    tombstone.
    """
    output = run_dump_log_segments("--offsets-decoder", "--files", str(log)).stdout
    assert "isvalid: false" not in output
    rows = []
    for line in output.splitlines():
        if (match := RECORD_LINE.match(line)) is not None:
            value = match[3]
            rows.append((json.loads(match[2]), None if value == "<DELETE>" else json.loads(value)))
    return rows


def decode_with_ottla(log: Path) -> list[Row]:
    """The same rows, read by Ottla."""
    return [as_kafka_prints(record) for _, record in iter_records(log.read_bytes())]


def as_kafka_prints(record: Record) -> Row:
    key, value = decode_key(record.key or b""), record.value
    if isinstance(key, OffsetCommitKey):
        return {"type": "1", "data": key._asdict()}, None if value is None else offset_as_kafka_prints(value)
    assert isinstance(key, GroupMetadataKey)
    return {"type": "2", "data": key._asdict()}, None if value is None else group_as_kafka_prints(value)


def offset_as_kafka_prints(value: bytes) -> dict[str, Any]:
    commit = decode_offset_commit(value)
    data: dict[str, Any] = {"offset": commit.offset}
    if value[1] >= 3:
        data["leaderEpoch"] = commit.leader_epoch
    data |= {"metadata": commit.metadata, "commitTimestamp": commit.commit_ms}
    if value[1] == 1:
        data["expireTimestamp"] = commit.expire_ms
    if commit.topic_id is not None:
        data["topicId"] = uuid_text(commit.topic_id)
    return {"version": str(value[1]), "data": data}


def group_as_kafka_prints(value: bytes) -> dict[str, Any]:
    group = decode_value(GROUP_METADATA, value)
    data = {
        "protocolType": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "currentStateTimestamp": group.state_since_ms,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout_ms,
                "sessionTimeout": member.session_timeout_ms,
            }
            for member in group.members
        ],
    }
    return {"version": str(value[1]), "data": data}


def without_embedded_protocol(row: Row) -> Row:
    """Removes the subscription and the assignment, which clients encode and Kafka's decoder also
    decodes.
    """
    for member in (row[1] or {}).get("data", {}).get("members", ()):
        member.pop("subscription"), member.pop("assignment")
    return row


def group(generation: int, *members: str) -> GroupMetadata:
    return GroupMetadata(
        "consumer",
        generation,
        "range" if members else None,
        members[0] if members else None,
        1_700_000_000_000,
        tuple(
            MemberMetadata(
                member, f"static-{member}", "client", "/127.0.0.1", 300_000, 1_800_000, SUBSCRIPTION, ASSIGNMENT
            )
            for member in members
        ),
    )


def test_kafka_decodes_each_kind_of_record(tmp_path: Path) -> None:
    topic_id = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    offsets = [
        OffsetCommit(2**62, 7, "x" * 200, 1_700_000_000_000, topic_id=topic_id),
        OffsetCommit(0, -1, "", 1_700_000_000_000),
        OffsetCommit(3, -1, "naïve ☃", 1_700_000_000_000, expire_ms=1_800_000_000_000),
    ]
    pairs: list[tuple[bytes, bytes | None]] = [
        (encode_offset_commit_key("g", "t", partition), encode_offset_commit_value(commit))
        for partition, commit in enumerate(offsets)
    ]
    pairs += [
        (encode_group_metadata_key("g"), encode_group_metadata_value(metadata))
        for metadata in (group(0), group(1, "m1"), group(2, "m1", "m2"))
    ]
    pairs += [(encode_offset_commit_key("g", "t", 0), None), (encode_group_metadata_key("g"), None)]
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(encode_batch([Record(1_700_000_000_000, key, value) for key, value in pairs]))
    by_kafka = [without_embedded_protocol(row) for row in decode_with_kafka(log)]
    assert by_kafka == decode_with_ottla(log)
    assert len(by_kafka) == len(pairs)


def consumer(broker: BrokerProcess, name: str, **settings: Any) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | {key.replace("_", "."): value for key, value in settings.items()}
    )


def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create_topic(broker: BrokerProcess, name: str) -> None:
    client = admin(broker)  # must outlive its request
    client.create_topics([NewTopic(name, 2, 1)])[name].result(30)


def has_both_partitions(member: ck.Consumer) -> bool:
    """Polls the member. True if it has both partitions of the topic."""
    member.poll(0.1)
    return len(member.assignment()) == 2


def committed(broker: BrokerProcess, name: str) -> dict[tuple[str, int], int]:
    """Committed offsets of a group. Raises KafkaException while its coordinator is not
    available.
    """
    client = admin(broker)
    offsets = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(30)
    return {(it.topic, it.partition): it.offset for it in offsets.topic_partitions}


def test_kafka_decodes_the_log_of_a_broker() -> None:
    with run_ottla_broker(offsets_topic_num_partitions=1) as broker:
        create_topic(broker, "t")
        member = consumer(broker, "g", group_instance_id="i")
        member.subscribe(["t"])
        eventually(lambda: has_both_partitions(member))
        member.commit(offsets=[TopicPartition("t", 0, 0), TopicPartition("t", 1, 0, metadata="m")], asynchronous=False)
        member.close()
        simple = admin(broker)
        offsets = ConsumerGroupTopicPartitions("simple", [TopicPartition("t", 0, 0)])
        simple.alter_consumer_group_offsets([offsets])["simple"].result(30)
        simple.delete_consumer_groups(["simple"])["simple"].result(30)
        broker.stop()
        log = broker.log_dir / f"{OFFSETS_TOPIC}-0" / "00000000000000000000.log"
        rows = decode_with_ottla(log)
        assert [without_embedded_protocol(row) for row in decode_with_kafka(log)] == rows
        assert {row[0]["type"] for row in rows} == {"1", "2"}
        assert any(row[1] is None for row in rows)


@pytest.fixture(scope="module")
def kafka() -> Iterator[BrokerProcess]:
    with run_apache_kafka(
        offsets_topic_num_partitions=PARTITIONS, group_coordinator_rebalance_protocols="classic,consumer"
    ) as broker:
        create_topic(broker, "t")
        yield broker


def describe_group(client: AdminClient, name: str) -> ck.admin.ConsumerGroupDescription | None:
    """None while the coordinator starts: its broker may not have the metadata yet, or may be
    loading the group.
    """
    try:
        return client.describe_consumer_groups([name])[name].result(30)
    except ck.KafkaException as reason:
        if reason.args[0].code() not in COORDINATOR_STARTING:
            raise
        return None


def test_kafkas_coordinator_serves_a_group_from_records_of_ottla(kafka: BrokerProcess) -> None:
    simple = admin(kafka)
    offsets = ConsumerGroupTopicPartitions("creates-the-topic", [TopicPartition("t", 0, 0)])
    simple.alter_consumer_group_offsets([offsets])["creates-the-topic"].result(30)
    # Only a client with this id may write to internal topics.
    writer = ck.Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "__admin_client"})
    partition = coordinator_partition("from-ottla", PARTITIONS)
    pairs = [
        (encode_group_metadata_key("from-ottla"), encode_group_metadata_value(group(7, "m1", "m2"))),
        (
            encode_offset_commit_key("from-ottla", "t", 0),
            encode_offset_commit_value(OffsetCommit(41, 0, "meta", 1_700_000_000_000)),
        ),
        (
            encode_offset_commit_key("from-ottla", "t", 1),
            encode_offset_commit_value(OffsetCommit(42, 0, "", 1_700_000_000_000)),
        ),
        (encode_offset_commit_key("from-ottla", "t", 1), None),
    ]
    for key, value in pairs:
        writer.produce(OFFSETS_TOPIC, key=key, value=value, partition=partition)
    assert writer.flush(30) == 0
    kafka.restart()
    found = eventually(lambda: describe_group(simple, "from-ottla"), within_s=60)
    assert found is not None
    assert found.state == ConsumerGroupState.STABLE
    assert [(m.member_id, m.group_instance_id, m.host) for m in found.members] == [
        ("m1", "static-m1", "/127.0.0.1"),
        ("m2", "static-m2", "/127.0.0.1"),
    ]
    assert committed(kafka, "from-ottla") == {("t", 0): 41}


def test_ottla_loads_groups_and_offsets_that_kafka_wrote(kafka: BrokerProcess) -> None:
    classic, newer = (
        consumer(kafka, "classic", group_instance_id="i"),
        consumer(kafka, "newer", group_protocol="consumer"),
    )
    for member in (classic, newer):
        member.subscribe(["t"])
    eventually(lambda: has_both_partitions(classic) and has_both_partitions(newer), within_s=60)
    for member, offset in ((classic, 0), (newer, 0)):
        member.commit(offsets=[TopicPartition("t", 1, offset, metadata="of kafka")], asynchronous=False)
    classic.close()  # a static member stays in its group
    kafka.stop()
    newer.close()
    logs = sorted(kafka.log_dir.glob(f"{OFFSETS_TOPIC}-*/00000000000000000000.log"))
    loaders = {int(log.parent.name.rpartition("-")[2]): CoordinatorLoader(GroupCoordinatorConfig()) for log in logs}
    for log in logs:
        for _ in loaders[int(log.parent.name.rpartition("-")[2])].load_chunk(log.read_bytes()):
            pass
    loader = loaders[coordinator_partition("classic", PARTITIONS)]
    group = loader.groups["classic"]
    assert isinstance(group, ClassicGroup)
    assert (group.state, list(group.static_members)) == (GroupState.stable, ["i"])
    assert group.subscribed_topics == frozenset({"t"})
    commit = loader.offsets.get("classic", "t", 1)
    assert commit is not None
    # The client also sends the terminating zero.
    assert (commit.offset, commit.metadata.rstrip("\0")) == (0, "of kafka")
    other = loaders[coordinator_partition("newer", PARTITIONS)]
    newer_group = other.groups["newer"]
    assert isinstance(newer_group, ConsumerGroup) and newer_group.members and other.unknown_record_count == 0
    assert other.offsets.get("newer", "t", 1) is not None
    for loader in loaders.values():
        for _ in loader.add_simple_groups():
            pass
        assert set(loader.offsets.group_ids()) <= loader.groups.keys()
