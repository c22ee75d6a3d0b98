"""`replaces` of a Pipeline: a new version that runs beside the old one until it takes over."""

from typing import Annotated, Literal, TypeAlias

from ottla_operator.resources.common import ObjectName, Timestamp
from ottla_operator.resources.model import Model, doc, listed

TakeOver: TypeAlias = Literal["Manual", "WhenEqual", "WhenCaughtUp"]


class Replaces(Model, frozen=True):
    """The version that this Pipeline replaces."""

    name: Annotated[
        ObjectName,
        doc(
            "Pipeline of the same namespace that this one replaces. Both run, each with its own checkpoint, consumer "
            "group and targets, until this one takes over. Then the old one is stopped, with its checkpoint kept."
        ),
    ]
    take_over: Annotated[
        TakeOver,
        doc(
            "Manual: this Pipeline catches up and compares, and does not take over; after a take-over, the old one "
            "runs again. WhenEqual: takes over when it has caught up and every sink has the rows of its compareWith. "
            "WhenCaughtUp: takes over when it has caught up, whatever the comparison found. Defaults to Manual."
        ),
    ] = "Manual"


class Comparison(Model, frozen=True):
    """Rows of a sink beside those of its compareWith."""

    sink: Annotated[str, doc("Name of the sink.")]
    at: Annotated[Timestamp, doc("Time of the comparison.")]
    old_rows: Annotated[int, doc("Rows of compareWith; with outputMode update, its keys.")] = 0
    new_rows: Annotated[int, doc("Rows of the sink; with outputMode update, its keys.")] = 0
    equal: Annotated[int, doc("Rows that both have.")] = 0
    different: Annotated[int, doc("Keys that both have with different values. Only with outputMode update.")] = 0
    only_old: Annotated[int, doc("Rows or keys that only compareWith has.")] = 0
    only_new: Annotated[int, doc("Rows or keys that only the sink has.")] = 0
    error: Annotated[str | None, doc("Why the two could not be compared.")] = None

    @property
    def is_equal(self) -> bool:
        return not (self.different or self.only_old or self.only_new or self.error)

    def __str__(self) -> str:
        if self.error:
            return f"{self.sink}: not compared: {self.error}"
        counts = f"{self.old_rows} old and {self.new_rows} new rows, {self.equal} equal"
        return f"{self.sink}: {counts}, {self.different} different, {self.only_old} only old, {self.only_new} only new"


Phase: TypeAlias = Literal["CatchingUp", "CaughtUp", "TakingOver", "TakenOver"]


class Replacement(Model, frozen=True):
    """Progress of the replacement."""

    phase: Annotated[
        Phase,
        doc(
            "CatchingUp: records are left that existed at the start. CaughtUp: waits to take over. TakingOver: the old "
            "Pipeline stops. TakenOver: it has stopped, and this one has processed all that it had."
        ),
    ]
    seconds_left: Annotated[float | None, doc("Estimated time until the Pipeline has caught up.")] = None
    comparisons: Annotated[
        tuple[Comparison, ...] | None, doc("Last comparison of each sink.", listed("map", "sink"))
    ] = None
    stopped_at: Annotated[
        dict[str, int] | None,
        doc("Offsets at which the old Pipeline has stopped, by topic and partition, such as flights-0."),
    ] = None
