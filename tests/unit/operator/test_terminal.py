"""The live view and messages of `ottla up`."""

import io

import pytest
from rich.console import Console

from ottla_operator.formatting import format_count, format_duration, format_size
from ottla_operator.local.live_view import BrokerRow, LiveView, LoadRow, PipelineRow, State, TopicRow
from ottla_operator.local.terminal import format_message, print_message, render, summary_lines


def view(topic_count: int = 2) -> LiveView:
    """A view of one cluster with this number of topics, a pipeline and a load."""
    made = LiveView(say=lambda text, kind: None)
    made.brokers["demo-1"] = BrokerRow("demo-1", "127.0.0.1:9092", State.ready, 7)
    for index in range(topic_count):
        made.topics["demo", f"t{index}"] = TopicRow(
            "demo", f"t{index}", State.ready, 3, 1000 * index, 0.0, 2048, 5, "g"
        )
    made.pipelines["demo", "hourly"] = PipelineRow("demo", "hourly", State.running, 10, 2, 5.0, 12, 3.4, "")
    made.loads["load.py"] = LoadRow("load.py", State.running, "1,000 records")
    return made


def render_view(it: LiveView, height: int = 40) -> str:
    console = Console(width=120, height=height, record=True, force_terminal=False, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123  # goes with the test
    console.print(render(it, height))
    return console.export_text()


def test_the_view_shows_every_row() -> None:
    text = render_view(view())
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


def test_each_broker_has_its_leaders_replicas_and_out_of_sync_replicas() -> None:
    it = view()
    it.brokers["demo-1"].leads, it.brokers["demo-1"].replicas, it.brokers["demo-1"].out_of_sync = 4, 12, 0
    it.brokers["demo-2"] = BrokerRow(
        "demo-2", "127.0.0.1:9093", State.ready, 8, is_controller=True, leads=8, replicas=13, out_of_sync=3
    )
    it.moving["demo"] = "9 partitions moving, 1.0 MiB of 4.0 MiB copied"
    lines = [line.split() for line in render_view(it).splitlines()]
    assert ["BROKER", "ADDRESS", "STATE", "PID", "LEADS", "REPLICAS", "OUT-OF-SYNC"] in lines
    assert ["demo-1", "127.0.0.1:9092", "ready", "7", "4", "12", "0"] in lines
    assert ["demo-2", "127.0.0.1:9093", "ready", "8", "8", "13", "3", "controller"] in lines
    assert "moving demo  9 partitions moving, 1.0 MiB of 4.0 MiB copied" in render_view(it)


def test_many_topics_leave_room_for_the_rest() -> None:
    it = view(topic_count=1000)
    it.topics["demo", "t500"].state = State.failed
    text = render_view(it, height=30)
    assert len(text.splitlines()) <= 30
    assert "… and " in text
    assert "t500" in text  # rows with problems come first


def test_several_clusters_are_named_before_their_topics() -> None:
    it = view()
    assert "demo/t0" not in render_view(it)
    it.topics["west", "t0"] = TopicRow("west", "t0")
    assert "west/t0" in render_view(it)
    assert "demo/t0" in render_view(it)


def test_brackets_in_messages_are_not_markup() -> None:
    it = view()
    it.brokers["demo-1"].note = "[red]no[/red] [x"
    assert "[red]no[/red] [x" in render_view(it)
    assert format_message("[bold]", "error").plain == "✗ [bold]"


def test_sizes_are_formatted() -> None:
    assert [format_size(it) for it in (None, 0, 1023, 1536, 5 * 2**30, 3 * 2**40)] == [
        "",
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]


def test_times_and_counts_are_formatted() -> None:
    assert [format_duration(it) for it in (0.44, 12.4, 150, 9000, 400_000)] == [
        "0.4 s",
        "12 s",
        "2 min",
        "2.5 h",
        "4.6 d",
    ]
    assert [format_count(it, "byte") for it in (0, 1, 1000)] == ["0 bytes", "1 byte", "1,000 bytes"]


def test_a_milestone_is_printed_once() -> None:
    messages: list[str] = []
    it = LiveView(say=lambda text, kind: messages.append(text))
    it.reach("first message")
    it.reach("first message")
    assert len(messages) == 1
    assert messages[0].startswith("first message after ")


def test_the_summary_has_records_and_rows() -> None:
    assert list(summary_lines(view())) == [
        "topic t0: 0 records, 2.0 KiB",
        "topic t1: 1,000 records, 2.0 KiB",
        "pipeline hourly: 10 rows in, 2 rows out",
    ]


@pytest.mark.parametrize("error", [BrokenPipeError, OSError(5, "Input/output error")])
def test_a_closed_output_is_ignored(error: BaseException) -> None:
    """With `ottla up … | tee log` Ctrl-C ends tee first, and brokers still have to be stopped."""

    class ClosedOutput(io.StringIO):
        def write(self, _: str) -> int:
            raise error

    console = Console(file=ClosedOutput())
    print_message(console, "stopping pipelines and brokers", "info")
    print_message(console, "everything is stopped", "success")
