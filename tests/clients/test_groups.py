"""Consumer groups as librdkafka sees them: assignment, takeover, committed offsets."""

import subprocess
from collections.abc import Callable
from concurrent.futures import Future

import confluent_kafka as ck
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.group_members import FAST_SETTINGS, SESSION_TIMEOUT_MS, GroupMember, run_members, wait_until_balanced
from tests.waiting import eventually

EAGER: dict[str, object] = {"partition_assignment_strategy": "range"}
ROUND_ROBIN: dict[str, object] = {"partition_assignment_strategy": "roundrobin"}
COOPERATIVE: dict[str, object] = {"partition_assignment_strategy": "cooperative-sticky"}
WITHIN_S = 30


@pytest.mark.parametrize("strategy", [EAGER, ROUND_ROBIN, COOPERATIVE], ids=["range", "roundrobin", "cooperative"])
def test_partitions_are_balanced_when_members_join_and_leave(
    broker: BrokerProcess, name: str, strategy: dict[str, object]
) -> None:
    rd.create_topic(broker.bootstrap, name, 6)
    with run_members(broker.bootstrap, name, name, [strategy, strategy]) as (first, second):
        wait_until_balanced([first, second], 6)
        third = GroupMember(broker.bootstrap, name, name, **strategy)
        try:
            wait_until_balanced([first, second, third], 6)
        finally:
            third.leave()
        wait_until_balanced([first, second], 6)
        for partition in range(6):
            rd.produce(
                broker.bootstrap, name, rd.numbered_messages(partition * 10, partition * 10 + 10), partition=partition
            )
        eventually(lambda: len(first.values) + len(second.values) >= 60)
        got = sorted(first.values + second.values)
        assert got == sorted(record.value or b"" for record in rd.numbered_messages(0, 60)), (
            "each record once, to one member"
        )


def test_cooperative_rebalance_revokes_only_moved_partitions(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 6)
    with run_members(broker.bootstrap, name, name, [COOPERATIVE]) as (first,):
        wait_until_balanced([first], 6)
        before = first.assigned
        with run_members(broker.bootstrap, name, name, [COOPERATIVE]) as (second,):
            wait_until_balanced([first, second], 6)
            assert first.assigned < before
            assert first.revoked == 1


def test_killed_member_is_replaced_after_its_session_timeout(broker: BrokerProcess, name: str, kcat: str) -> None:
    rd.create_topic(broker.bootstrap, name, 4)
    settings = [part for key, value in FAST_SETTINGS.items() if "wait" not in key for part in ("-X", f"{key}={value}")]
    settings += ["-X", "partition.assignment.strategy=range"]
    other = subprocess.Popen(
        [kcat, "-b", broker.bootstrap, *settings, "-G", name, name],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with run_members(broker.bootstrap, name, name, [EAGER]) as (stays,):
            eventually(lambda: len(stays.assigned) == 2, message="two members share four partitions")
            other.kill()
            eventually(lambda: len(stays.assigned) == 4, within_s=SESSION_TIMEOUT_MS / 1000 + 10)
    finally:
        other.kill()
        other.wait()


def test_static_member_returns_to_its_partitions(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 4)
    one: dict[str, object] = {"group_instance_id": "one", "session_timeout_ms": 20_000, **EAGER}
    two: dict[str, object] = {"group_instance_id": "two", "session_timeout_ms": 20_000, **EAGER}
    with run_members(broker.bootstrap, name, name, [one]) as (first,):
        second = GroupMember(broker.bootstrap, name, name, **two)
        wait_until_balanced([first, second], 4)
        had, revoked = second.assigned, first.revoked
        second.leave()
        second = GroupMember(broker.bootstrap, name, name, **two)
        try:
            eventually(lambda: second.assigned == had)
            assert first.revoked == revoked, "the other member was not rebalanced"
        finally:
            second.leave()


def test_duplicate_static_member_fences_the_older_one(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 2)
    same: dict[str, object] = {"group_instance_id": "same", **EAGER}
    with run_members(broker.bootstrap, name, name, [same]) as (old,):
        eventually(lambda: len(old.assigned) == 2)
        with run_members(broker.bootstrap, name, name, [same]) as (new,):
            error = eventually(lambda: old.error, message="the older member is fenced")
            assert "fenced" in str(error).lower()
            eventually(lambda: len(new.assigned) == 2)


def test_members_without_common_protocol_are_rejected(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 2)
    with (
        run_members(broker.bootstrap, name, name, [EAGER]) as (first,),
        rd.open_consumer(broker.bootstrap, name, partition_assignment_strategy="roundrobin", **FAST_SETTINGS) as other,
    ):
        eventually(lambda: len(first.assigned) == 2)
        other.subscribe([name])
        message = rd.poll_message(other)
        assert message.error().code() == ck.KafkaError.INCONSISTENT_GROUP_PROTOCOL


def test_pattern_subscription_finds_new_topics(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, f"{name}-a")
    settings: dict[str, object] = {"topic_metadata_refresh_interval_ms": 200, "metadata_max_age_ms": 1000}
    with run_members(broker.bootstrap, name, f"^{name}-.*", [settings]) as (member,):
        eventually(lambda: len(member.assigned) == 1)
        rd.create_topic(broker.bootstrap, f"{name}-b", 2)
        eventually(lambda: len(member.assigned) == 2, message="partitions 0 and 1: the new topic has two")


def test_group_resumes_at_committed_offsets(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 20))
    with rd.open_consumer(broker.bootstrap, name) as reader:
        reader.subscribe([name])
        taken = [rd.poll_message(reader) for _ in range(7)]
        reader.commit(taken[-1], asynchronous=False)
    with rd.open_consumer(broker.bootstrap, name) as reader:
        reader.subscribe([name])
        assert rd.poll_message(reader).offset() == 7
        found = reader.committed([ck.TopicPartition(name, 0)], timeout=10)[0]
        assert found.offset == 7
        reader.commit(offsets=[ck.TopicPartition(name, 0, 12, metadata="half way")], asynchronous=False)
        found = reader.committed([ck.TopicPartition(name, 0)], timeout=10)[0]
        assert (found.offset, found.metadata) == (12, "half way")


def test_group_offsets_are_listed_altered_and_deleted_with_the_group(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 2)
    client = rd.admin_client(broker.bootstrap)

    def ask(
        call: Callable[..., dict[str, Future[ConsumerGroupTopicPartitions]]], *offsets: ck.TopicPartition
    ) -> dict[int, int]:
        answer = call([ConsumerGroupTopicPartitions(name, list(offsets) or None)])[name].result(WITHIN_S)
        return {found.partition: found.offset for found in answer.topic_partitions}

    ask(client.alter_consumer_group_offsets, ck.TopicPartition(name, 0, 3), ck.TopicPartition(name, 1, 5))
    assert ask(client.list_consumer_group_offsets) == {0: 3, 1: 5}
    assert ask(client.list_consumer_group_offsets, ck.TopicPartition(name, 1)) == {1: 5}
    ask(client.alter_consumer_group_offsets, ck.TopicPartition(name, 0, 1))
    assert ask(client.list_consumer_group_offsets) == {0: 1, 1: 5}
    client.delete_consumer_groups([name])[name].result(WITHIN_S)
    assert ask(client.list_consumer_group_offsets, ck.TopicPartition(name, 0)) == {0: ck.OFFSET_INVALID}
    with pytest.raises(ck.KafkaException) as refused:
        client.delete_consumer_groups([name])[name].result(WITHIN_S)
    assert refused.value.args[0].code() == ck.KafkaError.GROUP_ID_NOT_FOUND


def test_groups_are_described_and_listed(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 2)
    client = rd.admin_client(broker.bootstrap)
    with run_members(broker.bootstrap, name, name, [{"client_id": "it is me", **EAGER}]) as (member,):
        eventually(lambda: len(member.assigned) == 2)
        found = eventually(
            lambda: next(iter(client.describe_consumer_groups([name]).values())).result(WITHIN_S), message="an answer"
        )
        assert found.state == ConsumerGroupState.STABLE
        assert found.partition_assignor == "range"
        assert found.coordinator.port == broker.port
        (one,) = found.members
        assert one.client_id == "it is me"
        assert one.host in ("127.0.0.1", "/127.0.0.1")
        assert sorted(part.partition for part in one.assignment.topic_partitions) == [0, 1]
        assert one.group_instance_id is None
        listed = client.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(WITHIN_S)
        assert name in [group.group_id for group in listed.valid]
        with pytest.raises(ck.KafkaException) as refused:
            client.delete_consumer_groups([name])[name].result(WITHIN_S)
        assert refused.value.args[0].code() == ck.KafkaError.NON_EMPTY_GROUP
    listed = client.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(WITHIN_S)
    assert name in [group.group_id for group in listed.valid]
