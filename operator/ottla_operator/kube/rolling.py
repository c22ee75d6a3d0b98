"""Changed settings and pods of running brokers: settings that can change do, for the others brokers are restarted one after the other."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka import configs
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.cluster import list_partition_states
from ottla_operator.kube.api import Api
from ottla_operator.kube.children import Seen
from ottla_operator.kube.kinds import POD
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.desired import broker_ids
from ottla_operator.plan.objects.settings import started_with
from ottla_operator.plan.observed_pods import BrokerPod
from ottla_operator.plan.roll import (
    Blocker,
    BrokerState,
    RestartBroker,
    RollBlocked,
    RollStep,
    next_roll_step,
    step_without_partitions,
)
from ottla_operator.plan.settings import Settings, plan_config_changes
from ottla_operator.resources.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Wished:
    """What every broker should be started with, and the hash of its pod. `certificates`: names those of the listeners, which are in `secret`."""

    settings: Mapping[int, Settings]
    pod_hash: str
    image: str
    certificates: str = ""
    secret: str = ""


@dataclass(slots=True)
class Rolled:
    """`outdated`: broker → why. `restarted`: the broker that was restarted now. `ours`: settings that are set on the running brokers by us."""

    outdated: dict[int, str] = field(default_factory=dict)
    restarted: int | None = None
    blocked_by: tuple[Blocker, ...] = ()
    ours: dict[str, str] = field(default_factory=dict)
    put: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def started(seen: Seen) -> dict[int, dict[str, str] | None]:
    """What each broker's pod was started with; None where its ConfigMap is gone."""
    return {
        id_: started_with(seen.settings[it.settings], id_) if it.settings in seen.settings else None
        for id_, it in seen.pods.items()
    }


async def change_running(link: KafkaClient | None, seen: Seen, wished: Wished) -> Rolled:
    """Sets what running brokers take, and says why each of the others has to be restarted. Without a link, nothing can be set."""
    ours: dict[str, str] = json.loads(seen.notes.get(names.CLUSTER_SETTINGS, "{}"))
    rolled = Rolled(ours=dict(ours))
    before = started(seen)
    there = {id_: it for id_, it in wished.settings.items() if id_ in before}
    if ours or any(before[id_] != it for id_, it in there.items()):
        ready = next((it.broker for it in seen.pods.values() if it.is_ready), None)
        changeable = await configs.list_dynamic_broker_configs(link, ready) if link and ready is not None else set()
        plan = plan_config_changes(before, there, changeable, ours)
        if link is not None:
            await _set(link, plan.to_set, rolled)
            if plan.to_unset:
                await configs.alter_default_broker_configs(link, {}, plan.to_unset)
                rolled.ours = {key: value for key, value in rolled.ours.items() if key not in plan.to_unset}
        rolled.outdated = {id_: f"settings {', '.join(keys)}" for id_, keys in plan.restarts.items()}
    for id_, pod in seen.pods.items():
        if id_ in there and pod.pod_hash != wished.pod_hash:
            why = f"image {wished.image}" if pod.image != wished.image else "its pod's template"
            rolled.outdated[id_] = ", ".join(filter(None, [why, rolled.outdated.get(id_, "")]))
        elif id_ in there and pod.certificates != wished.certificates:
            why = f"certificates of Secret {wished.secret}"
            rolled.outdated[id_] = ", ".join(filter(None, [why, rolled.outdated.get(id_, "")]))
    return rolled


async def _set(link: KafkaClient, put: Mapping[str, str], rolled: Rolled) -> None:
    for key, value in put.items():
        try:
            await configs.alter_default_broker_configs(link, {key: value}, ())
        except KafkaError as error:
            if error.code not in configs.INVALID_VALUE_ERRORS:
                raise
            rolled.refused[key] = str(error)
        else:
            rolled.ours[key] = rolled.put[key] = value


async def restart_next(
    api: Api,
    cluster: Cluster,
    link: KafkaClient | None,
    seen: Seen,
    up: frozenset[int],
    controller: int | None,
    rolled: Rolled,
) -> str:
    """Restarts one broker if one may be: says why, or nothing."""
    if not rolled.outdated:
        return ""
    roll = cluster.spec.roll
    wanted = broker_ids(cluster.spec.replicas)
    states = [
        *(
            _state(it, seen.pods.get(it), rolled.outdated.get(it, ""), None if link is None else it in up)
            for it in wanted
        ),
        *(BrokerState(it.broker, True, "") for it in seen.pods.values() if it.is_ready and it.broker in up - {*wanted}),
    ]
    most = (roll and roll.max_unavailable) or 1
    match step_without_partitions(states, most) or await _by_partitions(link, states, controller, most):
        case RestartBroker(broker, why):
            pod = seen.pods[broker]
            at = {"metadata": {"name": pod.name, "namespace": cluster.metadata.namespace, "uid": pod.uid}}
            await api.delete(POD, at)
            rolled.restarted = broker
            return f"broker {broker} is restarted: {why}"
        case RollBlocked(_, blocked_by):
            rolled.blocked_by = blocked_by
    return ""


async def _by_partitions(
    link: KafkaClient | None, states: list[BrokerState], controller: int | None, most: int
) -> RollStep:
    assert link is not None, "without a link, none that is ready is outdated"
    partitions = await list_partition_states(link, [it.id for it in states if it.is_ready])
    return next_roll_step(states, partitions, controller, most)


def _state(broker: int, pod: BrokerPod | None, outdated: str, counted_on: bool | None) -> BrokerState:
    """`counted_on`: None when no broker can be asked. Then one that is ready is not restarted: nobody knows who needs it."""
    if pod is None or pod.is_terminating:
        return BrokerState(broker, False, "")
    if counted_on is None:
        return BrokerState(broker, pod.is_ready, "" if pod.is_ready else outdated)
    return BrokerState(broker, pod.is_ready and counted_on, outdated, is_registered=counted_on)
