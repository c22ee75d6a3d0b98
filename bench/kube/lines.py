"""What is measured of the operator, and what each figure may be at most."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """`most`: of `unit`. `session`: what it is measured in."""

    name: str
    what: str
    unit: str
    most: float
    session: str


LINES = (
    Line("ready", "apply → Ready of three brokers, images present", "s", 30, "nodes"),
    Line("roll", "a roll, for each broker", "s", 15, "nodes"),
    Line("stall", "longest time that a partition took no record during a roll", "s", 1, "nodes"),
    Line("memory-100", "operator's resident memory with 100 topics", "MiB", 80, "topics"),
    Line("memory-1000", "operator's resident memory with 1,000 topics", "MiB", 150, "topics"),
    Line("topics-1000", "1,000 Topics, from the first apply to the last Ready", "s", 60, "topics"),
    Line("resync-writes", "writes by a resync of what is as wished", "", 0, "topics"),
)
