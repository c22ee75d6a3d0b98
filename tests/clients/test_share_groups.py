"""Share groups (KIP-932): with share consumers and tools of Kafka 4.3, and with a member that sends
its own requests.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing

import pytest

from ottla_broker.share_groups.dead_letters import DeadLetterReason
from ottla_broker.wire.errors import ErrorCode
from tests import tools_jvm
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    DeliveredRecord,
    ShareMember,
    begin_at_earliest,
    run_in_session,
)
from tests.jars import KAFKA_4_3, kafka_classpath
from tests.ottla_command import run_ottla
from tests.slow_tests import slow
from tests.tools_jvm import check_tool

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableShareConsumer"


@pytest.fixture(scope="module")
def quick(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    """A broker whose share groups lock records for one second."""
    with new_broker(group_share_record_lock_duration_ms=1000) as broker:
        yield broker


def run_tool(broker: BrokerProcess, main: str, *arguments: str) -> str:
    return check_tool(kafka_classpath(KAFKA_4_3), main, "--bootstrap-server", broker.bootstrap, *arguments)


def run_with_member(broker: BrokerProcess, name: str, test: Callable[[ShareMember], Awaitable[None]]) -> None:
    """Runs `test` with a member of a group that begins at the start of a topic with ten records."""
    rd.create_topic(broker.bootstrap, name)
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 10))
    begin_at_earliest(broker, name)
    run_in_session(ShareMember(name, name, broker.bootstrap), test)


def parse_rows(output: str) -> list[list[str]]:
    """The rows of a table without its heading, split into columns."""
    return [line.split() for line in output.splitlines() if line.strip()][1:]


def test_kafkas_console_consumer_reads_each_record_once(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, partitions=2)
    for partition in range(2):
        messages = rd.numbered_messages(partition * 10, partition * 10 + 10)
        rd.produce(broker.bootstrap, name, messages, partition=partition)
    begin_at_earliest(broker, name)
    read = run_tool(broker, CONSUMER, "--topic", name, "--group", name, "--max-messages", "20", "--timeout-ms", "20000")
    assert sorted(read.split("\n")) == sorted(["", *(f"value {number}" for number in range(20))])
    offsets = run_tool(broker, GROUP_COMMAND, "--describe", "--group", name)
    assert parse_rows(offsets) == [[name, name, "0", "10", "0"], [name, name, "1", "10", "0"]]
    assert "Empty" in run_tool(broker, GROUP_COMMAND, "--describe", "--group", name, "--state")
    assert name in run_tool(broker, GROUP_COMMAND, "--list").split()
    run_tool(broker, GROUP_COMMAND, "--delete-offsets", "--group", name, "--topic", name)
    run_tool(broker, GROUP_COMMAND, "--delete", "--group", name)
    assert name not in run_tool(broker, GROUP_COMMAND, "--list").split()


@pytest.mark.parametrize("mode", ["auto", *slow(["sync", "async"])])
def test_a_java_share_consumer_acknowledges_each_record_once(broker: BrokerProcess, name: str, mode: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 50))
    reset = ("--offset-reset-strategy", "earliest")
    wanted = ("--topic", name, "--group-id", name, "--max-messages", "50", "--acknowledgement-mode", mode, *reset)
    events = [json.loads(line) for line in run_tool(broker, VERIFIABLE_CONSUMER, *wanted).splitlines()]
    for event in ("records_consumed", "offsets_acknowledged"):
        assert sum(each["count"] for each in events if each["name"] == event) == 50, events
    assert all(each["success"] for each in events if each["name"] == "offsets_acknowledged")
    described = run_tool(broker, GROUP_COMMAND, "--describe", "--group", name)
    assert parse_rows(described) == [[name, name, "0", "50", "0"]]


def test_ottla_share_shows_members_and_lag_and_deletes_only_empty_groups(quick: BrokerProcess, name: str) -> None:
    def ottla_share(*arguments: str) -> tuple[int, str]:
        done = run_ottla("share", *arguments, "--bootstrap", quick.bootstrap)
        return done.returncode, done.stdout

    async def test(member: ShareMember) -> None:
        await member.join()
        await member.fetch(1)
        await member.acknowledge(1, [(0, 0, 2, ACCEPT), (0, 5, 5, ACCEPT)])
        code, text = await asyncio.to_thread(ottla_share, "describe", name, "-o", "json")
        found = json.loads(text)
        assert (code, found["state"], found["lag"], len(found["members"])) == (0, "Stable", 6, 1)
        assert [(one["start"], one["lag"], one["members"]) for one in found["partitions"]] == [(3, 6, 1)]
        code, text = await asyncio.to_thread(ottla_share, "list")
        assert code == 0 and [name, "Stable"] in [line.split() for line in text.splitlines()]
        assert (await asyncio.to_thread(ottla_share, "describe", f"{name}-none"))[0] == 3
        assert (await asyncio.to_thread(ottla_share, "delete", name, "--yes"))[0] == 1  # it has a member
        await member.heartbeat(epoch=-1)
        assert (await asyncio.to_thread(ottla_share, "delete", name, "--yes"))[0] == 0

    run_with_member(quick, name, test)


def test_kafka_decodes_the_records_of_share_groups(new_broker: NewBroker) -> None:
    with new_broker(share_coordinator_snapshot_update_records_per_snapshot=2) as broker:

        async def test(member: ShareMember) -> None:
            await member.join()
            await member.fetch(1, max_records=4)
            for at in range(4):
                await member.acknowledge(1, [(0, at, at, ACCEPT if at % 2 else RELEASE)])

        run_with_member(broker, "t", test)
        broker.stop()
        states = decode_with_kafka(broker, "__share_group_state", "--share-group-state-decoder")
        assert states.count('key: {"type":"0"') == 2 and states.count('key: {"type":"1"') == 4
        assert '"stateBatches":[{"firstOffset":3,"lastOffset":3,"deliveryState":2,"deliveryCount":1}]' in states
        groups = decode_with_kafka(broker, "__consumer_offsets", "--offsets-decoder")
        assert {f'key: {{"type":"{kind}"' in groups for kind in range(10, 16)} == {True}


def decode_with_kafka(broker: BrokerProcess, topic: str, decoder: str) -> str:
    """All records of an internal topic of a stopped broker, as Kafka's DumpLogSegments prints
    them."""
    files = ",".join(str(path) for path in sorted(broker.log_dir.glob(f"{topic}-*/*.log")))
    main = "org.apache.kafka.tools.DumpLogSegments"
    ran = tools_jvm.run_tool(kafka_classpath(KAFKA_4_3), main, decoder, "--files", files)
    assert ran.returncode == 0 and "Exception" not in ran.stderr, ran.stderr
    return ran.stdout


def test_released_records_are_delivered_again_and_accepted_and_rejected_ones_are_not(
    quick: BrokerProcess, name: str
) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        first, _ = await member.fetch(1)
        assert [(one.offset, one.delivery_count) for one in first] == [(at, 1) for at in range(10)]
        kinds = [(0, 0, 3, ACCEPT), (0, 4, 5, RELEASE), (0, 6, 6, REJECT), (0, 7, 9, ACCEPT)]
        again, errors = await member.fetch(1, acknowledged=kinds)
        assert errors == {}
        again += (await member.fetch(1))[0] if not again else []
        assert [(one.offset, one.delivery_count) for one in again] == [(4, 2), (5, 2)]

    run_with_member(quick, name, test)


def test_a_fetch_acknowledges_records_of_a_partition_that_is_no_longer_assigned(
    quick: BrokerProcess, name: str
) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        assert len((await member.fetch(1))[0]) == 10
        member.assigned = {}
        assert await member.fetch(1, max_wait=0, acknowledged=[(0, 5, 9, ACCEPT)]) == ([], {})
        assert await member.acknowledge(1, [(0, 5, 9, ACCEPT)]) == {0: ErrorCode.invalid_record_state}

    run_with_member(quick, name, test)


def test_records_whose_lock_expires_are_delivered_to_another_member(quick: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        first, _ = await member.fetch(1, max_records=4)
        with closing(ShareMember(name, name, quick.bootstrap)) as other:
            await other.join()
            rest, _ = await other.fetch(1)
            assert [one.offset for one in first] == [0, 1, 2, 3]
            assert [one.offset for one in rest] == [4, 5, 6, 7, 8, 9]
            assert (await other.acknowledge(1, [(0, 4, 9, ACCEPT)])) == {0: ErrorCode.none}
            later, _ = await other.fetch(1, max_wait=10_000)
            assert [(one.offset, one.delivery_count) for one in later] == [(at, 2) for at in range(4)]
            assert (await member.acknowledge(1, [(0, 0, 3, ACCEPT)])) == {0: ErrorCode.invalid_record_state}
            assert (await other.acknowledge(1, [(0, 0, 3, ACCEPT)])) == {0: ErrorCode.none}

    run_with_member(quick, name, test)


def test_the_end_of_a_session_releases_its_records(quick: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        await member.fetch(1)
        assert (await member.acknowledge(1, [(0, 0, 4, ACCEPT)], closes=True)) == {0: ErrorCode.none}
        member.session_epochs.clear()
        again, _ = await member.fetch(1)
        assert [(one.offset, one.delivery_count) for one in again] == [(at, 2) for at in range(5, 10)]

    run_with_member(quick, name, test)


def test_a_member_keeps_its_records_when_it_opens_its_session_again(quick: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        await member.fetch(1)
        member.session_epochs.clear()
        assert await member.fetch(1, max_wait=0) == ([], {})
        assert await member.acknowledge(1, [(0, 0, 9, ACCEPT)]) == {0: ErrorCode.none}

    run_with_member(quick, name, test)


def test_a_lost_connection_releases_its_records(broker: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        await member.fetch(1)
        member.close()
        with closing(ShareMember(name, name, broker.bootstrap)) as other:
            await other.join()
            found, _ = await other.fetch(1, max_wait=10_000)
            assert [(one.offset, one.delivery_count) for one in found] == [(at, 2) for at in range(10)]

    run_with_member(broker, name, test)


def test_a_lost_connection_releases_the_records_of_all_its_members(broker: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        second = ShareMember(name, name, broker.bootstrap, channels=member.channels)
        await second.join()
        first_records, _ = await member.fetch(1, max_records=4)
        more_records, _ = await second.fetch(1, max_records=3)
        assert [one.offset for one in (*first_records, *more_records)] == list(range(7))
        member.close()
        with closing(ShareMember(name, name, broker.bootstrap)) as other:
            await other.join()
            found: list[DeliveredRecord] = []
            while len(found) < 10:
                found += (await other.fetch(1, max_wait=10_000))[0]
            assert sorted((one.offset, one.delivery_count) for one in found) == [
                (at, 2 if at < 7 else 1) for at in range(10)
            ]

    run_with_member(broker, name, test)


def test_rejected_records_and_those_at_the_delivery_limit_become_dead_letters(new_broker: NewBroker, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        upgrade = {"feature": "share.version", "max_version_level": 2, "upgrade_type": 1}
        changed = await member.send(1, "update_features", 1, timeout=10_000, feature_updates=[upgrade])
        assert changed.error_code is ErrorCode.none
        await member.set_config("errors.deadletterqueue.topic.name", "dlq.all")
        await member.set_config("errors.deadletterqueue.copy.record.enable", "true")
        await member.fetch(1)
        assert await member.acknowledge(1, [(0, 0, 1, ACCEPT), (0, 2, 3, REJECT)]) == {0: ErrorCode.none}
        assert await member.acknowledge(1, [(0, 4, 4, REJECT), (0, 5, 9, RELEASE)]) == {0: ErrorCode.none}
        for delivery in (2, 3, 4, 5):
            again, _ = await member.fetch(1, max_wait=10_000)
            assert [(one.offset, one.delivery_count) for one in again] == [(at, delivery) for at in range(5, 10)]
            assert await member.acknowledge(1, [(0, 5, 9, RELEASE)]) == {0: ErrorCode.none}

    settings = {"errors_deadletterqueue_auto_create_topics_enable": "true"}
    with new_broker(**settings) as broker:
        run_with_member(broker, name, test)
        found: dict[int, tuple[bytes | None, str, int]] = {}
        for letter in rd.consume(broker.bootstrap, "dlq.all", count=8):
            headers = {key: value.decode() for key, value in letter.headers() or []}
            assert (headers["__dlq.errors.topic"], headers["__dlq.errors.group"]) == (name, name)
            count = int(headers["__dlq.errors.delivery.count"])
            found[int(headers["__dlq.errors.offset"])] = letter.value(), headers["__dlq.errors.message"], count
        rejected, limit = DeadLetterReason.rejected.value, DeadLetterReason.delivery_limit.value
        assert found == {at: (f"value {at}".encode(), rejected, 1) for at in (2, 3, 4)} | {
            at: (f"value {at}".encode(), limit, 5) for at in range(5, 10)
        }


def test_locks_are_renewed_only_by_requests_that_announce_it(quick: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        await member.fetch(1, max_records=1)
        assert (await member.acknowledge(1, [(0, 0, 0, RENEW)])) == {0: ErrorCode.invalid_request}
        await member.fetch(1)
        assert (await member.acknowledge(1, [(0, 1, 9, RENEW)], renews=True)) == {0: ErrorCode.none}

    run_with_member(quick, name, test)


def test_locks_are_not_renewed_where_the_group_forbids_it(quick: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        await member.fetch(1)
        await member.set_config("share.renew.acknowledge.enable", "false")
        refused = await member.acknowledge(1, [(0, 0, 3, RENEW)], renews=True)
        assert refused == {0: ErrorCode.invalid_record_state}
        assert await member.acknowledge(1, [(0, 0, 9, ACCEPT)]) == {0: ErrorCode.none}

    run_with_member(quick, name, test)


def test_a_changed_delivery_limit_holds_for_records_in_flight(quick: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        await member.fetch(1)
        await member.set_config("share.delivery.count.limit", "2")
        assert await member.acknowledge(1, [(0, 0, 9, RELEASE)]) == {0: ErrorCode.none}
        again, _ = await member.fetch(1)
        assert {one.delivery_count for one in again} == {2}
        assert await member.acknowledge(1, [(0, 0, 4, RELEASE), (0, 5, 9, ACCEPT)]) == {0: ErrorCode.none}
        assert await member.fetch(1) == ([], {})

    run_with_member(quick, name, test)


def test_a_group_has_no_more_records_in_flight_than_its_limit(quick: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        rd.produce(quick.bootstrap, name, rd.numbered_messages(10, 150))
        await member.set_config("share.partition.max.record.locks", "100")
        await member.join()
        first, _ = await member.fetch(1)
        assert [one.offset for one in first] == list(range(100))
        assert await member.fetch(1, max_wait=0) == ([], {})
        rest, _ = await member.fetch(1, acknowledged=[(0, 0, 99, ACCEPT)])
        rest += (await member.fetch(1))[0] if not rest else []
        assert [one.offset for one in rest] == list(range(100, 150))

    run_with_member(quick, name, test)


def test_requests_out_of_sequence_are_refused(quick: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        member.session_epochs[1] = 3
        assert (await member.fetch(1))[1] == {-1: ErrorCode.share_session_not_found}
        await member.fetch(1)
        member.session_epochs[1] = 5
        assert (await member.acknowledge(1, [])) == {-1: ErrorCode.invalid_share_session_epoch}

    run_with_member(quick, name, test)


def test_acknowledgements_survive_a_kill_of_the_broker(new_broker: NewBroker) -> None:
    with new_broker() as broker:

        async def test(member: ShareMember) -> None:
            await member.join()
            await member.fetch(1)
            kinds = [(0, 0, 3, ACCEPT), (0, 5, 5, ACCEPT), (0, 6, 6, RELEASE)]
            assert (await member.acknowledge(1, kinds)) == {0: ErrorCode.none}
            member.close()
            broker.kill()
            broker.start()
            member.channels.clear()
            member.session_epochs.clear()
            found: list[tuple[int, int]] = []
            while not found:
                delivered, _ = await member.fetch(1)
                found = [(one.offset, one.delivery_count) for one in delivered]
            # Nobody has stored that 4 and 7 to 9 were delivered.
            assert found == [(4, 1), (6, 2), (7, 1), (8, 1), (9, 1)]

        run_with_member(broker, "t", test)


def test_administrators_set_and_delete_offsets(quick: BrokerProcess, name: str) -> None:
    async def test(member: ShareMember) -> None:
        await member.join()
        await member.fetch(1)
        await member.acknowledge(1, [(0, 0, 9, ACCEPT)], closes=True)
        partitions = [{"partition_index": 0, "start_offset": 6}]
        wanted = {"group_id": name, "topics": [{"topic_name": name, "partitions": partitions}]}
        refused = await member.send(1, "alter_share_group_offsets", 0, **wanted)
        assert refused.error_code is ErrorCode.non_empty_group
        await member.heartbeat(epoch=-1)
        altered = await member.send(1, "alter_share_group_offsets", 0, **wanted)
        assert altered.responses[0].partitions[0].error_code is ErrorCode.none
        all_topics = [{"group_id": name, "topics": None}]
        response = await member.send(1, "describe_share_group_offsets", 1, groups=all_topics)
        [partition] = response.groups[0].topics[0].partitions
        assert (partition.start_offset, partition.error_code) == (6, ErrorCode.none)
        member.epoch, member.assigned = 0, {}
        member.session_epochs.clear()
        await member.join()
        again, _ = await member.fetch(1)
        assert [one.offset for one in again] == [6, 7, 8, 9]
        await member.acknowledge(1, [(0, 6, 7, ACCEPT)])
        response = await member.send(1, "describe_share_group_offsets", 1, groups=all_topics)
        assert response.groups[0].topics[0].partitions[0].lag == 2

    run_with_member(quick, name, test)
