"""Plans as Kafka's tool writes them."""

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
def test_what_is_written_is_read(plan: dict[tuple[str, int], tuple[int, ...]]) -> None:
    assert parse_plan(json.dumps(plan_document(plan)), "plan.json") == plan


def test_the_plan_of_moves_and_the_way_back() -> None:
    moves = [Move("a", 1, (1, 2), (2, 3), 1, 5)]
    assert forward_plan(moves)["partitions"] == [{"topic": "a", "partition": 1, "replicas": [2, 3]}]
    assert rollback_plan(moves)["partitions"] == [{"topic": "a", "partition": 1, "replicas": [1, 2]}]


def test_kafka_s_own_form() -> None:
    text = '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    assert parse_plan(text, "x") == {("a", 0): (1, 2)}


@pytest.mark.parametrize(
    ("entry", "said"),
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
def test_what_is_wrong_is_named_with_what_is_allowed(entry: object, said: str) -> None:
    good = {"topic": "a", "partition": 0, "replicas": [1, 2]}
    entry = good | entry if isinstance(entry, dict) else entry
    with pytest.raises(InvalidPlan) as bad:
        parse_plan(json.dumps({"version": 1, "partitions": [entry]}), "plan.json")
    assert said in str(bad.value)


@pytest.mark.parametrize(
    ("text", "said"),
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
def test_what_is_no_plan(text: str, said: str) -> None:
    with pytest.raises(InvalidPlan, match=said.replace("[", r"\[")):
        parse_plan(text, "plan.json")


def test_a_partition_that_comes_twice() -> None:
    twice = [{"topic": "a", "partition": 0, "replicas": [it]} for it in (1, 2)]
    with pytest.raises(InvalidPlan, match=r"partitions\[1\]: a-0 is listed twice"):
        parse_plan(json.dumps({"version": 1, "partitions": twice}), "plan.json")
