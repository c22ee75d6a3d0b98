"""Brings changed settings, images and pod templates to running brokers: dynamic settings without a
restart, everything else by one restart per step."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka import configs
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.cluster import list_partition_states
from ottla_operator.plan.cluster_status import ObservedBroker
from ottla_operator.plan.roll import (
    Blocker,
    BrokerState,
    RestartBroker,
    RollBlocked,
    RollStep,
    next_roll_step,
    step_without_partitions,
)
from ottla_operator.plan.settings import changed_settings, plan_config_changes
from ottla_operator.reconcile.platform import BrokerSet


@dataclass(slots=True)
class AppliedConfig:
    """`cluster_settings`: the dynamic settings that the operator has set on running brokers.
    `applied`: those of them that were set in this step. `rejected`: setting → why brokers reject
    it. `outdated`: broker → why it has to be restarted."""

    cluster_settings: dict[str, str]
    applied: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    outdated: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestartStep:
    """`broker`: the broker that was restarted in this step, for `reason`; None if no broker is
    outdated, or none may be restarted now. `blocked_by`: partitions that need the outdated brokers
    now. `waits_for_brokers`: brokers must become ready before the next step.
    """

    broker: int | None = None
    reason: str = ""
    blocked_by: tuple[Blocker, ...] = ()
    waits_for_brokers: bool = False


async def apply_config(client: KafkaClient | None, brokers: BrokerSet) -> AppliedConfig:
    """Sets and unsets dynamic settings on running brokers, and finds the brokers that must be
    restarted for the others. Without a client nothing is set or unset."""
    config = AppliedConfig(dict(brokers.state.cluster_settings))
    desired = {id_: it for id_, it in brokers.desired.items() if id_ in brokers.brokers}
    started_with = {id_: brokers.brokers[id_].started_with for id_ in desired}
    if config.cluster_settings or any(
        started is None or changed_settings(started, desired[id_]) for id_, started in started_with.items()
    ):
        ready = next((it.id for it in brokers.brokers.values() if it.is_ready), None)
        dynamic = await configs.list_dynamic_broker_configs(client, ready) if client and ready is not None else set()
        changes = plan_config_changes(started_with, desired, dynamic, config.cluster_settings)
        if client is not None:
            await _set_dynamic_settings(client, changes.to_set, config)
            if changes.to_unset:
                await configs.alter_default_broker_configs(client, {}, changes.to_unset)
                for key in changes.to_unset:
                    del config.cluster_settings[key]
        config.outdated = {id_: f"settings {', '.join(keys)}" for id_, keys in changes.restarts.items()}
    for id_ in desired:
        if reason := brokers.brokers[id_].outdated:
            config.outdated[id_] = ", ".join(filter(None, [reason, config.outdated.get(id_, "")]))
    return config


async def _set_dynamic_settings(client: KafkaClient, to_set: Mapping[str, str], config: AppliedConfig) -> None:
    for key, value in to_set.items():
        try:
            await configs.alter_default_broker_configs(client, {key: value}, ())
        except KafkaError as error:
            if error.code not in configs.INVALID_VALUE_ERRORS:
                raise
            config.rejected[key] = str(error)
        else:
            config.cluster_settings[key] = config.applied[key] = value


async def restart_next_broker(
    client: KafkaClient | None,
    brokers: BrokerSet,
    registered: frozenset[int],
    controller: int | None,
    outdated: Mapping[int, str],
    max_unavailable: int,
) -> RestartStep:
    """Restarts one outdated broker if the roll's plan allows it. `registered`: brokers that the
    controller has registered and not fenced.
    """
    known_registered = None if client is None else registered
    states = [
        *(
            _state(it, brokers.brokers.get(it), outdated.get(it, ""), known_registered)
            for it in sorted(brokers.desired)
        ),
        *(
            BrokerState(it.id, True, "")
            for it in brokers.brokers.values()
            if it.is_ready and it.id in registered and it.id not in brokers.desired
        ),
    ]
    step = step_without_partitions(states, max_unavailable)
    match step or await _step_by_partitions(client, states, controller, max_unavailable):
        case RestartBroker(broker, reason):
            await brokers.restart(broker)
            return RestartStep(broker, reason, waits_for_brokers=True)
        case RollBlocked(down, blocked_by):
            return RestartStep(blocked_by=blocked_by, waits_for_brokers=bool(down))
    return RestartStep()


async def _step_by_partitions(
    client: KafkaClient | None, states: list[BrokerState], controller: int | None, max_unavailable: int
) -> RollStep:
    assert client is not None, "without a client no ready broker counts as outdated"
    return next_roll_step(states, await list_partition_states(client), controller, max_unavailable)


def _state(id_: int, broker: ObservedBroker | None, outdated: str, registered: frozenset[int] | None) -> BrokerState:
    """`registered`: None if the brokers are unreachable. Then a ready broker does not count as
    outdated: it may be the one that others need."""
    if broker is None or broker.is_terminating:
        return BrokerState(id_, False, "")
    if registered is None:
        return BrokerState(id_, broker.is_ready, "" if broker.is_ready else outdated)
    is_registered = id_ in registered
    return BrokerState(id_, broker.is_ready and is_registered, outdated, is_registered=is_registered)
