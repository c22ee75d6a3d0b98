"""The events of a Cluster since its last status: rolls, changes of the number of brokers, outages
and recoveries. Pure.

They follow from the status that was written last, so another operator does not record them again.
Each event is recorded once, because the status that caused it is replaced.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ottla_operator.formatting import format_brokers, format_count
from ottla_operator.plan.cluster_status import ClusterObservations, ObservedBroker, availability, describe_scaling
from ottla_operator.plan.conditions import find_condition
from ottla_operator.resources.model import Json


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    reason: str
    message: str
    is_warning: bool = False


def find_cluster_events(observed: ClusterObservations, resource: Mapping[str, Json]) -> tuple[ClusterEvent, ...]:
    """`resource`: the Cluster with the status that was written last."""
    previous = resource.get("status") or {}
    return (
        *_roll_events(observed, previous),
        *_scaling_events(observed, previous),
        *_move_events(observed, previous),
        *_broker_events(observed, previous),
        *_availability_events(observed, resource),
    )


def find_roll_start(outdated: Mapping[int, str], resource: Mapping[str, Json]) -> ClusterEvent | None:
    """The event to record before the first restart of a roll; None in the middle of one, or if no
    broker is outdated. `outdated`: broker → why it has to be restarted.
    """
    if not outdated or (resource.get("status") or {}).get("roll"):
        return None
    reasons = ", ".join(dict.fromkeys(outdated.values()))
    return ClusterEvent("RollStarted", f"rolling restart of {format_brokers(outdated)}: {reasons}")


def _roll_events(observed: ClusterObservations, previous: Mapping[str, Json]) -> Iterator[ClusterEvent]:
    if previous.get("roll") and not observed.is_rolling:
        yield ClusterEvent("RollCompleted", "every broker that had to be restarted serves again")


def _scaling_events(observed: ClusterObservations, previous: Mapping[str, Json]) -> Iterator[ClusterEvent]:
    before: Mapping[str, Json] = previous.get("scaling") or {}
    if observed.scales_from is not None and before.get("to") != observed.replicas:
        yield ClusterEvent("ScalingStarted", f"scaling {describe_scaling(observed.scales_from, observed.replicas)}")
    elif before and observed.scales_from is None:
        yield ClusterEvent("ScalingCompleted", f"scaled {describe_scaling(before['from'], observed.replicas)}")


def _move_events(observed: ClusterObservations, previous: Mapping[str, Json]) -> Iterator[ClusterEvent]:
    """The event of a reassignment's end. Its start is recorded by the step that starts it."""
    before: Mapping[str, Json] = previous.get("reassignment") or {}
    if observed.moving_partitions == 0 and (total := max(int(before.get("total", 0)), observed.moves_started)):
        yield ClusterEvent("PartitionsMoved", f"the reassignment of {format_count(total, 'partition')} has ended")


def _broker_events(observed: ClusterObservations, previous: Mapping[str, Json]) -> Iterator[ClusterEvent]:
    if observed.connect_error:  # which brokers serve is unknown
        return
    before = {it["id"]: bool(it["ready"]) for it in previous.get("brokers") or ()}
    serving = set(observed.serving)
    pending = len(observed.outdated)
    for id_ in sorted(before.keys() | serving):
        if id_ in serving and not before.get(id_, False):
            left = f"; {format_count(pending, 'broker')} left to restart" if pending and observed.is_rolling else ""
            yield ClusterEvent("BrokerReady", f"broker {id_} serves{left}")
        elif (
            before.get(id_)
            and id_ not in serving
            and id_ <= observed.replicas
            and not _is_expected(id_, observed, previous)
        ):
            reason = _describe_outage(observed.brokers.get(id_))
            yield ClusterEvent("BrokerNotReady", f"broker {id_} no longer serves: {reason}", is_warning=True)


def _describe_outage(broker: ObservedBroker | None) -> str:
    if broker is None:
        return "its pod or process is gone"
    return broker.problem or ("the controller has fenced it" if broker.is_ready else "it is not ready")


def _is_expected(id_: int, observed: ClusterObservations, previous: Mapping[str, Json]) -> bool:
    """True for the broker that the roll has restarted: a restarted process is not ready at once, a
    deleted pod when it is observed again.
    """
    return id_ in (observed.restarted, (previous.get("roll") or {}).get("current"))


def _availability_events(observed: ClusterObservations, resource: Mapping[str, Json]) -> Iterator[ClusterEvent]:
    before, now = find_condition(resource, "Available").get("status"), availability(observed)
    if before == "True" and not now.is_true:
        yield ClusterEvent(now.reason, now.message, is_warning=True)
    elif before == "False" and now.is_true:
        yield ClusterEvent("Available", f"clients are served: {now.message}")
