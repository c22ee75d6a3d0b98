"""What is reported to brokers about a rolling restart, for their console. Pure."""

from typing import Final

from ottla_broker.wire.roll_report import RollBlocker, RollReport
from ottla_operator.plan.cluster_status import ClusterObservations

MAX_TEXT: Final = 1024
MAX_BLOCKERS: Final = 50


def build_roll_report(observed: ClusterObservations) -> RollReport | None:
    """None if no roll is in progress."""
    if not observed.is_rolling:
        return None
    blockers = observed.blocked_by[:MAX_BLOCKERS]
    # A broker that was restarted in this reconcile still counts as serving and as outdated.
    restarted = set() if observed.restarted is None else {observed.restarted}
    return RollReport(
        tuple(sorted(observed.outdated.keys() - restarted)),
        next(iter(observed.outdated.values()), "")[:MAX_TEXT],
        tuple(sorted(restarted.union(observed.missing))),
        tuple(RollBlocker(it.broker, it.topic, it.partition, it.isr, it.needed) for it in blockers),
    )
