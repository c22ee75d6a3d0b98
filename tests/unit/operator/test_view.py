"""What people see."""

import io

import pytest
from rich.console import Console

from ottla_operator.formatting import format_count, format_duration, format_size
from ottla_operator.local.live_view import BrokerRow, LiveView, LoadRow, PipelineRow, State, TopicRow
from ottla_operator.local.terminal import line, print_message, render, summary_lines


def board(topics: int = 2) -> LiveView:
    made = LiveView(say=lambda text, kind: None)
    made.brokers["demo-1"] = BrokerRow("demo-1", "127.0.0.1:9092", State.ready, 7)
    for index in range(topics):
        made.topics["demo", f"t{index}"] = TopicRow(
            "demo", f"t{index}", State.ready, 3, 1000 * index, 0.0, 2048, 5, "g"
        )
    made.pipelines["demo", "hourly"] = PipelineRow("demo", "hourly", State.running, 10, 2, 5.0, 12, 3.4, "")
    made.loads["load.py"] = LoadRow("load.py", State.running, "1,000 records")
    return made


def shown(it: LiveView, height: int = 40) -> str:
    console = Console(width=120, height=height, record=True, force_terminal=False, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123  # goes with the test
    console.print(render(it, height))
    return console.export_text()


def test_everything_is_there() -> None:
    text = shown(board())
    for part in (
        "demo-1",
        "127.0.0.1:9092",
        "t1",
        "1,000",
        "2.0 KiB",
        "group g",
        "hourly",
        "12 (3 s)",
        "load.py",
        "1,000 records",
    ):
        assert part in text, part


def test_each_broker_with_what_it_leads_and_what_is_behind() -> None:
    it = board()
    it.brokers["demo-1"].leads, it.brokers["demo-1"].replicas, it.brokers["demo-1"].behind = 4, 12, 0
    it.brokers["demo-2"] = BrokerRow(
        "demo-2", "127.0.0.1:9093", State.ready, 8, controller=True, leads=8, replicas=13, behind=3
    )
    it.moving["demo"] = "3 of 12 partitions have moved"
    lines = [line.split() for line in shown(it).splitlines()]
    assert ["BROKER", "ADDRESS", "STATE", "PID", "LEADS", "REPLICAS", "BEHIND"] in lines
    assert ["demo-1", "127.0.0.1:9092", "ready", "7", "4", "12", "0"] in lines
    assert ["demo-2", "127.0.0.1:9093", "ready", "8", "8", "13", "3", "controller"] in lines
    assert "moving demo  3 of 12 partitions have moved" in shown(it)


def test_many_topics_do_not_fill_the_screen() -> None:
    it = board(topics=1000)
    it.topics["demo", "t500"].state = State.failed
    text = shown(it, height=30)
    assert len(text.splitlines()) <= 30
    assert "… and " in text
    assert "t500" in text  # what is in trouble is never left out


def test_names_of_clusters_come_in_when_there_are_several() -> None:
    it = board()
    assert "demo/t0" not in shown(it)
    it.topics["west", "t0"] = TopicRow("west", "t0")
    assert "west/t0" in shown(it)
    assert "demo/t0" in shown(it)


def test_text_with_brackets_is_text() -> None:
    it = board()
    it.brokers["demo-1"].note = "[red]no[/red] [x"
    assert "[red]no[/red] [x" in shown(it)
    assert line("[bold]", "bad").plain == "✗ [bold]"


def test_sizes() -> None:
    assert [format_size(it) for it in (None, 0, 1023, 1536, 5 * 2**30, 3 * 2**40)] == [
        "",
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]


def test_times_and_counts() -> None:
    assert [format_duration(it) for it in (0.44, 12.4, 150, 9000, 400_000)] == [
        "0.4 s",
        "12 s",
        "2 min",
        "2.5 h",
        "4.6 d",
    ]
    assert [format_count(it, "byte") for it in (0, 1, 1000)] == ["0 bytes", "1 byte", "1,000 bytes"]


def test_what_happened_first_is_said_once() -> None:
    said: list[str] = []
    it = LiveView(say=lambda text, kind: said.append(text))
    it.first("first message")
    it.first("first message")
    assert len(said) == 1
    assert said[0].startswith("first message after ")


def test_the_summary() -> None:
    assert list(summary_lines(board())) == [
        "topic t0: 0 records, 2.0 KiB",
        "topic t1: 1,000 records, 2.0 KiB",
        "pipeline hourly: 10 rows in, 2 rows out",
    ]


@pytest.mark.parametrize("refusal", [BrokenPipeError, OSError(5, "Input/output error")])
def test_what_nobody_hears_stops_nobody(refusal: BaseException) -> None:
    """With `ottla up … | tee log` a Ctrl-C ends tee first, and brokers are still to be stopped."""

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise refusal

    console = Console(file=Gone())
    print_message(console, "stopping pipelines and brokers", "info")
    print_message(console, "everything is stopped", "good")
