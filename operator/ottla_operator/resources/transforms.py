"""Steps of a Pipeline: views that are derived from its sources and from earlier steps."""

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from ottla_operator.resources.common import PYTHON_NAME, Column, Identifier
from ottla_operator.resources.model import Model, Rule, doc, exactly_one, listed

STEP_KINDS: Final = ("sql", "python", "union", "transformWithState")


class Expectation(Model, frozen=True):
    """Condition that every row has to satisfy."""

    name: Annotated[Identifier, doc("Name of the expectation in dead letters and metrics.")]
    sql: Annotated[
        str, Meta(min_length=1, max_length=4096, description="SQL condition on the row. NULL counts as false.")
    ]
    on_fail: Annotated[
        Literal["deadLetter", "drop", "fail"],
        doc(
            "What happens to a row that does not satisfy the condition. deadLetter: it is written to the dead-letter "
            "topic. drop: it is dropped. fail: the pipeline fails. Defaults to deadLetter."
        ),
    ] = "deadLetter"


class TransformWithState(Model, frozen=True):
    """State that a Python class keeps for each key, as in Spark's transformWithState."""

    source: Annotated[Identifier, doc("Stream or earlier step whose rows the class receives.")] = field(name="from")
    key: Annotated[
        tuple[Column, ...],
        Meta(min_length=1, max_length=16, description="Columns that identify a state. A row updates that of its key."),
    ]
    processor: Annotated[
        str,
        Meta(
            max_length=512,
            pattern=PYTHON_NAME,
            description="file.py:Class. The class is a pyspark.sql.streaming.StatefulProcessor.",
        ),
    ]
    columns: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=16_384,
            description="Columns that the class returns, as Spark DDL: 'user STRING, visits INT'.",
        ),
    ]
    timers: Annotated[
        Literal["none", "processingTime", "eventTime"],
        doc(
            "Time that the class's timers and its state's time to live go by. eventTime: the watermark of the rows, "
            "which need one; state then has no time to live. Defaults to none."
        ),
    ] = "none"
    event_time: Annotated[
        Column | None,
        doc(
            "Which of the columns that the class returns holds the event time of the rows, for windows of later steps. "
            "Only with timers eventTime."
        ),
    ] = None

    rules = (
        Rule(
            "!has(self.eventTime) || (has(self.timers) && self.timers == 'eventTime')",
            "eventTime is only for timers: eventTime",
            lambda value: "eventTime" not in value or value.get("timers") == "eventTime",
            "eventTime",
        ),
    )


class Transform(Model, frozen=True):
    """Step that derives a view from sources and earlier steps."""

    name: Annotated[Identifier, doc("Name of the view, for later steps and sinks.")]
    sql: Annotated[
        Annotated[str, Meta(min_length=1, max_length=65_536)] | None,
        doc("SELECT statement over sources and earlier steps."),
    ] = None
    python: Annotated[
        Annotated[str, Meta(max_length=512, pattern=PYTHON_NAME)] | None,
        doc("file.py:function. The function takes the views by name (dict[str, DataFrame]) and returns a DataFrame."),
    ] = None
    union: Annotated[
        Annotated[tuple[Identifier, ...], Meta(min_length=2, max_length=32)] | None,
        doc(
            "Sources and earlier steps whose rows are one view. They need the same columns, in any order.",
            listed("set"),
        ),
    ] = None
    transform_with_state: Annotated[
        TransformWithState | None,
        doc("State that the pipeline's own Python class keeps for each key, with timers."),
    ] = None
    expect: Annotated[
        Annotated[tuple[Expectation, ...], Meta(max_length=64)],
        doc("Conditions that every row of the view has to satisfy.", listed("map", "name")),
    ] = ()

    rules = (exactly_one(*STEP_KINDS, message=f"a transform has exactly one of {', '.join(STEP_KINDS)}"),)
