"""What is to be said of a Cluster, from everything that was seen and done in one look at it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.formatting import format_count
from ottla_operator.plan.conditions import ExtraCondition, Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.observed_pods import BrokerPod
from ottla_operator.plan.roll import Blocker

NO_CERTIFICATE: Final = "NoCertificate"
MANY: Final = 3  # troubles that one message tells


@dataclass(frozen=True, slots=True)
class Facts:
    """`wanted`: brokers that should be there. `up`: brokers that the cluster counts on. `late`: brokers that take longer to come back than they may.
    `outdated`: broker → why it has to be restarted. `blocked_by`: what the roll waits for. `refused`: setting → why the brokers do not take it.
    `scaling`: what is being moved or let go, in words; `cannot_scale`: why that is refused. `leaderless`, `under_replicated`: partitions; None when no
    broker could be asked. `no_certificates`: why the listeners' certificates cannot be used as they are now. `moving`: partitions that are getting other replicas. `unreached`: why none could be asked."""

    wanted: int
    pods: Mapping[int, BrokerPod]
    up: frozenset[int] = frozenset()
    late: Sequence[int] = ()
    outdated: Mapping[int, str] = field(default_factory=dict)
    blocked_by: Sequence[Blocker] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    scaling: str = ""
    cannot_scale: str = ""
    leaderless: int | None = None
    under_replicated: int | None = None
    moving: int = 0
    unreached: str = ""
    no_certificates: str = ""

    @property
    def serving(self) -> list[int]:
        return [it.broker for it in self.pods.values() if it.is_ready and it.broker in self.up]

    @property
    def can_spare_one(self) -> bool:
        """Whether all that should be in sync is. While nobody can be asked, that is not known."""
        return len(self.serving) >= self.wanted and self.under_replicated == 0


def verdict(facts: Facts) -> Readiness:
    """First what a person has to do; then what is under way."""
    if facts.late:
        why = f"{_brokers(facts.late)} did not come back in time; no other is restarted. {_troubles(facts)}".rstrip()
        return Stalled("BrokerDoesNotStart", why)
    if facts.no_certificates:
        return Stalled(NO_CERTIFICATE, f"{facts.no_certificates}. The brokers stay as they are")
    if facts.refused:
        return Stalled(
            "SettingRefused", "; ".join(f"config {key}: {why}" for key, why in sorted(facts.refused.items()))
        )
    if facts.cannot_scale:
        return Stalled("CannotScale", facts.cannot_scale)
    return _work(facts) or Ready(f"{_serve(facts)}.")


def _work(facts: Facts) -> Reconciling | None:
    away = [it for it in range(1, facts.wanted + 1) if it not in facts.serving]
    if facts.outdated:
        said = [f"{_brokers(facts.outdated)} to be restarted: {next(iter(facts.outdated.values()))}"]
        if away:
            said.append(f"waiting for {_brokers(away)}")
        said += [f"it waits: {it}" for it in facts.blocked_by[:MANY]]
        return Reconciling("Rolling", ". ".join([*said, *filter(None, [_troubles(facts)])]))
    if away:
        said = [f"{len(facts.serving)} of {facts.wanted} brokers serve; waiting for {_brokers(away)}"]
        return Reconciling("Starting", ". ".join([*said, *filter(None, [_troubles(facts), facts.unreached])]))
    if facts.scaling:
        return Reconciling("Scaling", facts.scaling)
    if facts.unreached:
        return Reconciling("Unreachable", facts.unreached)
    if facts.leaderless:
        return Reconciling("PartitionsOffline", f"{format_count(facts.leaderless, 'partition')} without a leader")
    if facts.moving:
        return Reconciling("Moving", f"{format_count(facts.moving, 'partition')} to get other replicas")
    if facts.under_replicated:
        return Reconciling(
            "CatchingUp", f"{format_count(facts.under_replicated, 'partition')} short of replicas in sync"
        )
    return None


def serving(facts: Facts) -> ExtraCondition:
    """Whether clients are served, also while a roll goes on or a person is needed."""
    if not facts.serving:
        return ExtraCondition("Serving", False, "NoBroker", facts.unreached or "no broker is ready")
    if facts.leaderless:
        return ExtraCondition(
            "Serving", False, "PartitionsOffline", f"{format_count(facts.leaderless, 'partition')} without a leader"
        )
    return ExtraCondition(
        "Serving",
        True,
        "Serving",
        f"{len(facts.serving)} of {facts.wanted} brokers serve, and every partition has a leader.",
    )


def _serve(facts: Facts) -> str:
    return "the broker serves" if facts.wanted == 1 else f"all {facts.wanted} brokers serve"


def _brokers(ids: Sequence[int] | Mapping[int, str]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, sorted(ids)))}"


def _troubles(facts: Facts) -> str:
    found = [f"Broker {it.broker}: {it.problem}" for it in facts.pods.values() if it.problem]
    return ". ".join(found[:MANY])
