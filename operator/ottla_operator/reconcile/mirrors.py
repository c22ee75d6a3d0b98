"""Reconciles Mirrors: configures what the target's brokers mirror, and reports their progress.

The brokers go on mirroring while no operator runs. After a Mirror is deleted they keep its
settings: mirrored topics are data, and a person decides whether to open or delete them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import mirrors
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan import mirror as plan
from ottla_operator.plan.backoff import RequeueBackoff
from ottla_operator.plan.conditions import (
    STALLED,
    Conditions,
    ExtraCondition,
    Readiness,
    Reconciling,
    Stalled,
    find_condition,
)
from ottla_operator.plan.source_credentials import (
    SecretUnusable,
    credential_settings,
    redacted_changes,
    secret_names,
    user_settings,
)
from ottla_operator.reconcile.component_users import ComponentLogin, mirror_login
from ottla_operator.reconcile.connection import CONNECT_TIMEOUT_S, connect_to_cluster
from ottla_operator.reconcile.platform import Blocked, Platform
from ottla_operator.reconcile.validation import ValidationCache, error_readiness, rejected_readiness
from ottla_operator.reconcile.watch_cache import Key, WatchCache, is_terminating, resource_key
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json

RETRY_S: Final = 1.0
WAIT_S: Final = 5.0
KEPT_FIELDS: Final = ("role", "topics", "lagRecords", "lagSeconds", "lagBytes", "silentSeconds")
TRANSIENT_ERRORS: Final = frozenset(
    {
        ErrorCode.not_controller,
        ErrorCode.broker_not_available,
        ErrorCode.leader_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
    }
)


@dataclass(slots=True)
class MirrorReconciler:
    """`resync_s`: interval at which a Mirror that needs no change is observed again, for its
    lag.
    """

    platform: Platform
    cache: WatchCache
    resync_s: float
    _backoffs: dict[Key, RequeueBackoff] = field(default_factory=dict)
    _validation: ValidationCache = field(init=False)

    def __post_init__(self) -> None:
        self._validation = ValidationCache(self.platform.find_unsupported)

    async def reconcile(self, key: Key) -> float | None:
        resource = self.cache.mirrors.get(key)
        if resource is None or is_terminating(resource):
            self._validation.forget(key)
            self._backoffs.pop(key, None)
            return None
        if problems := self._validation.find_problems(key, resource):
            return await self._report(resource, Stalled("InvalidSpec", problems))
        try:
            return await self._reconcile(key, resource, Mirror.parse_stored(resource))
        except Blocked as blocked:
            delay_s = await self._report(resource, blocked.readiness, shortest_s=WAIT_S)
            return delay_s if blocked.requeue_s is None else blocked.requeue_s

    async def report_error(self, key: Key, error: Exception) -> None:
        if (resource := self.cache.mirrors.get(key)) is not None:
            await self._report(resource, error_readiness(error))

    async def _reconcile(self, key: Key, resource: Json, mirror: Mirror) -> float:
        target = await self._find_cluster(key, mirror.spec.target.cluster_ref.name, "ClusterNotFound")
        source = await self._find_source(key, mirror)
        login = None if source is None else await mirror_login(self.platform, resource, mirror, source)
        desired = plan.mirror_settings(mirror, self._source_bootstrap(mirror, source, login))
        try:
            secrets = await self.platform.read_secrets(key.namespace, secret_names(mirror))
            desired |= (
                credential_settings(mirror, secrets) if login is None else user_settings(login.values, login.digest)
            )
        except SecretUnusable as error:
            raise Blocked(Reconciling("CredentialsUnusable", str(error))) from error
        async with connect_to_cluster(self.platform, Cluster.parse_stored(target), CONNECT_TIMEOUT_S) as client:
            try:
                return await self._apply(client, resource, mirror, desired)
            except KafkaError as error:
                return await self._report(resource, rejected_readiness(error, TRANSIENT_ERRORS))

    async def _apply(self, client: KafkaClient, resource: Json, mirror: Mirror, desired: Mapping[str, str]) -> float:
        """Alters the settings that differ and reports the progress of the mirrored partitions."""
        observed = await mirrors.describe_mirror(client, mirror.name)
        reported_role = (resource.get("status") or {}).get("role")
        if (stalled := plan.find_unrequested_failover(desired, observed.settings, reported_role)) is not None:
            return await self._report(resource, stalled)
        if changes := plan.plan_mirror_changes(desired, observed.settings):
            await mirrors.alter_mirror(client, mirror.name, changes)
            await self.platform.record_event(resource, "MirrorConfigured", f"set {redacted_changes(changes)}")
            observed = await mirrors.describe_mirror(client, mirror.name)
        partitions = await mirrors.describe_mirrored_partitions(client, mirror.name)
        readiness = plan.evaluate_mirror(desired, partitions, observed)
        fields = plan.mirror_status_fields(desired, partitions, observed)
        extra = [*plan.mirror_conditions(partitions), *plan.schemas_condition(mirror, partitions, observed)]
        return await self._report(resource, readiness, extra, fields)

    async def _find_cluster(self, key: Key, name: str, reason: str, role: str = "") -> Json:
        found = await self.platform.find_cluster(Key(key.namespace, name))
        if found is None:
            raise Blocked(Reconciling(reason, f"Cluster {name}{role} does not exist in this namespace"))
        return found

    async def _find_source(self, key: Key, mirror: Mirror) -> Cluster | None:
        """None if `spec.source` has addresses instead of a Cluster."""
        if (ref := mirror.spec.source.cluster_ref) is None:
            return None
        return Cluster.parse_stored(await self._find_cluster(key, ref.name, "SourceNotFound", ", the source,"))

    def _source_bootstrap(self, mirror: Mirror, source: Cluster | None, login: ComponentLogin | None) -> str:
        """The addresses, host:port,…, at which the target's brokers reach the source."""
        if login is not None:
            return login.bootstrap
        if source is None:
            assert mirror.spec.source.bootstrap is not None  # the schema asks for one of the two
            return mirror.spec.source.bootstrap
        return self.platform.source_bootstrap(source, mirror)

    async def _report(
        self,
        resource: Json,
        readiness: Readiness,
        extra: Sequence[ExtraCondition] = (),
        fields: dict[str, Json] | None = None,
        shortest_s: float = RETRY_S,
    ) -> float:
        """Writes the status and returns the requeue delay in seconds. `fields`: None keeps the
        present fields, because no broker has described the mirrored partitions. `shortest_s`: the
        first delay of the backoff.
        """
        status = resource.get("status") or {}
        reported = find_condition(resource, STALLED).get("message")
        conditions = Conditions(readiness, resource["metadata"]["generation"], extra)
        kept = {key: status.get(key) for key in KEPT_FIELDS}
        await self.platform.write_status(resource, conditions, kept if fields is None else fields)
        if isinstance(readiness, Stalled) and reported != readiness.message:
            await self.platform.record_event(resource, readiness.reason, readiness.message, is_warning=True)
        if not isinstance(readiness, Reconciling):
            return self.resync_s
        backoff = self._backoffs.setdefault(resource_key(resource), RequeueBackoff())
        return backoff.delay_s(readiness, asyncio.get_running_loop().time(), shortest_s, self.resync_s)
