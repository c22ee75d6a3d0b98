"""The lines of the benchmark of the operator, by session, with the maximum of each value."""

from bench.lines import Line

LINES = {
    "topics": (
        Line("memory-100", "operator's resident memory with 100 topics", "MiB", "lower", at_most=80),
        Line("memory-1000", "operator's resident memory with 1,000 topics", "MiB", "lower", at_most=150),
        Line("topics-1000", "1,000 Topics, from the first apply until the last is Ready", "s", "lower", at_most=60),
        Line("resync-writes", "writes by a resync of reconciled resources", "", "lower", at_most=0),
    ),
    "nodes": (
        Line("ready", "apply until Ready of three brokers, images present", "s", "lower", at_most=30),
        Line("roll", "rolling restart, per broker", "s", "lower", at_most=15),
        Line("stall", "longest time without an acknowledgement in a partition during a roll", "s", "lower", at_most=1),
    ),
}
