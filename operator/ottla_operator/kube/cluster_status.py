"""The status of a Cluster beside its conditions; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla_operator.kube.rolling import Rolled
from ottla_operator.plan.cluster_verdict import Facts
from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

MOST_BLOCKERS: Final = 100  # thousands of partitions may be short of replicas, and an object holds a megabyte


@dataclass(frozen=True, slots=True)
class Broker:
    """`version`: the tag of its image. `settings`: names what it was started with."""

    id: int
    ready: bool
    version: str
    settings: str


@dataclass(frozen=True, slots=True)
class Told:
    """What brokers and Services tell. `moving`: partitions that move now, None when nobody could be asked; `begun`: how many have been set going by this
    look."""

    cluster_id: str | None
    controller: int | None
    moving: int | None
    begun: int
    bootstrap: Mapping[str, str]
    version: str
    brokers: Sequence[Broker]


def status_of(
    cluster: Cluster, facts: Facts, told: Told, rolled: Rolled, before: Mapping[str, Json]
) -> dict[str, Json]:
    """`before`: the status as it was. None: not known now, and left out."""
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
                for it in rolled.blocked_by[:MOST_BLOCKERS]
            ],
        }
    found["reassignment"] = reassignment(told.moving, told.begun, before.get("reassignment"))
    return found


def reassignment(moving: int | None, begun: int, before: Mapping[str, Json] | None) -> dict[str, Json] | None:
    """How many partitions have arrived of those that were set going. How many these were, the status itself remembers, so that an operator that comes
    later knows it, too."""
    if moving is None:
        return dict(before) if before else None
    if not moving:
        return None
    total = max(moving, begun or int((before or {}).get("total", 0)))
    return {"moved": total - moving, "total": total}


def _away(facts: Facts, rolled: Rolled) -> int | None:
    """The broker that the roll waits for: as it should be, and not there yet."""
    away = [
        it.broker for it in facts.pods.values() if it.broker not in facts.serving and it.broker not in rolled.outdated
    ]
    return min(away, default=None)
