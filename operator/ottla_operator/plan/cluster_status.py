"""The status of a Cluster, from everything that one reconcile has observed and done. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.formatting import format_brokers, format_count
from ottla_operator.plan.conditions import ExtraCondition, Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.observed_pods import IMAGE_ERRORS
from ottla_operator.plan.roll import Blocker
from ottla_operator.plan.settings import Settings
from ottla_operator.resources.cluster_tls import CertificateStatus
from ottla_operator.resources.model import Json

SETTING_REFUSED: Final = "SettingRefused"
CERTIFICATE_UNUSABLE: Final = "CertificateUnusable"
PARTITIONS_OFFLINE: Final = "PartitionsOffline"
UNSCHEDULABLE: Final = "Unschedulable"
MAX_PROBLEMS: Final = 3  # in one message
MAX_BLOCKERS: Final = 100  # a roll may wait for thousands of partitions, and an object holds a megabyte


@dataclass(frozen=True, slots=True)
class ObservedBroker:
    """A broker's pod or process.

    `started_with`: its settings; None if unknown. `outdated`: why it must be restarted, other than
    its settings, such as its image or its passwords; empty if it need not be. `problem`: the reason
    why it does not run; empty if nothing is known. `unready_for_s`: 0 while it is ready.
    """

    id: int
    is_ready: bool
    started_with: Settings | None
    outdated: str = ""
    is_terminating: bool = False
    unready_for_s: float = 0.0
    problem: str = ""
    version: str = ""
    config_hash: str = ""


@dataclass(frozen=True, slots=True)
class ClusterObservations:
    """Observations and actions of one reconcile of a Cluster.

    `replicas`: brokers that the spec asks for. `registered`: brokers that the controller has
    registered and not fenced. `refused_settings`: why `spec.config` is refused. `outdated`: broker
    → why it has to be restarted. `blocked_by`: the partitions that the roll waits for. `restarted`:
    the broker that this reconcile restarted. `was_rolling`: a roll was in progress when the status
    was written last. `rejected_settings`: setting → why the brokers reject it. `scales_from`:
    brokers before the scaling that is in progress; None if none is. `scaling`: the step in
    progress; `scale_down_blocked`: why brokers cannot be removed. `creation_error`: why a missing
    broker cannot be created. `offline_partitions`, `under_replicated_partitions`,
    `moving_partitions`: None when no broker could be asked, or the metadata log has lost its
    majority. `moves_started`: number of moves that this reconcile started. `rotation`: what a
    rotation of passwords waits for; `passwords_rotated_at`: `spec.rotatePasswordsAt` of the present
    ones, empty during a rotation and if none was due. `connect_error`: why no broker could be
    asked. `quorum_loss`: why there is no controller. `certificate_error`: why the listeners'
    certificates cannot be used or renewed. `certificate`: that of the listeners with TLS.
    `start_timeout_s`: time in which a broker must become ready.
    """

    replicas: int
    brokers: Mapping[int, ObservedBroker]
    registered: frozenset[int] = frozenset()
    outdated: Mapping[int, str] = field(default_factory=dict)
    blocked_by: Sequence[Blocker] = ()
    restarted: int | None = None
    was_rolling: bool = False
    refused_settings: str = ""
    rejected_settings: Mapping[str, str] = field(default_factory=dict)
    scales_from: int | None = None
    scaling: str = ""
    scale_down_blocked: str = ""
    creation_error: str = ""
    offline_partitions: int | None = None
    under_replicated_partitions: int | None = None
    moving_partitions: int | None = None
    moves_started: int = 0
    rotation: str = ""
    passwords_rotated_at: str = ""
    connect_error: str = ""
    quorum_loss: str = ""
    certificate_error: str = ""
    certificate: CertificateStatus | None = None
    start_timeout_s: float = 600.0
    cluster_id: str | None = None
    controller: int | None = None

    @property
    def serving(self) -> list[int]:
        """Brokers that are ready and registered."""
        return [it.id for it in self.brokers.values() if it.is_ready and it.id in self.registered]

    @property
    def missing(self) -> list[int]:
        """Brokers of the spec that do not serve."""
        serving = set(self.serving)
        return [it for it in range(1, self.replicas + 1) if it not in serving]

    @property
    def surplus(self) -> list[int]:
        """Brokers beyond the spec that still exist."""
        return sorted(it for it in self.brokers if it > self.replicas)

    @property
    def is_rolling(self) -> bool:
        """True from when a broker has to be restarted until every broker of the spec serves."""
        return bool(self.outdated) or self.restarted is not None or (self.was_rolling and bool(self.missing))

    @property
    def overdue(self) -> list[int]:
        """Brokers that need no restart and are still not ready after `start_timeout_s`."""
        return [
            it.id
            for it in self.brokers.values()
            if not it.is_ready and it.id not in self.outdated and it.unready_for_s > self.start_timeout_s
        ]

    @property
    def can_spare_a_broker(self) -> bool:
        """True if all brokers of the spec serve and every replica that should be in sync is.
        Unknown, and so False, while the partitions could not be observed.
        """
        return len(self.serving) >= self.replicas and self.under_replicated_partitions == 0


def evaluate_cluster(observed: ClusterObservations) -> Readiness:
    """Evaluates the conditions of a Cluster. A cause that a person must remove takes precedence
    over work in progress.
    """
    if observed.refused_settings:
        return evaluate_refused_settings(observed.refused_settings)
    if observed.creation_error:
        return Stalled(
            "FailedCreate", f"{format_brokers(_missing_brokers(observed))} cannot be created: {observed.creation_error}"
        )
    if without_image := _with_problem(observed, IMAGE_ERRORS):
        return Stalled("ImagePullBackOff", f"{format_brokers(without_image)} cannot start. {_problems(observed)}")
    if overdue := observed.overdue:
        message = (
            f"{format_brokers(overdue)} not ready after {observed.start_timeout_s:.0f} s; no ready broker is restarted "
            "while roll.maxUnavailable brokers are not ready."
        )
        return Stalled("BrokerStartFailed", f"{message} {_problems(observed)}".rstrip())
    if observed.certificate_error:
        return Stalled(CERTIFICATE_UNUSABLE, f"{observed.certificate_error}. The brokers keep their certificates")
    if observed.rejected_settings:
        message = "; ".join(f"config {key}: {reason}" for key, reason in sorted(observed.rejected_settings.items()))
        return Stalled("ConfigRejected", message)
    if observed.scale_down_blocked:
        return Stalled("ScaleDownBlocked", observed.scale_down_blocked)
    return _work_in_progress(observed) or Ready(f"{_all_brokers(observed.replicas)} ready.")


def evaluate_refused_settings(problems: str) -> Stalled:
    """The readiness of a Cluster whose `spec.config` is invalid. `problems`: the invalid settings,
    with reasons.
    """
    message = f"{problems}. No broker is started with this spec.config; those that run keep their settings."
    return Stalled(SETTING_REFUSED, message)


def _work_in_progress(observed: ClusterObservations) -> Reconciling | None:
    missing = observed.missing
    if observed.outdated:
        reasons = "; ".join(dict.fromkeys(observed.outdated.values()))
        message = [f"{format_brokers(observed.outdated)} to be restarted: {reasons}"]
        if missing:
            message.append(f"waiting for {format_brokers(missing)}")
        message += [f"waiting: {it}" for it in observed.blocked_by[:MAX_PROBLEMS]]
        return Reconciling("RollingRestart", ". ".join([*message, *_obstacles(observed)]))
    if observed.is_rolling and missing:
        first = f"no other broker has to be restarted; waiting for {format_brokers(missing)}"
        return Reconciling("RollingRestart", ". ".join([first, *_obstacles(observed)]))
    if missing:
        first = f"{_describe_ready_brokers(observed)}; waiting for {format_brokers(missing)}"
        reason = UNSCHEDULABLE if _with_problem(observed, (UNSCHEDULABLE,)) else "InsufficientReplicas"
        return Reconciling(reason, ". ".join([first, *_obstacles(observed)]))
    if observed.scaling:
        return Reconciling("Scaling", observed.scaling)
    if surplus := observed.surplus:
        return Reconciling("Scaling", f"waiting for {format_brokers(surplus)} to stop")
    if observed.scales_from is not None:
        return Reconciling("Scaling", describe_scaling(observed.scales_from, observed.replicas))
    if unreachable := observed.connect_error or observed.quorum_loss:
        return Reconciling("BrokersUnreachable", unreachable)
    if offline := observed.offline_partitions:
        return Reconciling(PARTITIONS_OFFLINE, f"{format_count(offline, 'partition')} without a leader")
    if moving := observed.moving_partitions:
        return Reconciling("MovingPartitions", f"{format_count(moving, 'partition')} being reassigned")
    if behind := observed.under_replicated_partitions:
        return Reconciling("PartitionsUnderReplicated", f"{format_count(behind, 'partition')} under-replicated")
    if observed.rotation:
        return Reconciling("RotatingPasswords", observed.rotation)
    return None


def describe_scaling(before: int, after: int) -> str:
    """`before`, `after`: numbers of brokers. They are equal if `spec.replicas` was changed back
    during a scaling.
    """
    brokers = format_count(after, "broker")
    return f"back to {brokers}" if before == after else f"from {before} to {brokers}"


def availability(observed: ClusterObservations) -> ExtraCondition:
    """Available: clients are served, also during a roll or while a person is needed."""
    if not observed.serving:
        are_fenced = any(it.is_ready for it in observed.brokers.values())
        message = "no ready broker is registered and not fenced" if are_fenced else "no broker is ready"
        return ExtraCondition("Available", False, "NoBrokerReady", observed.connect_error or message)
    if offline := observed.offline_partitions:
        message = f"{format_count(offline, 'partition')} without a leader"
        return ExtraCondition("Available", False, PARTITIONS_OFFLINE, message)
    leaders = ", and every partition has a leader" if observed.offline_partitions == 0 else ""
    message = f"{_describe_ready_brokers(observed)}{leaders}."
    return ExtraCondition("Available", True, "BrokersReady", message)


def status_fields(
    observed: ClusterObservations, bootstrap: Mapping[str, str], selector: str, previous: Mapping[str, Json]
) -> dict[str, Json]:
    """A Cluster's status without its conditions. `previous`: the status until now. A field that is
    None is unknown; `Platform.write_status` leaves it out.
    """
    brokers = sorted(observed.brokers.values(), key=lambda it: it.id)
    versions = {it.version for it in brokers}
    fields: dict[str, Json] = {
        "replicas": len(brokers),
        "readyReplicas": len(observed.serving),
        "selector": selector,
        "version": versions.pop() if len(versions) == 1 else "",
        "clusterId": observed.cluster_id or previous.get("clusterId"),
        "brokers": [
            {"id": it.id, "ready": it.id in observed.serving, "version": it.version, "configHash": it.config_hash}
            for it in brokers
        ],
        "controller": observed.controller,
        "bootstrap": dict(bootstrap),
        "underReplicated": observed.under_replicated_partitions,
        "reassignment": reassignment_progress(
            observed.moving_partitions, observed.moves_started, previous.get("reassignment")
        ),
    }
    if observed.certificate is not None:
        fields["certificate"] = observed.certificate.to_json()
    if observed.passwords_rotated_at:
        fields["passwordsRotatedAt"] = observed.passwords_rotated_at
    if observed.is_rolling:
        fields["roll"] = _roll(observed)
    if observed.scales_from is not None:
        fields["scaling"] = {"from": observed.scales_from, "to": observed.replicas}
    return fields


def _roll(observed: ClusterObservations) -> dict[str, Json]:
    not_ready = [it for it in observed.brokers if it not in observed.serving and it not in observed.outdated]
    current = min(not_ready, default=None) if observed.restarted is None else observed.restarted
    return {
        "pending": sorted(observed.outdated),
        **({"current": current} if current is not None else {}),
        "blockedBy": [
            {"topic": it.topic, "partition": it.partition, "isr": list(it.isr), "minIsr": it.needed + 1}
            for it in observed.blocked_by[:MAX_BLOCKERS]
        ],
    }


def reassignment_progress(
    moving: int | None, started: int, previous: Mapping[str, Json] | None
) -> dict[str, Json] | None:
    """Number of started moves that have completed, and their total; None if nothing moves. The
    status keeps the total, so that another operator continues to count. `moving`: None when the
    partitions could not be observed; then the previous progress is kept.
    """
    if moving is None:
        return dict(previous) if previous else None
    if not moving:
        return None
    total = max(moving, started or int((previous or {}).get("total", 0)))
    return {"moved": total - moving, "total": total}


def _missing_brokers(observed: ClusterObservations) -> list[int]:
    """Brokers of the spec that do not exist. If all exist, those that do not serve, such as one
    whose pod is being replaced. If all serve, the last one.
    """
    return [it for it in observed.missing if it not in observed.brokers] or observed.missing or [observed.replicas]


def _with_problem(observed: ClusterObservations, reasons: Sequence[str]) -> list[int]:
    """Brokers that need no restart and do not run, for one of Kubernetes' reasons."""
    return [
        it.id
        for it in observed.brokers.values()
        if not it.is_ready and it.id not in observed.outdated and it.problem.startswith(tuple(reasons))
    ]


def _describe_ready_brokers(observed: ClusterObservations) -> str:
    """Counts brokers that are being removed, too: until then they serve."""
    return f"{len(observed.serving)} of {observed.replicas + len(observed.surplus)} brokers are ready"


def _all_brokers(replicas: int) -> str:
    return "the broker is" if replicas == 1 else f"all {replicas} brokers are"


def _obstacles(observed: ClusterObservations) -> list[str]:
    """Why brokers do not run, cannot be asked, or have no controller."""
    return [it for it in (_problems(observed), observed.connect_error, observed.quorum_loss) if it]


def _problems(observed: ClusterObservations) -> str:
    found = [f"Broker {it.id}: {it.problem}" for it in observed.brokers.values() if it.problem]
    return ". ".join(found[:MAX_PROBLEMS])
