"""Small pure functions: restart delays, offset arguments, quantities, durations, partitions of
keys, and assignments.
"""

import struct
from datetime import datetime

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.partitioner import murmur2, partition_for_key
from ottla_operator.cli.offset_spec import OffsetSpec, parse_offset_spec
from ottla_operator.kafka.client import raise_for_error
from ottla_operator.kafka.cluster import find_partition_problems
from ottla_operator.kafka.groups import parse_assignment
from ottla_operator.kafka.reassignments import PartitionReassignment
from ottla_operator.kafka.topics import PartitionInfo, TopicDescription
from ottla_operator.local.load import is_loaded
from ottla_operator.plan.backoff import BROKER_RESTARTS, PIPELINE_RESTARTS, RestartBackoff, RestartDelays
from ottla_operator.resources.common import format_setting, parse_duration_ms, parse_quantity


@pytest.mark.parametrize(
    ("pace", "expected"),
    [(BROKER_RESTARTS, [1, 2, 4, 8, 16, 30, 30, 30]), (PIPELINE_RESTARTS, [1, 10, 20, 40, 80, 160, 300, 300])],
)
def test_restart_delays_double_up_to_the_longest(pace: RestartDelays, expected: list[float]) -> None:
    backoff, delays = RestartBackoff(pace), []
    for _ in expected:
        backoff = backoff.after_run(20)
        delays.append(backoff.delay_s)
    assert delays == expected
    assert RestartBackoff(pace, 5_000).delay_s == pace.longest_s, "no overflow after many failures"


def test_five_failures_in_a_row_are_a_crash_loop_until_a_stable_run() -> None:
    failures = RestartBackoff(BROKER_RESTARTS)
    for _ in range(4):
        failures = failures.after_run(1)
    assert not failures.is_crash_loop
    assert (looping := failures.after_run(1)).is_crash_loop
    assert looping.after_run(BROKER_RESTARTS.stable_after_s) == RestartBackoff(BROKER_RESTARTS, 1)


NOW = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", OffsetSpec(word="beginning")),
        ("end", OffsetSpec(word="end")),
        ("42", OffsetSpec(offset=42)),
        ("-10", OffsetSpec(shift=-10)),
        ("+10", OffsetSpec(shift=10)),
        ("2h", OffsetSpec(time_ms=NOW - 7_200_000)),
        ("2013-01-01T00:00:00Z", OffsetSpec(time_ms=1_356_998_400_000)),
        ("2013-01-01", OffsetSpec(time_ms=int(datetime(2013, 1, 1).timestamp() * 1000))),
    ],
)
def test_offset_arguments_are_parsed(text: str, expected: OffsetSpec) -> None:
    assert parse_offset_spec(text, NOW) == expected


def test_invalid_offset_argument_is_an_error() -> None:
    with pytest.raises(typer.BadParameter, match="'yesterday' is not an offset"):
        parse_offset_spec("yesterday")


@given(
    st.sampled_from(["beginning", "end", "7", "+3", "-3", "2h"]),
    st.integers(0, 20),
    st.integers(0, 20),
    st.none() | st.integers(0, 50),
)
def test_resolved_offset_is_within_the_partition(text: str, start: int, more: int, current: int | None) -> None:
    assert start <= parse_offset_spec(text, NOW).resolve(start, start + more, current, start) <= start + more


def test_timestamp_after_the_last_record_resolves_to_the_end() -> None:
    assert OffsetSpec(time_ms=5).resolve(0, 9, None, -1) == 9


@pytest.mark.parametrize(("text", "bytes_"), [("10Gi", 10 * 2**30), ("1.5k", 1500), ("500m", 0.5), ("7", 7)])
def test_quantities_are_parsed(text: str, bytes_: float) -> None:
    assert parse_quantity(text) == bytes_


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("30s", 30_000), ("2 hours", 7_200_000), ("1 day", 86_400_000), ("10 minutes", 600_000)],
)
def test_durations_are_parsed(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "h", "1.5h", "2 weeks", "-1s"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)


def test_settings_are_formatted_as_kafka_reads_them() -> None:
    assert [format_setting(it) for it in (True, False, 1, 0.5, "x")] == ["true", "false", "1", "0.5", "x"]


@given(st.binary(max_size=40))
def test_hash_of_a_key_is_that_of_other_clients(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFF_FFFF


@given(st.binary(max_size=10), st.integers(1, 100))
def test_partition_of_a_key_exists(key: bytes, partition_count: int) -> None:
    assert 0 <= partition_for_key(key, partition_count) < partition_count


def test_assignment_of_the_consumer_protocol_is_parsed() -> None:
    data = struct.pack(">hi", 0, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">iii", 2, 4, 5) + struct.pack(">i", -1)
    assert parse_assignment(data) == {("t", 4), ("t", 5)}


@given(st.binary(max_size=60))
def test_arbitrary_assignment_raises_no_error(data: bytes) -> None:
    assert isinstance(parse_assignment(data), frozenset)


def test_partition_problems_are_found() -> None:
    healthy = PartitionInfo(0, 1, 0, (1, 2), (1, 2), ())
    lagging = PartitionInfo(1, 1, 0, (1, 2), (1,), ())
    offline = PartitionInfo(2, -1, 0, (1, 2), (1,), (1,))
    found = find_partition_problems([TopicDescription("t", None, False, (healthy, lagging, offline))])
    assert [(it.partition, it.kind) for it in found] == [(1, "under-replicated"), (2, "offline")]
    assert not find_partition_problems(
        [TopicDescription("t", None, False, (lagging,))],
        {("t", 1): PartitionReassignment((1, 2), adding=(2,), removing=())},
    )


@pytest.mark.parametrize(
    ("script", "topics", "loaded"),
    [
        ("1", {"a": "id-a", "b": "id-b"}, True),
        ("2", {"a": "id-a", "b": "id-b"}, False),
        ("1", {"a": "id-a"}, True),
        ("1", {"a": "id-a", "b": "id-b", "described-later": "id-c"}, True),
        ("1", {"a": "recreated", "b": "id-b"}, False),
    ],
)
def test_load_runs_once_for_a_script_and_its_topics(script: str, topics: dict[str, str], loaded: bool) -> None:
    done = {"script": "1", "topics": {"a": "id-a", "b": "id-b"}}
    assert is_loaded(done, {"script": script, "topics": topics}) is loaded


@pytest.mark.parametrize("unreadable", [None, [], "x", {}])
def test_unreadable_state_of_a_load_means_that_it_has_not_run(unreadable: object) -> None:
    assert not is_loaded(unreadable, {"script": "1", "topics": {}})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("already exists", "topic 'a': already exists"),
        ("topic 'a' already exists", "topic 'a' already exists"),
        (None, "topic 'a': topic already exists"),
    ],
)
def test_subject_of_an_error_is_named_once(message: str | None, expected: str) -> None:
    with pytest.raises(KafkaError) as raised:
        raise_for_error(ErrorCode.topic_already_exists, message, "topic 'a'")
    assert str(raised.value) == expected
