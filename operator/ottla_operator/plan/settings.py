"""Settings of brokers: replication defaults, and which changes need a restart.

A dynamic setting is set for the whole cluster through the protocol, and is among the settings that
every broker is started with from its next start. Such a setting is unset again when every broker
was started with it, or when the spec no longer has it. Settings that people have set by other means
are not changed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

Settings = Mapping[str, str]

MAX_DEFAULT_REPLICAS: Final = 3
BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
CLUSTER_FOUND: Final = "cluster.found"
JOINING_SETTINGS: Final = frozenset({BOOTSTRAP_SERVERS, CLUSTER_FOUND})
"""Only a broker that starts without knowing its cluster reads them, so their change restarts no
broker.
"""
OFFSETS_REPLICATION_FACTOR: Final = "offsets.topic.replication.factor"
TRANSACTION_STATE_REPLICATION_FACTOR: Final = "transaction.state.log.replication.factor"
TRANSACTION_STATE_MIN_ISR: Final = "transaction.state.log.min.isr"


def replication_defaults(broker_count: int) -> dict[str, str]:
    """Settings for a cluster of this number of brokers, where its resource does not set them: with
    three, one may fail and all topics stay readable and writable. Nothing is defaulted into the
    resource itself."""
    replicas = min(MAX_DEFAULT_REPLICAS, broker_count)
    return {
        "default.replication.factor": str(replicas),
        OFFSETS_REPLICATION_FACTOR: str(replicas),
        "min.insync.replicas": str(max(1, replicas - 1)),
        TRANSACTION_STATE_MIN_ISR: str(max(1, replicas - 1)),
        TRANSACTION_STATE_REPLICATION_FACTOR: str(replicas),
    }


def broker_count_for_defaults(desired_count: int, spread_over: Iterable[int]) -> int:
    """The number of brokers for `replication_defaults`. It includes brokers that are being removed
    until their partitions have moved, so that defaults for fewer brokers apply only after that.
    """
    return max(desired_count, *spread_over, 0)


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """`to_set`, `to_unset`: settings of the whole cluster. `restarts`: broker → the settings that
    need its restart, or a text that its settings are unknown.
    """

    to_set: Settings
    to_unset: tuple[str, ...]
    restarts: Mapping[int, tuple[str, ...]]


def plan_config_changes(
    started_with: Mapping[int, Settings | None],
    desired: Mapping[int, Settings],
    dynamic: Collection[str],
    cluster_settings: Settings,
) -> ConfigChanges:
    """`started_with`: settings of each broker; None if unknown. `dynamic`: names of settings that a
    running broker accepts. `cluster_settings`: settings that earlier plans have set. Only brokers
    of `desired` are considered."""
    to_set: dict[str, str] = {}
    common = {key for key in dynamic if len({settings.get(key) for settings in desired.values()}) == 1}
    restarts: dict[int, tuple[str, ...]] = {}
    for id_, settings in sorted(desired.items()):
        started = started_with.get(id_)
        if started is None:
            restarts[id_] = ("unknown, no record of its start",)
            continue
        changed = changed_settings(started, settings)
        to_set |= {it: settings[it] for it in changed if it in common and it in settings}
        if static := tuple(it for it in changed if it not in to_set):
            restarts[id_] = static
    return ConfigChanges(
        {key: value for key, value in to_set.items() if cluster_settings.get(key) != value},
        tuple(sorted(it for it in cluster_settings if it not in to_set)),
        restarts,
    )


def changed_settings(started_with: Settings, desired: Settings) -> list[str]:
    """Names of the settings in which a running broker differs from the desired ones."""
    keys = (started_with.keys() | desired.keys()) - JOINING_SETTINGS
    return sorted(it for it in keys if started_with.get(it) != desired.get(it))


def without_rejected(desired: Settings, rejected: Settings, started_with: Settings | None) -> dict[str, str]:
    """`desired` with every value that running brokers have rejected replaced by what a broker was
    started with, or left out if it had none: a broker does not start with a rejected value."""
    kept = {key: value for key, value in desired.items() if rejected.get(key) != value}
    before = started_with or {}
    return {**kept, **{key: before[key] for key in desired.keys() - kept.keys() if key in before}}
