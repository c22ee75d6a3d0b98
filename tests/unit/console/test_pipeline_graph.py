"""The graph of a pipeline on its page."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.pipeline_graph import HEIGHT, MAX_TEXT, WIDTH, lay_out
from ottla_broker.wire.pipeline_report import PipelineView


@st.composite
def pipelines(draw: st.DrawFn) -> list[PipelineView]:
    """Sources, then steps that read earlier views, then sinks."""
    views = [PipelineView(f"source{it}", "source", f"topic{it}") for it in range(draw(st.integers(1, 5)))]
    for kind in ("step", "sink"):
        readable = [view.name for view in views if view.kind != "sink"]
        for number in range(draw(st.integers(0, 6))):
            reads = draw(st.lists(st.sampled_from(readable), max_size=4))
            views.append(PipelineView(f"{kind}{number}", kind, reads=tuple(reads)))
            readable += [views[-1].name] if kind == "step" else []
    return views


@given(pipelines())
def test_boxes_are_apart_and_lines_lead_to_the_right(views: list[PipelineView]) -> None:
    graph = lay_out(views)
    assert len(graph.boxes) == len(views)
    places = [(box.x, box.y) for box in graph.boxes]
    for number, (x, y) in enumerate(places):
        assert x >= 0 and x + WIDTH <= graph.width and y >= 0 and y + HEIGHT <= graph.height
        for other_x, other_y in places[:number]:
            assert abs(x - other_x) >= WIDTH or abs(y - other_y) >= HEIGHT
    assert len(graph.lines) == sum(len(set(view.reads)) for view in views)
    for line in graph.lines:
        at_x = at_y = 0
        for part in line.replace("M", "|M").replace("C", "|C").replace("H", "|H").split("|")[1:]:
            numbers = [int(it) for it in part[1:].split()]
            to_x, to_y = (numbers[0], at_y) if part[0] == "H" else (numbers[-2], numbers[-1])
            assert at_x < to_x
            for x, y in places if part[0] == "H" else ():
                assert not (x < to_x and at_x < x + WIDTH and y < to_y < y + HEIGHT), "a line crosses a box"
            at_x, at_y = to_x, to_y


def test_view_that_reads_an_unreported_view_has_no_line() -> None:
    graph = lay_out([PipelineView("a", "sink", reads=("missing",))])
    assert (len(graph.boxes), graph.lines) == (1, [])
    assert (lay_out([]).width, lay_out([]).height) == (0, 0)


def test_sink_may_have_the_name_of_its_source_and_long_names_are_cut() -> None:
    views = [PipelineView("a" * 50, "source", "t"), PipelineView("a" * 50, "sink", target="console", reads=("a" * 50,))]
    graph = lay_out(views)
    assert [len(box.name) for box in graph.boxes] == [MAX_TEXT, MAX_TEXT]
    assert (len(graph.lines), [box.note for box in graph.boxes]) == (1, ["topic t", "console"])
