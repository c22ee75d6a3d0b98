"""Reassignment plans in the JSON format of Kafka's tool."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.moves import Move
from ottla_operator.plan.reassignment_file import InvalidPlan, forward_plan, parse_plan, plan_document, rollback_plan


@given(
    st.dictionaries(
        st.tuples(st.text("ab.", min_size=1), st.integers(0, 9)),
        st.lists(st.integers(0, 9), min_size=1, unique=True).map(tuple),
        min_size=1,
    )
)
def test_written_plan_is_parsed(plan: dict[tuple[str, int], tuple[int, ...]]) -> None:
    assert parse_plan(json.dumps(plan_document(plan)), "plan.json") == plan


def test_a_plan_has_the_new_replicas_and_its_rollback_the_old_ones() -> None:
    moves = [Move("a", 1, (1, 2), (2, 3), 1, 5)]
    assert forward_plan(moves)["partitions"] == [{"topic": "a", "partition": 1, "replicas": [2, 3]}]
    assert rollback_plan(moves)["partitions"] == [{"topic": "a", "partition": 1, "replicas": [1, 2]}]


def test_plan_of_kafkas_tool_is_parsed() -> None:
    text = '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    assert parse_plan(text, "x") == {("a", 0): (1, 2)}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (7, "plan.json: partitions[0]: 7 is not an object with topic, partition and replicas"),
        ({"topic": ""}, 'partitions[0].topic: "" is not a topic name'),
        ({"partition": -1}, "partitions[0].partition: -1 is not a partition number (0 or greater)"),
        ({"partition": True}, "partitions[0].partition: true is not a partition number"),
        ({"replicas": []}, "partitions[0].replicas: [] is not a list of one or more broker ids"),
        ({"replicas": ["1"]}, 'partitions[0].replicas: ["1"] is not a list'),
        ({"replicas": [1, 1]}, "partitions[0].replicas: [1, 1] names a broker twice"),
        ({"log_dirs": ["/data", "any"]}, 'partitions[0].log_dirs: ["/data", "any"]: brokers choose the log directory'),
        ({"replica": [1]}, "partitions[0].replica: unknown field"),
    ],
)
def test_invalid_entry_is_named_with_what_is_allowed(entry: object, message: str) -> None:
    good = {"topic": "a", "partition": 0, "replicas": [1, 2]}
    entry = good | entry if isinstance(entry, dict) else entry
    with pytest.raises(InvalidPlan) as bad:
        parse_plan(json.dumps({"version": 1, "partitions": [entry]}), "plan.json")
    assert message in str(bad.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "a plan is"),
        (
            '{"version": 2, "partitions": [{"topic": "a", "partition": 0, "replicas": [1]}]}',
            "version: 2 is not a version",
        ),
        ('{"version": 1, "partitions": []}', "partitions: [] names no partition"),
        ('{"version": 1, "partitions": [], "more": 1}', "more: unknown field"),
    ],
)
def test_invalid_document_is_rejected(text: str, message: str) -> None:
    with pytest.raises(InvalidPlan, match=message.replace("[", r"\[")):
        parse_plan(text, "plan.json")


def test_duplicate_partition_is_rejected() -> None:
    twice = [{"topic": "a", "partition": 0, "replicas": [it]} for it in (1, 2)]
    with pytest.raises(InvalidPlan, match=r"partitions\[1\]: a-0 is listed twice"):
        parse_plan(json.dumps({"version": 1, "partitions": twice}), "plan.json")
