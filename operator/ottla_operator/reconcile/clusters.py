"""Reconciles Clusters: observe the brokers, decide by pure plans, do one step, report.

Everything is decided from what is observed. What is kept in memory only saves work: an operator that is killed
anywhere is followed by one that goes on.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ottla_operator.formatting import format_count
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.cluster import OFFLINE, ClusterDescription, describe_cluster, find_partition_problems
from ottla_operator.kafka.elections import ElectionType, elect_preferred_leaders, find_partitions_to_elect
from ottla_operator.kafka.quorum_recovery import describe_replicas
from ottla_operator.kafka.reassignments import list_reassignments
from ottla_operator.kafka.topics import list_topics
from ottla_operator.plan.backoff import RequeueBackoff
from ottla_operator.plan.cluster_status import ClusterObservations, availability, evaluate_cluster, status_fields
from ottla_operator.plan.conditions import Conditions, ExtraCondition, Readiness, Ready, Stalled
from ottla_operator.plan.quorum_recovery import MetadataReplica, find_quorum_loss
from ottla_operator.plan.settings import BOOTSTRAP_SERVERS
from ottla_operator.reconcile.connection import try_connect
from ottla_operator.reconcile.platform import Blocked, BrokerSet, Platform, PlatformError
from ottla_operator.reconcile.rolling_restart import AppliedConfig, Restarted, apply_config, restart_next_broker
from ottla_operator.reconcile.scaling import Scaled, is_scaled, scale_step, unregister_removed_brokers
from ottla_operator.reconcile.validation import ValidationCache, error_readiness
from ottla_operator.reconcile.watch_cache import Key, WatchCache, is_terminating
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_duration_ms
from ottla_operator.resources.model import Json

RESYNC_S: Final = 15.0
NEXT_STEP_S: Final = 0.5
WAIT_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 10.0
REPLICA_TIMEOUT_S: Final = 1.0


@dataclass(slots=True)
class ReconcileCache:
    """What need not be found out again for a Cluster. `rejected_settings`: with the values that running brokers have
    rejected. `displaced_leaders`: whether brokers were restarted or partitions moved since preferred leaders were last
    elected. `moves`: what the moves that are under way are for."""

    rejected_settings: dict[str, str] = field(default_factory=dict)
    displaced_leaders: bool = False
    moves: str = ""
    message: str = ""
    backoff: RequeueBackoff = field(default_factory=RequeueBackoff)


@dataclass(slots=True)
class ClusterReconciler:
    """`on_reachable`: called with the key of a Cluster of which a broker serves."""

    platform: Platform
    cache: WatchCache
    on_reachable: Callable[[Key], None]
    _caches: dict[Key, ReconcileCache] = field(default_factory=dict)
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
        cached = self._caches.setdefault(key, ReconcileCache())
        if problems := self._validation.find_problems(key, resource):
            await self._report(resource, cached, Stalled("InvalidSpec", problems))
            return RESYNC_S
        try:
            try:
                return await self._reconcile(key, resource, Cluster.parse_stored(resource), cached)
            except PlatformError as error:
                raise Blocked.by_rejection(error) from error
        except Blocked as blocked:
            await self._report(resource, cached, blocked.readiness)
            return RESYNC_S if blocked.requeue_s is None else blocked.requeue_s

    async def report_error(self, key: Key, error: Exception) -> None:
        if (resource := self.cache.clusters.get(key)) is not None:
            await self._report(resource, self._caches.setdefault(key, ReconcileCache()), error_readiness(error))

    async def _reconcile(self, key: Key, resource: Json, cluster: Cluster, cached: ReconcileCache) -> float:
        """One step towards the spec. Returns the requeue delay in seconds."""
        cached.rejected_settings = {
            key: value for key, value in cached.rejected_settings.items() if cluster.config.get(key) == value
        }
        brokers = await self.platform.prepare_brokers(resource, cluster, cached.rejected_settings)
        cached.displaced_leaders |= brokers.started_brokers
        async with try_connect(brokers.addresses, CONNECT_TIMEOUT_S) as connection:
            client = connection.client
            described = await describe_cluster(client) if client else None
            quorum_loss = await _find_quorum_loss(resource, brokers) if _controller(described) is None else ""
            config = await apply_config(client, brokers)
            rejected = _remember_rejected(cached, config, cluster)
            await self._record(resource, _config_events(config))
            restarted = await self._restart(client, cluster, brokers, described, config)
            cached.displaced_leaders |= restarted.broker is not None
            await self._record(resource, _restart_events(restarted))
            scaled = await self._scale(client, cluster, brokers, described, restarted)
            cached.displaced_leaders |= scaled.moves_started > 0
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
                rejected_settings=rejected,
                scaling=scaled.in_progress,
                scale_down_blocked=scaled.blocked,
                moves_started=scaled.moves_started,
                connect_error=connection.error,
                quorum_loss=quorum_loss,
                certificate_error=brokers.certificate_error,
                start_timeout_s=self._start_timeout_s(cluster),
                cluster_id=described.id if described else None,
                controller=_controller(described),
            )
            if client:
                observed = await _observe_partitions(client, observed, cached)
                await self._record(resource, _move_events(scaled, observed, cached))
        await brokers.finish(can_spare_a_broker=observed.can_spare_a_broker)
        readiness = evaluate_cluster(observed)
        fields = status_fields(observed, brokers.bootstrap, brokers.selector, resource.get("status") or {})
        await self._report(resource, cached, readiness, (availability(observed),), fields)
        if observed.serving:
            self.on_reachable(key)
        if isinstance(readiness, Ready):
            return RESYNC_S
        shortest_s = NEXT_STEP_S if restarted.broker is not None or config.outdated or scaled.in_progress else WAIT_S
        return cached.backoff.delay_s(readiness, asyncio.get_running_loop().time(), shortest_s, RESYNC_S)

    async def _restart(
        self,
        client: KafkaClient | None,
        cluster: Cluster,
        brokers: BrokerSet,
        described: ClusterDescription | None,
        config: AppliedConfig,
    ) -> Restarted:
        if brokers.certificate_error:  # a broker that is restarted without certificates does not come back
            return Restarted()
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
        restarted: Restarted,
    ) -> Scaled:
        scaled = Scaled(brokers.count, brokers.state)
        if client is None:
            return scaled
        registered = _registered(described)
        serving = {it.id for it in brokers.brokers.values() if it.is_ready and it.id in registered}
        if not restarted.waits_for_brokers and serving >= brokers.desired.keys() and not is_scaled(cluster, brokers):
            scaled = await scale_step(client, cluster, brokers)
        # Also during a roll: while a removed broker is a voter of the metadata log, fewer others can be spared.
        await unregister_removed_brokers(client, brokers, scaled)
        return scaled

    def _start_timeout_s(self, cluster: Cluster) -> float:
        timeout = cluster.spec.roll and cluster.spec.roll.timeout
        return parse_duration_ms(timeout) / 1000 if timeout else self.platform.roll_timeout_s

    async def _record(self, resource: Json, events: Iterable[tuple[str, str]]) -> None:
        """`events`: reasons and messages."""
        for reason, message in events:
            await self.platform.record_event(resource, reason, message)

    async def _report(
        self,
        resource: Json,
        cached: ReconcileCache,
        readiness: Readiness,
        extra: tuple[ExtraCondition, ...] = (),
        fields: Mapping[str, Json] | None = None,
    ) -> None:
        """`fields`: None keeps those that the status has."""
        status = resource.get("status") or {}
        kept = {key: value for key, value in status.items() if key not in ("conditions", "observedGeneration")}
        conditions = Conditions(readiness, resource["metadata"]["generation"], extra)
        await self.platform.write_status(resource, conditions, kept if fields is None else fields)
        if isinstance(readiness, Stalled) and cached.message != readiness.message:
            await self.platform.record_event(resource, readiness.reason, readiness.message, warning=True)
        elif isinstance(readiness, Ready) and cached.message and cached.message != readiness.message:
            await self.platform.record_event(resource, readiness.reason, readiness.message)
        cached.message = readiness.message


async def _observe_partitions(
    client: KafkaClient, observed: ClusterObservations, cached: ReconcileCache
) -> ClusterObservations:
    """Counts partitions that are offline, under-replicated or moving. Once none is, elects preferred leaders if
    restarts or moves have displaced them."""
    moving = await list_reassignments(client)
    topics = await list_topics(client)
    problems = find_partition_problems(topics, moving)
    if cached.displaced_leaders and not problems and not moving and not observed.outdated:
        await elect_preferred_leaders(client, find_partitions_to_elect(topics, ElectionType.preferred))
        cached.displaced_leaders = False
    return replace(
        observed,
        offline_partitions=sum(it.kind == OFFLINE for it in problems),
        under_replicated_partitions=len(problems),
        moving_partitions=len(moving),
    )


async def _find_quorum_loss(resource: Json, brokers: BrokerSet) -> str:
    """Why there is no controller, as far as the brokers' disks tell. Raises Blocked when there can be none without a
    person."""
    found = await describe_replicas(brokers.replica_addresses, timeout_s=REPLICA_TIMEOUT_S)
    replicas = [it for it in found.values() if isinstance(it, MetadataReplica)]
    recorded = (resource.get("status") or {}).get("clusterId")
    loss = find_quorum_loss(replicas, range(1, brokers.count + 1), recorded)
    if loss is not None and loss.is_final:
        raise Blocked(Stalled("QuorumLost", f"{loss.message}. {_recovery_advice(replicas, brokers)}"), WAIT_S)
    return loss.message if loss else ""


def _recovery_advice(replicas: Sequence[MetadataReplica], brokers: BrokerSet) -> str:
    if not any(it.voters for it in replicas):
        return "Restore a volume, or delete the Cluster and its volume claims to begin with an empty one"
    servers = next(iter(brokers.desired.values()))[BOOTSTRAP_SERVERS]
    return f"Restore a lost disk, or go on from what is left: ottla cluster recover --bootstrap {servers}"


def _registered(described: ClusterDescription | None) -> frozenset[int]:
    return frozenset(it.id for it in described.brokers) if described else frozenset()


def _controller(described: ClusterDescription | None) -> int | None:
    return described.controller if described and described.controller >= 0 else None


def _remember_rejected(cached: ReconcileCache, config: AppliedConfig, cluster: Cluster) -> dict[str, str]:
    """Every setting that running brokers reject, with why."""
    for key in config.rejected:
        cached.rejected_settings[key] = cluster.config.get(key, "")
    known = {key: f"{value!r} is rejected by the running brokers" for key, value in cached.rejected_settings.items()}
    return {**known, **config.rejected}


def _config_events(config: AppliedConfig) -> list[tuple[str, str]]:
    return [("ConfigChanged", f"{key}={value}, without a restart") for key, value in config.applied.items()]


def _restart_events(restarted: Restarted) -> list[tuple[str, str]]:
    if restarted.broker is None:
        return []
    return [("RestartingBroker", f"restarting broker {restarted.broker} ({restarted.reason})")]


def _move_events(scaled: Scaled, observed: ClusterObservations, cached: ReconcileCache) -> list[tuple[str, str]]:
    """The event that ends the moves which an earlier reconcile has started."""
    if scaled.moves_started:
        cached.moves = f"{format_count(scaled.moves_started, 'partition')} moved, {scaled.moves_reason}"
    elif cached.moves and observed.moving_partitions == 0:
        said, cached.moves = cached.moves, ""
        return [("PartitionsMoved", said)]
    return []
