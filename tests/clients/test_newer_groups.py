"""Consumers of the consumer group protocol of KIP-848 (`group.protocol=consumer`)."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.api_session import ApiSession
from tests.clients.conftest import NewBroker
from tests.clients.consumer_group_cases import joining_fields
from tests.clients.group_cases import wait_for_coordinators
from tests.jars import java_command
from tests.ottla_command import run_ottla
from tests.tools_jvm import check_tool
from tests.waiting import eventually

WITHIN_S = 30.0
UPGRADE, SAFE_DOWNGRADE = 1, 2  # types of UpdateFeatures


@pytest.fixture(scope="module")
def quick(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    """A broker with a short heartbeat interval, so that members soon get a new assignment."""
    with new_broker(
        group_initial_rebalance_delay_ms=0,
        group_consumer_heartbeat_interval_ms=200,
        group_consumer_min_heartbeat_interval_ms=100,
        group_consumer_session_timeout_ms=6000,
        group_consumer_min_session_timeout_ms=1000,
    ) as broker:
        yield broker


class Member:
    """A consumer and the partitions that it owns: those assigned to it and not revoked yet."""

    def __init__(
        self, bootstrap: str, group: str, *topics: str, protocol: str = "consumer", **settings: object
    ) -> None:
        own: dict[str, object] = {"group.protocol": "consumer"}
        if protocol != "consumer":
            own = {"session.timeout.ms": 6000, "partition.assignment.strategy": protocol}
        self.is_cooperative = protocol in ("consumer", "cooperative-sticky")
        self.consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
            | own
            | rd.to_librdkafka_names(settings)
        )
        self.consumer.subscribe(list(topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        self.owned: set[tuple[str, int]] = set()
        self.values: list[bytes] = []

    def _assign(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        added = {(it.topic, it.partition) for it in partitions}
        self.owned = self.owned | added if self.is_cooperative else added

    def _revoke(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.owned -= {(it.topic, it.partition) for it in partitions}

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.values.append(message.value() or b"")

    def read(self, count: int) -> None:
        """Polls until it has read this many records."""

        def is_read() -> bool:
            self.poll()
            return len(self.values) == count

        eventually(is_read, within_s=WITHIN_S, message=f"{count} records")


@contextmanager
def close_at_the_end(*members: Member) -> Iterator[None]:
    try:
        yield
    finally:
        for member in members:
            member.consumer.close()


def poll_until_shares_are(sizes: list[int], *members: Member) -> None:
    """Polls the members until they own these numbers of partitions, in any order. Asserts that no
    two ever own the same one.
    """

    def have_these_sizes() -> bool:
        for member in members:
            member.poll()
            owned = [partition for each in members for partition in each.owned]
            assert len(owned) == len(set(owned)), "a partition has two owners"
        return sorted(len(member.owned) for member in members) == sizes

    eventually(have_these_sizes, within_s=WITHIN_S, message=f"shares {sizes}")


def test_members_share_partitions_and_take_over_from_those_who_leave(quick: BrokerProcess, name: str) -> None:
    rd.create_topic(quick.bootstrap, name, partitions=6)
    for partition in range(6):
        rd.produce(
            quick.bootstrap, name, rd.numbered_messages(partition * 10, partition * 10 + 10), partition=partition
        )
    first, second, third = (Member(quick.bootstrap, name, name) for _ in range(3))
    with close_at_the_end(first, third):
        with close_at_the_end(second):
            poll_until_shares_are([2, 2, 2], first, second, third)
        poll_until_shares_are([3, 3], first, third)
        expected = {it.value for it in rd.numbered_messages(0, 60)}

        def is_read() -> bool:
            first.poll()
            third.poll()
            return {*first.values, *second.values, *third.values} >= expected

        eventually(is_read, within_s=WITHIN_S, message="all records")


def test_commits_of_a_member_are_kept_and_a_later_member_continues(quick: BrokerProcess, name: str) -> None:
    rd.produce(quick.bootstrap, name, rd.numbered_messages(0, 5))
    first = Member(quick.bootstrap, name, name)
    with close_at_the_end(first):
        first.read(5)
        first.consumer.commit(asynchronous=False)
    rd.produce(quick.bootstrap, name, rd.numbered_messages(5, 8))
    second = Member(quick.bootstrap, name, name)
    with close_at_the_end(second):
        second.read(3)
    assert second.values == [it.value for it in rd.numbered_messages(5, 8)]


def test_a_regular_expression_finds_topics_that_are_created_later(quick: BrokerProcess, name: str) -> None:
    rd.create_topic(quick.bootstrap, f"{name}-1")
    member = Member(quick.bootstrap, name, f"^{name}-[0-9]+")
    with close_at_the_end(member):
        poll_until_shares_are([1], member)
        rd.create_topic(quick.bootstrap, f"{name}-22")
        rd.create_topic(quick.bootstrap, f"{name}-other")
        poll_until_shares_are([2], member)
    assert {topic for topic, _ in member.owned} <= {f"{name}-1", f"{name}-22"}


def test_a_static_member_gets_its_partitions_back_after_a_restart(quick: BrokerProcess, name: str) -> None:
    rd.create_topic(quick.bootstrap, name, partitions=4)
    other = Member(quick.bootstrap, name, name)
    with close_at_the_end(other):
        static = Member(quick.bootstrap, name, name, group_instance_id="me")
        with close_at_the_end(static):
            poll_until_shares_are([2, 2], static, other)
            before = set(static.owned)
        again = Member(quick.bootstrap, name, name, group_instance_id="me")
        with close_at_the_end(again):
            poll_until_shares_are([2, 2], again, other)
            assert again.owned == before


@pytest.mark.parametrize("strategy", [pytest.param("range", marks=pytest.mark.slow), "cooperative-sticky"])
def test_a_group_changes_its_protocol_in_both_directions_while_it_runs(
    quick: BrokerProcess, name: str, strategy: str
) -> None:
    rd.create_topic(quick.bootstrap, name, partitions=4)
    admin = AdminClient({"bootstrap.servers": quick.bootstrap})

    def group_type() -> str:
        listed = admin.list_consumer_groups().result(WITHIN_S).valid
        return next(str(it.type) for it in listed if it.group_id == name)

    classic = Member(quick.bootstrap, name, name, protocol=strategy)
    with close_at_the_end(classic):
        poll_until_shares_are([4], classic)
        assert "CLASSIC" in group_type()
        newer = Member(quick.bootstrap, name, name)
        with close_at_the_end(newer):
            poll_until_shares_are([2, 2], classic, newer)
            assert "CONSUMER" in group_type()
            second_classic = Member(quick.bootstrap, name, name, protocol=strategy)
            with close_at_the_end(second_classic):
                poll_until_shares_are([1, 1, 2], classic, newer, second_classic)
            poll_until_shares_are([2, 2], classic, newer)
        poll_until_shares_are([4], classic)
        assert "CLASSIC" in group_type()


def test_kafkas_tools_consume_and_describe_consumer_groups(
    quick: BrokerProcess, name: str, newest_classpath: str
) -> None:
    rd.create_topic(quick.bootstrap, name, partitions=2)
    rd.produce(quick.bootstrap, name, rd.numbered_messages(0, 3))
    command = java_command(
        newest_classpath, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", quick.bootstrap
    )
    command += ["--topic", name, "--group", name, "--from-beginning", "--max-messages", "3"]
    command += ["--command-property", "group.protocol=consumer", "--timeout-ms", "30000"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert completed.stdout.splitlines() == [(it.value or b"").decode() for it in rd.numbered_messages(0, 3)], completed
    member = Member(quick.bootstrap, name, name)
    with close_at_the_end(member):
        poll_until_shares_are([2], member)
        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        arguments = ("--bootstrap-server", quick.bootstrap, "--describe", "--group", name, "--state", "--verbose")
        described = check_tool(newest_classpath, tool, *arguments)
        assert "Stable" in described and "uniform" in described, described


def test_the_command_line_shows_kind_members_targets_and_lag(quick: BrokerProcess, name: str) -> None:
    rd.create_topic(quick.bootstrap, name, partitions=2)
    rd.produce(quick.bootstrap, name, rd.numbered_messages(0, 3))
    member = Member(quick.bootstrap, name, name, client_id="reader")
    with close_at_the_end(member):
        member.read(3)
        member.consumer.commit(asynchronous=False)
        rd.produce(quick.bootstrap, name, rd.numbered_messages(3, 5))
        options = ["--bootstrap", quick.bootstrap]
        described = json.loads(run_groups("describe", name, *options, "-o", "json"))
        listed = json.loads(run_groups("list", *options, "-o", "json"))
        table = run_groups("describe", name, *options)
    assert [it["kind"] for it in listed if it["group"] == name] == ["consumer"]
    assert (described["kind"], described["state"], described["assignor"]) == ("consumer", "Stable", "uniform")
    [assignment] = described["assignments"]
    assert assignment["partitions"] == assignment["target"] == [f"{name}-0", f"{name}-1"]
    assert assignment["client"].startswith("reader@")
    assert described["lag"] >= 2
    assert "TARGET" in table and "reader@" in table


def run_groups(*arguments: str) -> str:
    done = run_ottla("groups", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_clients_get_an_error_where_the_protocol_is_disabled(new_broker: NewBroker, newest_classpath: str) -> None:
    with new_broker(group_coordinator_rebalance_protocols="classic") as broker:
        rd.produce(broker.bootstrap, "topic", rd.numbered_messages(0, 3))
        config = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "group.protocol": "consumer", "log_level": 0}
        reader = ck.Consumer(config)
        reader.subscribe(["topic"])
        try:
            message = eventually(lambda: reader.poll(1), message="an error of the consumer")
            error = message.error()
            assert error.code() == ck.KafkaError._FATAL
            assert "API version not supported" in error.str()
        finally:
            reader.close()
        command = java_command(
            newest_classpath, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap
        )
        command += ["--topic", "topic", "--command-property", "group.protocol=consumer", "--timeout-ms", "20000"]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "UnsupportedVersionException" in completed.stdout + completed.stderr, completed
        assert rd.values_of(rd.consume(broker.bootstrap, "topic")) == [it.value for it in rd.numbered_messages(0, 3)]


def test_new_protocol_is_refused_while_its_feature_is_off(new_broker: NewBroker) -> None:
    async def heartbeat_codes(port: int) -> list[str]:
        codes = []
        session = ApiSession("127.0.0.1", port, "run", "consumer_group_heartbeat", 0)
        with closing(session):
            await wait_for_coordinators(session)
            for level, upgrade_type in ((0, SAFE_DOWNGRADE), (1, UPGRADE)):
                update = {"feature": "group.version", "max_version_level": level, "upgrade_type": upgrade_type}
                changed = await session.send("update_features", timeout=10_000, feature_updates=[update])
                assert changed.error_code.name == "none", changed
                fields = joining_fields("members", "nowhere")
                codes.append((await session.send("consumer_group_heartbeat", **fields)).error_code.name)
        return codes

    with new_broker() as broker:
        assert asyncio.run(heartbeat_codes(broker.port)) == ["unsupported_version", "none"]
