"""Connects the watch cache, the reconcilers and their loops, for both platforms."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from ottla_broker.log_format import log_fields
from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka.client import Unreachable
from ottla_operator.plan.conditions import find_condition
from ottla_operator.plan.pipeline.topic_readiness import TOPICS_READY
from ottla_operator.reconcile.access_policies import AccessPolicyReconciler, cached_policy_names
from ottla_operator.reconcile.clusters import ClusterReconciler
from ottla_operator.reconcile.groups import GroupReconciler
from ottla_operator.reconcile.loops import ReconcileLoops
from ottla_operator.reconcile.mirrors import MirrorReconciler
from ottla_operator.reconcile.pipelines import PipelineReconciler
from ottla_operator.reconcile.platform import Platform, PlatformError
from ottla_operator.reconcile.schemas import SchemaReconciler
from ottla_operator.reconcile.topics import TopicReconciler
from ottla_operator.reconcile.users import UserReconciler
from ottla_operator.reconcile.watch_cache import GROUPED_KINDS, Key, WatchCache
from ottla_operator.resources.model import Json

EXPECTED_ERRORS: Final = (PlatformError, KafkaError, Unreachable, OSError)
log = logging.getLogger("ottla.operator")

Reconcile = Callable[[Key], Awaitable[float | None]]
ReportError = Callable[[Key, Exception], Awaitable[None]]
OnReconciled = Callable[[str, bool, float], None]
"""Called with the kind, whether the reconcile succeeded, and how many seconds it took."""


class Reconciler(Protocol):
    async def reconcile(self, key: Key) -> float | None:
        """Does one step. Returns the requeue delay in seconds; None: nothing is left to
        reconcile.
        """

    async def report_error(self, key: Key, error: Exception) -> None: ...


class Controller:
    """`update` gets the objects of watches; between `start` and `stop` the reconcilers act on
    them.
    """

    def __init__(
        self,
        platform: Platform,
        cache: WatchCache | None = None,
        on_reconciled: OnReconciled = lambda kind, succeeded, duration_s: None,
        mirror_resync_s: float = 10.0,
    ) -> None:
        self.cache = WatchCache() if cache is None else cache
        self.clusters = ClusterReconciler(platform, self.cache, self._wake_dependents_of_reachable_cluster)
        self.topics = TopicReconciler(platform, self.cache)
        self.groups = GroupReconciler(platform, self.cache)
        self.schemas = SchemaReconciler(platform, self.cache)
        self.users = UserReconciler(platform, self.cache)
        self.policies = AccessPolicyReconciler(platform, self.cache)
        self.mirrors = MirrorReconciler(platform, self.cache, mirror_resync_s)
        self.pipelines = PipelineReconciler(platform, self.cache, self.wake_pipeline)
        self._on_reconciled = on_reconciled
        self._reconciles = itertools.count(1)
        reconcilers: dict[str, Reconciler] = {
            "Cluster": self.clusters,
            "Topic": self.topics,
            "Group": self.groups,
            "Schema": self.schemas,
            "User": self.users,
            "AccessPolicy": self.policies,
            "Mirror": self.mirrors,
            "Pipeline": self.pipelines,
        }
        self._loops = {
            kind: ReconcileLoops(
                self._measured(kind, it.reconcile), EXPECTED_ERRORS, _unless_unavailable(it.report_error)
            )
            for kind, it in reconcilers.items()
        }
        self._reachable: set[Key] = set()
        """Clusters whose Topics, Groups, Schemas and Users were woken since brokers became
        reachable.
        """

    def start(self) -> None:
        """Starts the loops and reconciles everything in the cache."""
        for loops in self._loops.values():
            loops.start()
        for key in {*self.cache.clusters, *(key for by_cluster in self.cache.grouped().values() for key in by_cluster)}:
            self.wake("Cluster", key)
        for key in self.cache.pipelines:
            self.wake("Pipeline", key)
        for key in self.cache.mirrors:
            self.wake("Mirror", key)
        for key in self.cache.policies:
            self._loops["AccessPolicy"].wake(key)

    async def stop(self) -> None:
        for loops in self._loops.values():
            await loops.stop()

    def update(self, body: Mapping[str, Json], *, is_deleted: bool = False) -> None:
        """Updates the cache with an object from a watch, and reconciles what depends on it."""
        if (key := self.cache.update(body, is_deleted=is_deleted)) is not None:
            self.wake(body["kind"], key)

    def forget(self, resource: Json) -> None:
        """Drops a resource that no longer exists although no watch has shown its deletion."""
        self.wake(resource["kind"], self.cache.forget(resource))

    def wake(self, kind: str, key: Key) -> None:
        """Reconciles a changed resource and those that depend on it. `key`: see `reconcile_key`."""
        self._loops[kind].wake(key)
        if kind == "Cluster":
            self._wake_dependents(key)
        if kind == "Topic":
            self.wake_waiting_pipelines(key)
        if kind == "AccessPolicy":
            self._wake_users_of_policy(key)
        if kind == "User":
            self._wake_policies(key)

    def wake_cluster(self, key: Key) -> None:
        """Reconciles a Cluster of which a broker or an owned object has changed."""
        if key in self.cache.clusters:
            self._reachable.discard(key)
            self._loops["Cluster"].wake(key)

    def wake_pipeline(self, key: Key) -> None:
        """Reconciles a Pipeline of which the driver or an owned object has changed."""
        if key in self.cache.pipelines:
            self._loops["Pipeline"].wake(key)

    def _wake_dependents_of_reachable_cluster(self, key: Key) -> None:
        if key not in self._reachable:
            self._reachable.add(key)
            self._wake_dependents(key)

    def _wake_dependents(self, cluster: Key) -> None:
        for kind in GROUPED_KINDS:
            self._loops[kind].wake(cluster)

    def _wake_users_of_policy(self, policy: Key) -> None:
        for cluster, users in self.cache.users.items():
            if cluster.namespace == policy.namespace and any(
                policy.name in cached_policy_names(it) for it in users.values()
            ):
                self._loops["User"].wake(cluster)

    def _wake_policies(self, cluster: Key) -> None:
        """Policies report how many Users name them."""
        for policy in self.cache.policies:
            if policy.namespace == cluster.namespace:
                self._loops["AccessPolicy"].wake(policy)

    def wake_waiting_pipelines(self, cluster: Key) -> None:
        """Reconciles the Pipelines of this Cluster that wait for topics."""
        for key, resource in self.cache.pipelines.items():
            if (
                key.namespace == cluster.namespace
                and resource["spec"]["clusterRef"]["name"] == cluster.name
                and find_condition(resource, TOPICS_READY).get("status") == "False"
            ):
                self._loops["Pipeline"].wake(key)

    def _measured(self, kind: str, reconcile: Reconcile) -> Reconcile:
        async def measured(key: Key) -> float | None:
            loop = asyncio.get_running_loop()
            began, succeeded = loop.time(), False
            try:
                with log_fields(kind=kind, resource=str(key), reconcile=next(self._reconciles)):
                    delay_s = await reconcile(key)
                succeeded = True
                return delay_s
            finally:
                self._on_reconciled(kind, succeeded, loop.time() - began)

        return measured


def _unless_unavailable(report_error: ReportError) -> ReportError:
    """Reports no error of an API server that is down or overloaded: it says nothing about the
    resource, and the server would not store the status. The last status stays, with its generation.
    """

    async def report(key: Key, error: Exception) -> None:
        if isinstance(error, PlatformError) and error.is_unavailable:
            log.warning("retrying %s: %s", key, error)
        else:
            await report_error(key, error)

    return report
