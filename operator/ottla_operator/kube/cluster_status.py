"""The status of a Cluster beside its conditions; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla_operator.kube.rolling import Rolled
from ottla_operator.plan.cluster_verdict import Facts
from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json


@dataclass(frozen=True, slots=True)
class Broker:
    """`version`: the tag of its image. `settings`: names what it was started with."""

    id: int
    ready: bool
    version: str
    settings: str


@dataclass(frozen=True, slots=True)
class Told:
    """What brokers and Services tell."""

    cluster_id: str | None
    controller: int | None
    moving: int
    bootstrap: Mapping[str, str]
    version: str
    brokers: Sequence[Broker]


def status_of(cluster: Cluster, facts: Facts, told: Told, rolled: Rolled) -> dict[str, Json]:
    """None: not known now, and left out."""
    versions = {it.version for it in told.brokers}
    found: dict[str, Json] = {
        "replicas": len(told.brokers),
        "readyReplicas": len(facts.serving),
        "selector": names.selector_text(cluster),
        "version": versions.pop() if len(versions) == 1 else "",
        "clusterId": told.cluster_id,
        "brokers": [
            {"id": it.id, "ready": it.ready, "version": it.version, "configHash": it.settings} for it in told.brokers
        ],
        "controller": told.controller,
        "bootstrap": dict(told.bootstrap),
        "underReplicated": facts.under_replicated,
    }
    if rolled.outdated or rolled.restarted is not None:
        current = rolled.restarted if rolled.restarted is not None else _away(facts, rolled)
        found["roll"] = {
            "pending": sorted(rolled.outdated),
            **({"current": current} if current is not None else {}),
            "blockedBy": [
                {"topic": it.topic, "partition": it.partition, "isr": list(it.isr), "minIsr": it.needed + 1}
                for it in rolled.blocked_by
            ],
        }
    if told.moving:
        found["reassignment"] = {"moved": 0, "total": told.moving}
    return found


def _away(facts: Facts, rolled: Rolled) -> int | None:
    """The broker that the roll waits for: as it should be, and not there yet."""
    away = [
        it.broker for it in facts.pods.values() if it.broker not in facts.serving and it.broker not in rolled.outdated
    ]
    return min(away, default=None)
