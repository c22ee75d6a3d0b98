"""Reconciles Clusters: observe the brokers, decide by pure plans, do one step, report.

Every decision follows from the observed state. Memory only caches it: an operator may be killed at
any time, and the next one continues. A Cluster with `spec.paused` is neither observed nor changed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from ottla_broker.config import AUTO_LEADER_REBALANCE_ENABLE
from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka.client import KafkaClient, Unreachable
from ottla_operator.kafka.cluster import OFFLINE, ClusterDescription, describe_cluster, find_partition_problems
from ottla_operator.kafka.elections import ElectionType, elect_preferred_leaders, find_partitions_to_elect
from ottla_operator.kafka.reassignments import list_reassignments
from ottla_operator.kafka.reports import report_roll
from ottla_operator.kafka.topics import list_topics
from ottla_operator.plan.backoff import RequeueBackoff
from ottla_operator.plan.cluster_events import ClusterEvent, find_cluster_events, find_roll_start
from ottla_operator.plan.cluster_status import (
    ClusterObservations,
    availability,
    evaluate_cluster,
    evaluate_refused_settings,
    status_fields,
)
from ottla_operator.plan.conditions import (
    READY,
    STALLED,
    Conditions,
    ExtraCondition,
    Readiness,
    Ready,
    Stalled,
    find_condition,
)
from ottla_operator.plan.refused_settings import describe_refused_settings, find_refused_settings
from ottla_operator.plan.roll_report import build_roll_report
from ottla_operator.reconcile.connection import try_connect
from ottla_operator.reconcile.password_rotation import RotationProgress, rotate_passwords
from ottla_operator.reconcile.platform import Blocked, BrokerSet, Platform, PlatformError
from ottla_operator.reconcile.quorum_loss import explain_missing_controller
from ottla_operator.reconcile.rolling_restart import AppliedConfig, RestartStep, apply_config, restart_next_broker
from ottla_operator.reconcile.scaling import ScalingStep, is_scaled, scale_step, unregister_removed_brokers
from ottla_operator.reconcile.validation import ValidationCache, error_readiness
from ottla_operator.reconcile.watch_cache import Key, WatchCache, is_terminating
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_duration_ms
from ottla_operator.resources.model import Json

RESYNC_S: Final = 15.0
NEXT_STEP_S: Final = 0.5
WAIT_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 10.0
PAUSED: Final = "spec.paused is true: the operator changes nothing, and does not observe the brokers, until it is false"


@dataclass(slots=True)
class ClusterReconcileCache:
    """Cached observations of a Cluster. `rejected_settings`: with the values that running brokers
    have rejected. `reports_roll`: the controller may have the report of a roll.
    """

    rejected_settings: dict[str, str] = field(default_factory=dict)
    reports_roll: bool = False
    backoff: RequeueBackoff = field(default_factory=RequeueBackoff)


@dataclass(slots=True)
class ClusterReconciler:
    """`on_reachable`: called with the key of a Cluster that has a serving broker."""

    platform: Platform
    cache: WatchCache
    on_reachable: Callable[[Key], None]
    _caches: dict[Key, ClusterReconcileCache] = field(default_factory=dict)
    _validation: ValidationCache = field(init=False)

    def __post_init__(self) -> None:
        self._validation = ValidationCache(self.platform.find_unsupported)

    async def reconcile(self, key: Key) -> float | None:
        resource = self.cache.clusters.get(key)
        if resource is None or is_terminating(resource):
            self._caches.pop(key, None)
            self._validation.forget(key)
            await self.platform.forget_cluster(key)
            return None
        cached = self._caches.setdefault(key, ClusterReconcileCache())
        if problems := self._validation.find_problems(key, resource):
            await self._report(resource, Stalled("InvalidSpec", problems))
            return RESYNC_S
        cluster = Cluster.parse_stored(resource)
        if cluster.spec.paused:
            await self._report(resource, Stalled("ReconciliationPaused", PAUSED))
            return RESYNC_S
        try:
            try:
                return await self._reconcile(key, resource, cluster, cached)
            except PlatformError as error:
                raise Blocked.by_rejection(error) from error
        except Blocked as blocked:
            await self._report(resource, blocked.readiness)
            return RESYNC_S if blocked.requeue_s is None else blocked.requeue_s

    async def report_error(self, key: Key, error: Exception) -> None:
        if (resource := self.cache.clusters.get(key)) is not None:
            await self._report(resource, error_readiness(error))

    async def _reconcile(self, key: Key, resource: Json, cluster: Cluster, cached: ClusterReconcileCache) -> float:
        """Takes one step towards the spec. Returns the requeue delay in seconds."""
        cached.rejected_settings = {
            key: value for key, value in cached.rejected_settings.items() if cluster.config.get(key) == value
        }
        if refused := describe_refused_settings(find_refused_settings(cluster)):
            await self._report_refused(resource, refused)
        # While one setting is refused, no change of any is applied.
        rejected_settings = cluster.config if refused else cached.rejected_settings
        brokers = await self.platform.prepare_brokers(resource, cluster, rejected_settings, refused)
        async with try_connect(brokers.access, CONNECT_TIMEOUT_S) as connection:
            client = connection.client
            described = await describe_cluster(client) if client else None
            quorum_loss = ""
            if _controller(described) is None:
                quorum_loss = await explain_missing_controller(resource, brokers)
            if quorum_loss:
                client = None  # without a controller, requests would wait until they time out
            config = await apply_config(client, brokers)
            rejected = _remember_rejected(cached, config, cluster)
            await self._record(resource, _config_events(config))
            if (started := find_roll_start(config.outdated, resource)) is not None:
                await self.platform.record_event(resource, started.reason, started.message, lasts=True)
            restarted = await self._restart(client, cluster, brokers, described, config)
            await self._record(resource, _restart_events(restarted))
            is_rolling = bool(config.outdated) or restarted.waits_for_brokers
            rotation = await rotate_passwords(client, cluster, brokers, is_rolling=is_rolling)
            await self._record(resource, _rotation_events(rotation))
            scaled = await self._scale(client, cluster, brokers, described, restarted)
            await self._record(resource, scaled.events)
            is_founding = scaled.state.is_founding and not (described and described.id)
            scaled.state = replace(scaled.state, cluster_settings=config.cluster_settings, is_founding=is_founding)
            if (scaled.count, scaled.state) != (brokers.count, brokers.state):
                await brokers.save(scaled.count, scaled.state)
            observed = ClusterObservations(
                replicas=cluster.spec.replicas,
                brokers=brokers.brokers,
                registered=_registered(described),
                outdated=config.outdated,
                blocked_by=restarted.blocked_by,
                restarted=restarted.broker,
                was_rolling=bool((resource.get("status") or {}).get("roll")),
                refused_settings=refused,
                rejected_settings=rejected,
                scales_from=_replicas_before_scaling(scaled, brokers, resource),
                scaling=scaled.in_progress,
                scale_down_blocked=scaled.blocked,
                moves_started=scaled.moves_started,
                connect_error=connection.error,
                quorum_loss=quorum_loss,
                rotation=rotation.in_progress,
                passwords_rotated_at=rotation.rotated_at,
                certificate_error=brokers.certificate_error,
                certificate=brokers.certificate,
                creation_error=brokers.creation_error,
                start_timeout_s=self._start_timeout_s(cluster),
                cluster_id=described.id if described else None,
                controller=_controller(described),
            )
            if client:
                observed = await _observe_partitions(client, observed, elects=_elects_preferred_leaders(cluster))
                await _report_roll(client, observed, cached)
        await brokers.finish(can_spare_a_broker=observed.can_spare_a_broker)
        readiness = evaluate_cluster(observed)
        fields = status_fields(observed, brokers.bootstrap, brokers.selector, resource.get("status") or {})
        events = find_cluster_events(observed, resource)
        await self._report(resource, readiness, (availability(observed),), fields, events)
        if observed.serving:
            self.on_reachable(key)
        if isinstance(readiness, Ready):
            return RESYNC_S
        shortest_s = NEXT_STEP_S if restarted.broker is not None or config.outdated or scaled.in_progress else WAIT_S
        return cached.backoff.delay_s(readiness, asyncio.get_running_loop().time(), shortest_s, RESYNC_S)

    async def _report_refused(self, resource: Json, refused: str) -> None:
        """Reports refused settings at once, because the next step may wait for brokers that do not
        answer.
        """
        stalled = evaluate_refused_settings(refused)
        reported = find_condition(resource, STALLED)
        if (reported.get("reason"), reported.get("message")) != (stalled.reason, stalled.message):
            await self._report(resource, stalled)

    async def _restart(
        self,
        client: KafkaClient | None,
        cluster: Cluster,
        brokers: BrokerSet,
        described: ClusterDescription | None,
        config: AppliedConfig,
    ) -> RestartStep:
        if brokers.certificate_error:  # a broker that is restarted without certificates would not start
            return RestartStep()
        max_unavailable = (cluster.spec.roll and cluster.spec.roll.max_unavailable) or 1
        return await restart_next_broker(
            client, brokers, _registered(described), _controller(described), config.outdated, max_unavailable
        )

    async def _scale(
        self,
        client: KafkaClient | None,
        cluster: Cluster,
        brokers: BrokerSet,
        described: ClusterDescription | None,
        restarted: RestartStep,
    ) -> ScalingStep:
        scaled = ScalingStep(brokers.count, brokers.state)
        if client is None:
            return scaled
        registered = _registered(described)
        serving = {it.id for it in brokers.brokers.values() if it.is_ready and it.id in registered}
        if not restarted.waits_for_brokers and serving >= brokers.desired.keys() and not is_scaled(cluster, brokers):
            scaled = await scale_step(client, cluster, brokers)
        # Also during a roll: while a removed broker is a voter of the metadata log, fewer others
        # can be spared.
        await unregister_removed_brokers(client, brokers, scaled)
        return scaled

    def _start_timeout_s(self, cluster: Cluster) -> float:
        timeout = cluster.spec.roll and cluster.spec.roll.timeout
        return parse_duration_ms(timeout) / 1000 if timeout else self.platform.roll_timeout_s

    async def _record(self, resource: Json, events: Iterable[ClusterEvent]) -> None:
        for event in events:
            await self.platform.record_event(resource, event.reason, event.message, is_warning=event.is_warning)

    async def _report(
        self,
        resource: Json,
        readiness: Readiness,
        extra: tuple[ExtraCondition, ...] = (),
        fields: Mapping[str, Json] | None = None,
        events: Iterable[ClusterEvent] = (),
    ) -> None:
        """Writes the status. `fields`: None keeps the present fields. `events`: consequences of the
        status that this one replaces.
        """
        status = resource.get("status") or {}
        kept = {key: value for key, value in status.items() if key not in ("conditions", "observedGeneration")}
        before = find_condition(resource, READY)
        conditions = Conditions(readiness, resource["metadata"]["generation"], extra)
        await self.platform.write_status(resource, conditions, kept if fields is None else fields)
        await self._record(resource, events)
        is_new = (before.get("reason"), before.get("message")) != (readiness.reason, readiness.message)
        if isinstance(readiness, Stalled) and is_new:
            await self.platform.record_event(resource, readiness.reason, readiness.message, is_warning=True)
        elif isinstance(readiness, Ready) and before.get("status") != "True":
            await self.platform.record_event(resource, readiness.reason, readiness.message)


async def _observe_partitions(
    client: KafkaClient, observed: ClusterObservations, *, elects: bool
) -> ClusterObservations:
    """Counts partitions that are offline, under-replicated or moving. If there are none, and no
    broker has to be restarted, elects preferred leaders where others lead. `elects`: True if it
    may.
    """
    moving = await list_reassignments(client)
    topics = await list_topics(client)
    problems = find_partition_problems(topics, moving)
    if elects and not problems and not moving and not observed.outdated:
        await elect_preferred_leaders(client, find_partitions_to_elect(topics, ElectionType.preferred))
    return replace(
        observed,
        offline_partitions=sum(it.kind == OFFLINE for it in problems),
        under_replicated_partitions=len(problems),
        moving_partitions=len(moving),
    )


async def _report_roll(client: KafkaClient, observed: ClusterObservations, cached: ClusterReconcileCache) -> None:
    """Reports a roll, or its end, to the active controller, for the brokers' console. The next
    reconcile does it where this one fails: the controller may be restarting, or be of a version
    without such reports.
    """
    cached.reports_roll |= observed.is_rolling or observed.was_rolling
    if cached.reports_roll:
        with suppress(KafkaError, Unreachable):
            await report_roll(client, build_roll_report(observed))
            cached.reports_roll = observed.is_rolling


def _elects_preferred_leaders(cluster: Cluster) -> bool:
    return cluster.config.get(AUTO_LEADER_REBALANCE_ENABLE.name, "true").lower() != "false"


def _replicas_before_scaling(scaled: ScalingStep, brokers: BrokerSet, resource: Json) -> int | None:
    """Number of brokers before the scaling in progress; None if there is none. A new Cluster does
    not scale.
    """
    spread_over, desired = scaled.state.spread_over, frozenset(brokers.desired)
    is_stopping = any(it not in desired for it in brokers.brokers)
    if not spread_over or (spread_over == desired and scaled.count == len(desired) and not is_stopping):
        return None
    before: Json = ((resource.get("status") or {}).get("scaling") or {}).get("from")
    return before or len(spread_over)


def _registered(described: ClusterDescription | None) -> frozenset[int]:
    return frozenset(it.id for it in described.brokers) if described else frozenset()


def _controller(described: ClusterDescription | None) -> int | None:
    return described.controller if described and described.controller >= 0 else None


def _remember_rejected(cached: ClusterReconcileCache, config: AppliedConfig, cluster: Cluster) -> dict[str, str]:
    """Returns every setting that running brokers reject, with the reason."""
    for key in config.rejected:
        cached.rejected_settings[key] = cluster.config.get(key, "")
    remembered = {
        key: f"{value!r} is rejected by the running brokers" for key, value in cached.rejected_settings.items()
    }
    return {**remembered, **config.rejected}


def _config_events(config: AppliedConfig) -> list[ClusterEvent]:
    return [ClusterEvent("ConfigChanged", f"{key}={value}, without a restart") for key, value in config.applied.items()]


def _rotation_events(rotation: RotationProgress) -> list[ClusterEvent]:
    if not rotation.begun:
        return []
    return [ClusterEvent("RotatingPasswords" if rotation.in_progress else "PasswordsRotated", rotation.begun)]


def _restart_events(restarted: RestartStep) -> list[ClusterEvent]:
    if restarted.broker is None:
        return []
    return [ClusterEvent("RestartingBroker", f"restarting broker {restarted.broker} ({restarted.reason})")]
