"""Reconciles Groups, all of one Cluster together: one request describes the settings of all."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import configs
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.backoff import RequeueBackoff
from ottla_operator.plan.conditions import Readiness, Reconciling
from ottla_operator.plan.groups import (
    GroupResource,
    evaluate_group,
    find_obstacle,
    group_owners,
    plan_group_change,
)
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.reconcile.concurrency import for_each
from ottla_operator.reconcile.connection import connect_to_cluster
from ottla_operator.reconcile.platform import Blocked, Platform
from ottla_operator.reconcile.status_report import report_status
from ottla_operator.reconcile.validation import error_readiness, rejected_readiness
from ottla_operator.reconcile.watch_cache import Key, WatchCache, is_terminating
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.group import Group
from ottla_operator.resources.model import Json

RESYNC_S: Final = 30.0
RETRY_S: Final = 1.0
CONNECT_TIMEOUT_S: Final = 30.0
TRANSIENT_ERRORS: Final = frozenset({ErrorCode.not_controller, ErrorCode.request_timed_out})


@dataclass(slots=True)
class GroupReconciler:
    platform: Platform
    cache: WatchCache
    _backoffs: dict[Key, RequeueBackoff] = field(default_factory=dict)

    async def reconcile(self, key: Key) -> float | None:
        bodies = [it for it in self.cache.groups.get(key, {}).values() if not is_terminating(it)]
        resources = [StoredResource.parse(Group, it) for it in bodies]
        if not resources:
            self._backoffs.pop(key, None)
            return None
        try:
            results = await self._reconcile_all(key, resources)
        except Blocked as blocked:
            results = {it.name: it.unless_invalid(blocked.readiness) for it in resources}
        await for_each(resources, lambda it: self._report(it, results[it.name]))
        waiting = frozenset((name, it) for name, it in results.items() if isinstance(it, Reconciling))
        backoff = self._backoffs.setdefault(key, RequeueBackoff())
        return backoff.delay_s(waiting, asyncio.get_running_loop().time(), RETRY_S if waiting else RESYNC_S, RESYNC_S)

    async def report_error(self, key: Key, error: Exception) -> None:
        for body in self.cache.groups.get(key, {}).values():
            resource = StoredResource.parse(Group, body)
            await self._report(resource, resource.unless_invalid(error_readiness(error)))

    async def _reconcile_all(self, key: Key, resources: Sequence[GroupResource]) -> dict[str, Readiness]:
        """The readiness of each resource, by its name. Raises Blocked, KafkaError."""
        cluster = await self.platform.find_cluster(key)
        if cluster is None or is_terminating(cluster):
            raise Blocked(Reconciling("ClusterNotFound", f"Cluster {key.name} does not exist or is being deleted"))
        owners = group_owners(resources)
        results: dict[str, Readiness] = {
            it.name: obstacle for it in resources if (obstacle := find_obstacle(it, owners)) is not None
        }
        applicable = [(it, it.parsed) for it in resources if it.name not in results and it.parsed is not None]
        async with connect_to_cluster(self.platform, Cluster.parse_stored(cluster), CONNECT_TIMEOUT_S) as client:
            observed = await configs.describe_group_overrides(client, [group.group_name for _, group in applicable])

            async def apply(resource: GroupResource, group: Group) -> None:
                results[resource.name] = await self._apply(client, resource, group, observed)

            await for_each(applicable, lambda it: apply(*it))
        return results

    async def _apply(
        self, client: KafkaClient, resource: GroupResource, group: Group, observed: Mapping[str, Mapping[str, str]]
    ) -> Readiness:
        """Brings the settings of one group to its spec."""
        name = group.group_name
        try:
            change = plan_group_change(group, observed.get(name, {}))
            if change is not None:
                await configs.alter_group_config(client, name, change.to_set, change.to_unset)
                await self.platform.record_event(resource.body, change.event, str(change))
                after = await configs.describe_group_overrides(client, [name])
                change = plan_group_change(group, after.get(name, {}))
        except KafkaError as error:
            return rejected_readiness(error, TRANSIENT_ERRORS)
        return evaluate_group(group, change)

    async def _report(self, resource: GroupResource, readiness: Readiness) -> None:
        body = resource.body
        fields: dict[str, Json] = {"groupName": resource.parsed.group_name if resource.parsed else None}
        await report_status(self.platform, body, readiness, fields)
