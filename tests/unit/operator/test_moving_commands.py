"""What the commands that move partitions decide from what they see; none of it needs a broker."""

import json
from pathlib import Path
from typing import cast

import pytest
import typer

from ottla_broker.metadata.placement import UsableBroker
from ottla_operator.cli import elect, reassign
from ottla_operator.cli.exit_codes import CommandError
from ottla_operator.cli.left_out import Notes
from ottla_operator.cli.moving import in_words, rate, show_plan
from ottla_operator.cli.moving_bar import line
from ottla_operator.cli.options import Format
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.elections import ElectionType, find_partitions_to_elect
from ottla_operator.kafka.producer import KEYLESS_BLOCK, Producer
from ottla_operator.kafka.progress import ReassignmentProgress, copied_bytes
from ottla_operator.kafka.reassignment_inputs import ReassignmentInputs
from ottla_operator.kafka.reassignments import PartitionReassignment
from ottla_operator.kafka.throttle import throttled_replicas
from ottla_operator.kafka.topics import PartitionInfo, TopicDescription
from ottla_operator.plan.moves import Move, PartitionReplicas
from tests.unit.operator.loop import on_loop

MOVES = (Move("a", 0, (1, 2), (2, 3), 1, 3 << 20), Move("a", 1, (1, 2), (2, 1), 1, 9))


def placing(**more: object) -> ReassignmentInputs:
    partitions = tuple(PartitionReplicas("a", it, (1, 2), (1, 2), 1, 100) for it in range(3))
    given = {
        "brokers": (UsableBroker(1), UsableBroker(2), UsableBroker(3)),
        "partitions": partitions,
        "reassignments": {},
    }
    return ReassignmentInputs(**(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "bytes_"), [("50M", 50_000_000), ("1", 1), ("2Ki", 2048), (None, None)])
def test_rates(text: str | None, bytes_: int | None) -> None:
    assert rate(text) == bytes_


@pytest.mark.parametrize("text", ["0", "fast", "-1", "500m"])
def test_what_is_no_rate_is_told_with_what_is(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"'{text}' is no rate; write bytes per second, such as 50M"):
        rate(text)


def test_what_a_plan_costs_in_words() -> None:
    assert (
        in_words(MOVES, 1 << 20)
        == "2 partitions to change, 1 replica to copy, 3.0 MiB: 3.0 s at 1.0 MiB/s for each broker"
    )
    assert in_words(MOVES[1:], 1) == "1 partition to change, 0 replicas to copy, 0 B"
    assert in_words((), None) == "nothing to move: all is as it should be"


def test_a_plan_for_programs_can_be_given_to_kafka_s_tool_and_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(MOVES, 1 << 20, Format.json)
    found = json.loads(capsys.readouterr().out)
    assert (found["copies"], found["bytes"], found["seconds"]) == (1, 3 << 20, 3.0)
    assert found["plan"]["partitions"][0] == {"topic": "a", "partition": 0, "replicas": [2, 3]}
    assert found["rollback"]["partitions"][1] == {"topic": "a", "partition": 1, "replicas": [1, 2]}


def test_to_some_brokers_with_another_number_of_replicas() -> None:
    moves = reassign._decided(placing(), ["a"], "3", 1)
    assert {it.after for it in moves} == {(3,)}
    assert {it.before for it in moves} == {(1, 2)}


def test_a_broker_that_is_not_up_is_named_with_those_that_are() -> None:
    with pytest.raises(CommandError, match="--to: 9 is no broker that is up; there are 1, 2, 3"):
        reassign._decided(placing(), ["a"], "1,9", None)
    with pytest.raises(typer.BadParameter, match="'1;2' is no list of brokers' ids; write 1,2,3"):
        reassign._decided(placing(), ["a"], "1;2", None)


def test_a_plan_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    entries = [{"topic": "a", "partition": 0, "replicas": [3, 1]}, {"topic": "a", "partition": 1, "replicas": [1, 2]}]
    file.write_text(json.dumps({"version": 1, "partitions": entries}))
    (move,) = reassign._planned(placing(), file)
    assert (move.partition, move.after, move.adding) == (0, (3, 1), (3,))
    for replicas, partition, said in (([4], 0, "4 is no broker that is up"), ([1], 7, "there is no partition a-7")):
        file.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": "a", "partition": partition, "replicas": replicas}]})
        )
        with pytest.raises(CommandError, match=said):
            reassign._planned(placing(), file)
    with pytest.raises(CommandError, match="No such file"):
        reassign._planned(placing(), tmp_path / "none.json")


def test_topics_and_partitions_as_people_write_them() -> None:
    assert [elect._named(it) for it in ("a", "a:3", "a.b-c:0")] == [("a", None), ("a", 3), ("a.b-c", 0)]
    with pytest.raises(typer.BadParameter, match="'a:x' is neither TOPIC nor TOPIC:PARTITION"):
        elect._named("a:x")


def test_whom_an_election_is_for() -> None:
    good = PartitionInfo(0, 1, 0, (1, 2), (1, 2), ())
    swapped = PartitionInfo(1, 2, 0, (1, 2), (2, 1), ())
    behind = PartitionInfo(2, 2, 0, (1, 2), (2,), (1,))
    nobody = PartitionInfo(3, -1, 0, (1, 2), (1,), (1,))
    topic = TopicDescription("a", None, False, (good, swapped, behind, nobody))
    assert find_partitions_to_elect([topic], ElectionType.preferred) == [("a", 1), ("a", 3)]
    assert find_partitions_to_elect([topic], ElectionType.unclean) == [("a", 3)]


def test_a_throttle_names_who_is_read_and_who_is_written() -> None:
    assert throttled_replicas(MOVES) == ({"a": "0:1,0:2"}, {"a": "0:3"}, {1, 2, 3})
    assert throttled_replicas(MOVES[1:]) == ({}, {}, set())


def test_how_much_is_copied() -> None:
    moving = {
        ("a", 0): PartitionReassignment((1, 2, 3), adding=(3,), removing=(1,)),
        ("a", 1): PartitionReassignment((1, 4), adding=(4,), removing=()),
    }
    sizes = {1: {("a", 0): 90, ("a", 1): 50}, 2: {("a", 0): 100}, 3: {("a", 0): 30}}  # 4 did not answer
    assert copied_bytes(moving, sizes) == (30, 150)
    assert (
        line(ReassignmentProgress(5, 2, 30, 150, ()))
        == "3 of 5 partitions have arrived; 30 B of 150 B copied of the rest"
    )


def test_notes_hold_for_the_topic_that_they_were_taken_of(tmp_path: Path) -> None:
    def topic(name: str, partitions: int) -> TopicDescription:
        return TopicDescription(
            name, None, False, tuple(PartitionInfo(it, 1, 0, (1,), (1,), ()) for it in range(partitions))
        )

    notes = Notes(tmp_path / "notes.json")
    notes.note(topic("a", 3), 3)
    found = Notes(tmp_path / "notes.json")
    assert found.partitions(topic("a", 5)) == 3
    assert found.partitions(topic("a", 2)) is None  # not what it was: it cannot shrink
    assert found.partitions(topic("b", 3)) is None
    (tmp_path / "notes.json").write_text("nonsense")
    assert Notes(tmp_path / "notes.json").partitions(topic("a", 5)) is None
    assert Notes(None).partitions(topic("a", 5)) is None


@on_loop
async def test_records_without_keys_go_the_same_way_again() -> None:
    async def ways() -> list[int]:
        producer = Producer(cast(KafkaClient, None))
        producer._leaders["a"] = [1, 1, 1]
        producer.spread_over("a", 2)
        return [(await producer.choose_partition("a", None))[1] for _ in range(5 * KEYLESS_BLOCK // 2)]

    first = await ways()
    assert first == await ways()
    assert set(first) == {0, 1}
