"""Decisions and texts of the commands that reassign partitions, elect leaders and resume a load. No
broker is needed.
"""

import json
from pathlib import Path
from typing import cast

import pytest
import typer

from ottla_broker.metadata.placement import UsableBroker
from ottla_operator.cli import elect, reassign
from ottla_operator.cli.exit_codes import CommandError
from ottla_operator.cli.options import OutputFormat
from ottla_operator.cli.progress_bar import reassignment_line
from ottla_operator.cli.reassignment import describe_moves, parse_rate, print_plan
from ottla_operator.cli.resume import PartitionCounts
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.elections import ElectionType, find_partitions_to_elect
from ottla_operator.kafka.producer import KEYLESS_BLOCK_RECORDS, Producer
from ottla_operator.kafka.reassignment_inputs import ReassignmentInputs
from ottla_operator.kafka.reassignments import PartitionReassignment, ReassignmentProgress, copied_bytes
from ottla_operator.kafka.throttle import throttled_replicas
from ottla_operator.kafka.topics import PartitionInfo, TopicDescription
from ottla_operator.plan.moves import Move, PartitionReplicas
from tests.unit.async_tests import async_test

MOVES = (Move("a", 0, (1, 2), (2, 3), 1, 3 << 20), Move("a", 1, (1, 2), (2, 1), 1, 9))


def reassignment_inputs(**more: object) -> ReassignmentInputs:
    partitions = tuple(PartitionReplicas("a", it, (1, 2), (1, 2), 1, 100) for it in range(3))
    given = {
        "brokers": (UsableBroker(1), UsableBroker(2), UsableBroker(3)),
        "partitions": partitions,
        "reassignments": {},
    }
    return ReassignmentInputs(**(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "bytes_"), [("50M", 50_000_000), ("1", 1), ("2Ki", 2048), (None, None)])
def test_rate_is_parsed(text: str | None, bytes_: int | None) -> None:
    assert parse_rate(text) == bytes_


@pytest.mark.parametrize("text", ["0", "fast", "-1", "500m"])
def test_invalid_rate_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"'{text}' is not a rate; expected bytes per second, such as 50M"):
        parse_rate(text)


def test_cost_of_a_plan_is_one_line() -> None:
    assert (
        describe_moves(MOVES, 1 << 20)
        == "2 partitions to change, 1 replica to copy, 3.0 MiB: 3.0 s at 1.0 MiB/s for each broker"
    )
    assert describe_moves(MOVES[1:], 1) == "1 partition to change, 0 replicas to copy, 0 B"
    assert describe_moves((), None) == "nothing to reassign"


def test_json_plan_has_the_format_of_kafkas_tool_and_a_rollback(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(MOVES, 1 << 20, OutputFormat.json)
    found = json.loads(capsys.readouterr().out)
    assert (found["copies"], found["bytes"], found["seconds"]) == (1, 3 << 20, 3.0)
    assert found["plan"]["partitions"][0] == {"topic": "a", "partition": 0, "replicas": [2, 3]}
    assert found["rollback"]["partitions"][1] == {"topic": "a", "partition": 1, "replicas": [1, 2]}


def test_partitions_are_moved_to_given_brokers_with_another_replication_factor() -> None:
    moves = reassign._decide_moves(reassignment_inputs(), ["a"], "3", 1)
    assert {it.after for it in moves} == {(3,)}
    assert {it.before for it in moves} == {(1, 2)}


def test_error_names_a_broker_that_is_not_up() -> None:
    with pytest.raises(CommandError, match="--to: broker 9 is not up; brokers that are up: 1, 2, 3"):
        reassign._decide_moves(reassignment_inputs(), ["a"], "1,9", None)
    with pytest.raises(typer.BadParameter, match="'1;2' is not a list of broker ids, such as 1,2,3"):
        reassign._decide_moves(reassignment_inputs(), ["a"], "1;2", None)


def test_plan_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    entries = [{"topic": "a", "partition": 0, "replicas": [3, 1]}, {"topic": "a", "partition": 1, "replicas": [1, 2]}]
    file.write_text(json.dumps({"version": 1, "partitions": entries}))
    (move,) = reassign._moves_of_plan(reassignment_inputs(), file)
    assert (move.partition, move.after, move.adding) == (0, (3, 1), (3,))
    for replicas, partition, message in (([4], 0, "broker 4 is not up"), ([1], 7, "there is no partition a-7")):
        file.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": "a", "partition": partition, "replicas": replicas}]})
        )
        with pytest.raises(CommandError, match=message):
            reassign._moves_of_plan(reassignment_inputs(), file)
    with pytest.raises(CommandError, match="No such file"):
        reassign._moves_of_plan(reassignment_inputs(), tmp_path / "none.json")


def test_topic_and_partition_arguments_are_parsed() -> None:
    assert [elect._parse_partition(it) for it in ("a", "a:3", "a.b-c:0")] == [("a", None), ("a", 3), ("a.b-c", 0)]
    with pytest.raises(typer.BadParameter, match="'a:x' is neither TOPIC nor TOPIC:PARTITION"):
        elect._parse_partition("a:x")


def test_partitions_that_need_an_election_are_found() -> None:
    healthy = PartitionInfo(0, 1, 0, (1, 2), (1, 2), ())
    not_preferred = PartitionInfo(1, 2, 0, (1, 2), (2, 1), ())
    behind = PartitionInfo(2, 2, 0, (1, 2), (2,), (1,))
    leaderless = PartitionInfo(3, -1, 0, (1, 2), (1,), (1,))
    topic = TopicDescription("a", None, False, (healthy, not_preferred, behind, leaderless))
    assert find_partitions_to_elect([topic], ElectionType.preferred) == [("a", 1), ("a", 3)]
    assert find_partitions_to_elect([topic], ElectionType.unclean) == [("a", 3)]


def test_throttle_names_leader_and_follower_replicas() -> None:
    assert throttled_replicas(MOVES) == ({"a": "0:1,0:2"}, {"a": "0:3"}, {1, 2, 3})
    assert throttled_replicas(MOVES[1:]) == ({}, {}, set())


def test_copied_bytes_are_compared_with_the_largest_source() -> None:
    moving = {
        ("a", 0): PartitionReassignment((1, 2, 3), adding=(3,), removing=(1,)),
        ("a", 1): PartitionReassignment((1, 4), adding=(4,), removing=()),
    }
    sizes = {1: {("a", 0): 90, ("a", 1): 50}, 2: {("a", 0): 100}, 3: {("a", 0): 30}}  # broker 4 did not respond
    assert copied_bytes(moving, sizes) == (30, 150)
    assert (
        reassignment_line(ReassignmentProgress(5, 2, 30, 150, ()))
        == "3 of 5 partitions reassigned; 30 B of 150 B copied for the others"
    )


def test_partition_counts_are_kept_for_the_same_topic(tmp_path: Path) -> None:
    def topic(name: str, partition_count: int) -> TopicDescription:
        return TopicDescription(
            name, None, False, tuple(PartitionInfo(it, 1, 0, (1,), (1,), ()) for it in range(partition_count))
        )

    counts = PartitionCounts(tmp_path / "notes.json")
    counts.store(topic("a", 3), 3)
    found = PartitionCounts(tmp_path / "notes.json")
    assert found.get(topic("a", 5)) == 3
    assert found.get(topic("a", 2)) is None  # partitions cannot be removed: it is another topic
    assert found.get(topic("b", 3)) is None
    (tmp_path / "notes.json").write_text("nonsense")
    assert PartitionCounts(tmp_path / "notes.json").get(topic("a", 5)) is None
    assert PartitionCounts(None).get(topic("a", 5)) is None


@async_test
async def test_records_without_keys_get_the_same_partitions_again() -> None:
    async def partitions() -> list[int]:
        producer = Producer(cast(KafkaClient, None))
        producer._leaders["a"] = [1, 1, 1]
        producer.fix_partitions("a", 2)
        return [(await producer.choose_partition("a", None))[1] for _ in range(5 * KEYLESS_BLOCK_RECORDS // 2)]

    first = await partitions()
    assert first == await partitions()
    assert set(first) == {0, 1}
