"""The graph of a pipeline's sources, steps and sinks, as boxes and lines of an SVG. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla_broker.wire.pipeline_report import PipelineView

WIDTH: Final = 190
HEIGHT: Final = 44
GAP_X: Final = 60
GAP_Y: Final = 18
MARGIN: Final = 2
MAX_TEXT: Final = 26
"""Characters of a line in a box."""

ViewKey = tuple[bool, str]
"""True for a sink, which may have the name of a view that it reads; and the view's name."""


@dataclass(frozen=True, slots=True)
class Box:
    """The box of a view. `x`, `y`: its upper left corner. `note`: its second line. `topic`: the
    topic that it links to, or empty.
    """

    x: int
    y: int
    name: str
    note: str
    kind: str
    topic: str


@dataclass(frozen=True, slots=True)
class Graph:
    """`lines`: paths of SVG, from the right side of a box to the left side of another."""

    boxes: Sequence[Box]
    lines: Sequence[str]
    width: int
    height: int


def lay_out(views: Sequence[PipelineView]) -> Graph:
    """Places every view to the right of those that it reads, and sinks at the right end. A line
    that passes a column runs in a lane below the column's boxes; the lines from one view share a
    lane.
    """
    column_of = assign_columns(views)
    columns = max(column_of.values(), default=-1) + 1
    bottoms = [MARGIN] * columns
    boxes: dict[ViewKey, Box] = {}
    for view in views:
        column = column_of[key_of(view)]
        boxes[key_of(view)] = Box(
            left_of(column), bottoms[column], shorten(view.name), make_note(view), view.kind, view.topic
        )
        bottoms[column] += HEIGHT + GAP_Y
    lanes: dict[tuple[str, int], int] = {}  # y by the name of the view that is read, and column
    lines = []
    for view in views:
        for name in dict.fromkeys(view.reads):
            start, end = column_of.get((False, name), columns), column_of[key_of(view)]
            if start >= end:
                continue  # the view that it reads is not reported
            for column in range(start + 1, end):
                if (name, column) not in lanes:
                    lanes[name, column] = bottoms[column]
                    bottoms[column] += GAP_Y
            passed = [(left_of(column), lanes[name, column]) for column in range(start + 1, end)]
            lines.append(draw_line(boxes[False, name], passed, boxes[key_of(view)]))
    width = 2 * MARGIN + columns * (WIDTH + GAP_X) - GAP_X if columns else 0
    return Graph(list(boxes.values()), lines, width, max(bottoms, default=0))


def assign_columns(views: Sequence[PipelineView]) -> dict[ViewKey, int]:
    """Numbers of columns from the left. `views`: each after those that it reads."""
    columns: dict[ViewKey, int] = {}
    for view in views:
        if view.kind != "sink":
            read = [columns[False, name] for name in view.reads if (False, name) in columns]
            columns[key_of(view)] = 1 + max(read, default=-1)
    last = 1 + max(columns.values(), default=-1)
    return columns | {key_of(view): last for view in views if view.kind == "sink"}


def key_of(view: PipelineView) -> ViewKey:
    return view.kind == "sink", view.name


def left_of(column: int) -> int:
    return MARGIN + column * (WIDTH + GAP_X)


def make_note(view: PipelineView) -> str:
    return shorten(f"topic {view.topic}" if view.topic else view.target)


def shorten(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def draw_line(left: Box, lanes: Sequence[tuple[int, int]], right: Box) -> str:
    """The path of a line in SVG. `lanes`: left ends of the lanes that it runs through."""
    x, y = left.x + WIDTH, left.y + HEIGHT // 2
    path = [f"M{x} {y}"]
    for next_x, next_y in [*lanes, (right.x, right.y + HEIGHT // 2)]:
        middle = (x + next_x) // 2
        path.append(f"C{middle} {y} {middle} {next_y} {next_x} {next_y}")
        x, y = next_x, next_y
        if (next_x, next_y) in lanes:
            x += WIDTH
            path.append(f"H{x}")
    return " ".join(path)
