"""Rates that `ottla top` computes from two samples, and effects of its keys."""

import io
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ottla_broker.wire.pipeline_report import PipelineReport, StoredReport
from ottla_operator.cli.top import split_keys
from ottla_operator.cli.top_rows import (
    COLUMNS,
    Rates,
    broker_rows,
    committed_rows,
    group_rows,
    partition_rows,
    sort_rows,
    summarize_health,
    topic_rows,
)
from ottla_operator.cli.top_screen import (
    BACKSPACE,
    DOWN,
    ENTER,
    ESCAPE,
    RESERVED_LINES,
    UP,
    Screen,
    render,
    visible_rows,
)
from ottla_operator.kafka.cluster import BrokerInfo, ClusterDescription
from ottla_operator.kafka.cluster_sample import ClusterSample
from ottla_operator.kafka.groups import GroupListing
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.topics import PartitionInfo, TopicDescription

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


def topic(name: str, *leaders: int, isr: tuple[int, ...] = (1, 2)) -> TopicDescription:
    partitions = (PartitionInfo(index, leader, 0, (1, 2), isr, ()) for index, leader in enumerate(leaders))
    return TopicDescription(name, None, False, tuple(partitions))


def sample(
    at_s: float = 0.0,
    ends: Mapping[TopicPartition, int] | None = None,
    sizes: Mapping[TopicPartition, int] | None = None,
    committed: int = 0,
    topics: tuple[TopicDescription, ...] = (topic("a", 1, 2), topic("b", 1)),
    *,
    controller: int = 1,
    is_fenced: bool = False,
) -> ClusterSample:
    ends = {A0: 10, A1: 20, B0: 5} if ends is None else ends
    sizes = sizes or {}
    brokers = (BrokerInfo(1, "one", 9092, None), BrokerInfo(2, "two", 9092, None, is_fenced))
    return ClusterSample(
        at_s,
        ClusterDescription("id", controller, brokers),
        topics,
        dict.fromkeys(ends, 2),
        ends,
        dict.fromkeys((1, 2), sizes),
        [GroupListing("g", "Stable", "consumer", "classic")],
        {"g": {A0: committed}},
    )


def test_pipelines_are_shown_as_they_were_reported() -> None:
    failing = StoredReport(12.4, PipelineReport("Failing", error="no such topic\nmore", restarts=3))
    running = StoredReport(1.2, PipelineReport("Running", input_rows_per_second=5.5, lag_records=7, lag_seconds=1.5))
    latest = replace(sample(), pipelines={"broken": failing, "hourly": running})
    screen = Screen().press("p", [])
    rows = visible_rows(screen, Rates(None, latest))
    assert [(row["pipeline"], row["lag"], row["problem"], row["reportedAgo"]) for row in rows] == [
        ("hourly", 7, "", 1),
        ("broken", None, "no such topic", 12),
    ]
    console = Console(file=io.StringIO(), width=120)
    console.print(render(screen, Rates(None, latest), rows, 20))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "hourly" in text and "Failing" in text and "ROWS/S" in text


def test_rates_are_what_was_written_and_consumed_between_two_samples() -> None:
    before = sample(0.0, {A0: 10, A1: 20, B0: 5}, {A0: 100, A1: 100, B0: 500}, committed=4)
    after = sample(2.0, {A0: 14, A1: 30, B0: 5}, {A0: 300, A1: 100, B0: 40}, committed=10)
    a, b = topic_rows(Rates(before, after))
    assert (a["records"], a["recordsPerSecond"], a["bytes"], a["bytesPerSecond"]) == (40, 7.0, 400, 100.0)
    assert (b["records"], b["recordsPerSecond"], b["bytes"], b["bytesPerSecond"]) == (3, 0.0, 40, 0.0)
    (group,) = group_rows(Rates(before, after))
    assert (group["lag"], group["consumedPerSecond"], group["topics"]) == (4, 3.0, 1)
    first, second = partition_rows(Rates(before, after), "a")
    assert (first["end"], first["recordsPerSecond"], second["recordsPerSecond"]) == (14, 2.0, 5.0)
    (committed,) = committed_rows(Rates(before, after), "g")
    assert (committed["committed"], committed["end"], committed["lag"]) == (10, 14, 4)


def test_the_first_sample_and_a_topic_that_was_created_again_have_no_rate() -> None:
    assert [row["recordsPerSecond"] for row in topic_rows(Rates(None, sample()))] == [0, 0]
    again = Rates(sample(0.0, {A0: 10, A1: 20, B0: 5}), sample(1.0, {A0: 1, A1: 0, B0: 9}))
    assert [row["recordsPerSecond"] for row in topic_rows(again)] == [0, 4.0]


def test_a_partition_without_a_leader_has_no_counts_and_is_named() -> None:
    offline = sample(0.0, {A0: 10}, topics=(topic("a", 1, -1), topic("b", 1, isr=(1,))))
    a, b = topic_rows(Rates(None, offline))
    assert (a["records"], a["problem"]) == (None, "1 offline")
    assert b["problem"] == "1 under-replicated"
    assert summarize_health(offline) == (False, "1 of 3 partitions offline; 1 of 3 partitions under-replicated")
    assert partition_rows(Rates(None, offline), "a")[1]["leader"] is None
    assert [(it["broker"], it["outOfSync"]) for it in broker_rows(offline)] == [(1, 0), (2, 1)]


@pytest.mark.parametrize(
    ("controller", "is_fenced", "expected"),
    [
        (1, False, (True, "healthy: 3 partitions in sync")),
        (-1, False, (False, "no controller")),
        (1, True, (False, "broker 2 is down")),
    ],
)
def test_health_names_what_is_wrong(controller: int, is_fenced: bool, expected: tuple[bool, str]) -> None:
    assert summarize_health(sample(controller=controller, is_fenced=is_fenced)) == expected


@given(st.lists(st.one_of(st.none(), st.integers(), st.floats(allow_nan=False))))
def test_sorted_numbers_fall_and_what_is_unknown_comes_last(values: list[float | None]) -> None:
    found = [row["x"] for row in sort_rows([{"x": it} for it in values], "x")]
    known = [it for it in values if it is not None]
    assert found == [*sorted(known, reverse=True), *[None] * (len(values) - len(known))]


def test_sorted_names_and_ids_rise() -> None:
    assert [row["x"] for row in sort_rows([{"x": "b"}, {"x": "a"}], "x")] == ["a", "b"]
    assert [row["partition"] for row in sort_rows([{"partition": 10}, {"partition": 2}], "partition")] == [2, 10]


def press(screen: Screen, *keys: str) -> Screen:
    rates = Rates(None, sample())
    for key in keys:
        screen = screen.press(key, visible_rows(screen, rates))
    return screen


def test_keys_change_the_view_and_open_a_topic_and_a_group() -> None:
    assert press(Screen(), "g").view == "groups"
    opened = press(Screen().show("topics"), "s", "s", "s", "s", "s", "s", "s", DOWN, ENTER)
    assert (opened.view, opened.opened) == ("topic", "b")
    assert len(visible_rows(opened, Rates(None, sample()))) == 1
    closed = press(opened, ESCAPE)
    assert (closed.view, closed.opened) == ("topics", "")
    group = press(Screen(), "g", ENTER)
    assert (group.view, group.opened) == ("group", "g")
    assert press(group, "b", ENTER).view == "brokers"
    assert press(Screen(), "q").is_over


def test_the_filter_is_typed_letter_by_letter() -> None:
    typing = press(Screen(), "/", "q", BACKSPACE, "b")
    assert typing.is_typing and not typing.is_over
    assert [row["topic"] for row in visible_rows(typing, Rates(None, sample()))] == ["b"]
    assert press(typing, ENTER).filter == "b"
    assert press(typing, ESCAPE).filter == "" and press(typing, ENTER, ESCAPE).filter == ""


def test_the_selection_stays_among_the_rows() -> None:
    assert press(Screen(), UP).selected == 0
    assert press(Screen(), DOWN, DOWN, DOWN).selected == 1
    assert press(Screen(), "/", "x", ENTER, DOWN, ENTER).view == "topics"


def test_s_goes_through_every_column_and_begins_again() -> None:
    seen, screen = [], Screen()
    for _ in COLUMNS["topics"]:
        seen.append(screen.sort)
        screen = press(screen, "s")
    assert sorted(seen) == sorted(COLUMNS["topics"]) and screen.sort == seen[0]


def screen_lines(screen: Screen, rates: Rates, height: int, problem: str = "", width: int = 200) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), record=True)
    console.print(render(screen, rates, visible_rows(screen, rates), height, problem), end="")
    return console.export_text().splitlines()


@given(st.integers(0, 60), st.integers(RESERVED_LINES + 1, 40), st.integers(0, 80), st.sampled_from((60, 80, 200)))
def test_the_screen_fits_and_shows_the_selected_row(count: int, height: int, selected: int, width: int) -> None:
    many = sample(ends={}, topics=tuple(topic(f"t{index:02}", 1) for index in range(count)))
    lines = screen_lines(Screen(sort="topic", selected=selected), Rates(None, many), height, width=width)
    assert len(lines) <= height
    assert not count or any(line.startswith(f"t{min(selected, count - 1):02}") for line in lines)


def test_the_screen_has_health_rates_and_what_keys_do() -> None:
    rates = Rates(sample(0.0, sizes={A0: 0}), sample(1.0, {A0: 1010, A1: 20, B0: 5}, {A0: 2048}))
    lines = screen_lines(Screen(), rates, 30)
    assert "healthy: 3 partitions in sync   2 brokers, 2 topics, 1,000 records/s, 2.0 KiB/s" in lines[0]
    assert next(line for line in lines if line.startswith("a ")).split()[:6] == ["a", "2", "2", "1,026", "1,000", "2.0"]
    assert "q quit" in lines[-1]
    assert screen_lines(Screen(), rates, 30, "not up to date: no broker responds")[0].startswith("not up to date")


def test_keys_of_a_terminal_are_split() -> None:
    assert list(split_keys("g\x1b[B\x1b[A\r\x7f\x1b[5/\x1b")) == ["g", DOWN, UP, ENTER, BACKSPACE, "/", ESCAPE]
    # PageUp, and the arrow with Ctrl.
    assert list(split_keys("t\x1b[5~\x1b[1;5Ag")) == ["t", "g"]
