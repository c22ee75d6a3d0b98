"""Records of consumer groups (KIP-848) have Kafka's format: Kafka's decoder reads each that Ottla
writes, and Ottla loads a group that Kafka wrote.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import (
    CONSUMER_GROUP_RECORDS,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupKey,
    ConsumerGroupRecordKey,
    ConsumerGroupRecordValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupEpochValue,
    PartitionMetadataKey,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetAssignmentEpochKey,
    TargetAssignmentEpochValue,
    TargetAssignmentKey,
    TargetAssignmentValue,
    TopicPartitions,
)
from ottla_broker.coordination.coordinator_loader import CoordinatorLoader
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.records import OFFSETS_TOPIC
from ottla_broker.runtime import uuid_text
from ottla_broker.wire.records import Record, encode_batch
from tests.brokers import run_apache_kafka
from tests.e2e.test_kafka_decodes_offsets import Row, consumer, create_topic, decode_with_kafka, has_both_partitions
from tests.waiting import eventually

TOPIC_ID = UUID(int=0x1234567890ABCDEF)
IDS = {"groupId": "g"}
MEMBER_IDS = {"groupId": "g", "memberId": "m"}
PARTITIONS = (TopicPartitions(TOPIC_ID, (0, 2)),)
PARTITIONS_IN_JSON = [{"topicId": uuid_text(TOPIC_ID), "partitions": [0, 2]}]
MEMBER = ConsumerMemberValue("i", None, "c", "/h", ("t", "u"), "x.*", 1000, "range", None)
MEMBER_IN_JSON = {
    "instanceId": "i",
    "rackId": None,
    "clientId": "c",
    "clientHost": "/h",
    "subscribedTopicNames": ["t", "u"],
    "subscribedTopicRegex": "x.*",
    "rebalanceTimeoutMs": 1000,
    "serverAssignor": "range",
}
CLASSIC = ClassicMemberMetadata(45_000, (ClassicProtocol("range", b"\x00\x01"),))
CLASSIC_IN_JSON = {"sessionTimeoutMs": 45_000, "supportedProtocols": [{"name": "range", "metadata": "AAE="}]}

# Key, value, record type, and key and value as Kafka's decoder prints them.
RECORDS: list[tuple[ConsumerGroupRecordKey, ConsumerGroupRecordValue | None, int, dict[str, Any], Any]] = [
    (ConsumerMemberKey("g", "m"), MEMBER, 5, MEMBER_IDS, MEMBER_IN_JSON | {"classicMemberMetadata": None}),
    (
        ConsumerMemberKey("g", "m"),
        MEMBER._replace(classic=CLASSIC),
        5,
        MEMBER_IDS,
        MEMBER_IN_JSON | {"classicMemberMetadata": CLASSIC_IN_JSON},
    ),
    (
        ConsumerGroupKey("g"),
        GroupEpochValue(7, -(1 << 62)),
        3,
        IDS,
        {"epoch": 7, "metadataHash": -(1 << 62)},
    ),
    (
        TargetAssignmentKey("g", "m"),
        TargetAssignmentValue(PARTITIONS),
        7,
        MEMBER_IDS,
        {"topicPartitions": PARTITIONS_IN_JSON},
    ),
    (TargetAssignmentEpochKey("g"), TargetAssignmentEpochValue(7), 6, IDS, {"assignmentEpoch": 7}),
    (
        CurrentAssignmentKey("g", "m"),
        CurrentAssignmentValue(7, 6, 1, PARTITIONS, PARTITIONS),
        8,
        MEMBER_IDS,
        {
            "memberEpoch": 7,
            "previousMemberEpoch": 6,
            "state": 1,
            "assignedPartitions": PARTITIONS_IN_JSON,
            "partitionsPendingRevocation": PARTITIONS_IN_JSON,
        },
    ),
    (
        RegularExpressionKey("g", "x.*"),
        RegularExpressionValue(("x1",), 3, 1_700_000_000_000),
        16,
        IDS | {"regularExpression": "x.*"},
        {"topics": ["x1"], "version": 3, "timestamp": 1_700_000_000_000},
    ),
    (PartitionMetadataKey("g"), None, 4, IDS, None),
    (ConsumerGroupKey("g"), None, 3, IDS, None),
]


def test_kafka_decodes_each_kind_of_record(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(
        encode_batch(
            [
                Record(
                    1_700_000_000_000,
                    CONSUMER_GROUP_RECORDS.encode_key(key),
                    None if value is None else CONSUMER_GROUP_RECORDS.encode_value(key, value),
                )
                for key, value, *_ in RECORDS
            ]
        )
    )
    expected: list[Row] = [
        ({"type": str(record_type), "data": key}, None if value is None else {"version": "0", "data": value})
        for _, _, record_type, key, value in RECORDS
    ]
    assert decode_with_kafka(log) == expected


def test_a_group_that_kafka_wrote_is_loaded() -> None:
    with run_apache_kafka(
        offsets_topic_num_partitions=1, group_coordinator_rebalance_protocols="classic,consumer"
    ) as broker:
        create_topic(broker, "t")
        member = consumer(broker, "g", group_protocol="consumer", group_instance_id="i", client_id="reader")
        member.subscribe(["^t.*"])
        eventually(lambda: has_both_partitions(member), within_s=60)
        member.close()  # a static member stays
        broker.stop()
        log = broker.log_dir / f"{OFFSETS_TOPIC}-0" / "00000000000000000000.log"
        loader = CoordinatorLoader(GroupCoordinatorConfig())
        for _ in loader.load_chunk(log.read_bytes()):
            pass
    assert loader.unknown_record_count == 0
    group = loader.groups["g"]
    assert isinstance(group, ConsumerGroup)
    [found] = group.members.values()
    # librdkafka adds the parentheses.
    assert (found.group_instance_id, found.client_id, found.subscribed_topic_regex) == ("i", "reader", "(^t.*)")
    assert [sorted(partitions) for partitions in found.assigned.values()] == [[0, 1]]
    assert group.targets[found.id] == found.assigned
    assert (found.epoch, group.assignment_epoch) == (-2, group.epoch)
    assert [expression.topics for expression in group.regular_expressions.values()] == [("t",)]
