"""Reconciles Schemas, all of one Cluster together, because they may refer to each other.

A resource with deletionPolicy Delete gets a finalizer, so that its subject is deleted even if no
operator runs when the resource is deleted. Others have none.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kafka.client import Unreachable
from ottla_operator.kafka.schema_registry import RegistryRefusal, SchemaRegistryClient
from ottla_operator.plan.backoff import RequeueBackoff
from ottla_operator.plan.conditions import Readiness, Reconciling, Stalled
from ottla_operator.plan.schema_readers import SubjectReader, find_readers
from ottla_operator.plan.schemas import (
    FINALIZER,
    ObservedSubject,
    RegisteredVersion,
    SchemaResource,
    describe_change,
    desired_schema,
    evaluate_refusal,
    evaluate_schema,
    find_obstacle,
    order_by_references,
    plan_schema_changes,
    subject_owners,
)
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.reconcile import schema_changes
from ottla_operator.reconcile.connection import access_ready_brokers
from ottla_operator.reconcile.platform import Blocked, Platform
from ottla_operator.reconcile.status_report import report_status
from ottla_operator.reconcile.validation import error_readiness
from ottla_operator.reconcile.watch_cache import Key, WatchCache, is_terminating
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from ottla_operator.resources.schema_resource import Schema

RESYNC_S: Final = 30.0
RETRY_S: Final = 1.0
WAIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class SchemaResult:
    """A Schema after its reconcile. `observed`: None if nothing is known of its subject."""

    resource: SchemaResource
    readiness: Readiness
    observed: ObservedSubject | None = None


@dataclass(slots=True)
class SchemaReconciler:
    platform: Platform
    cache: WatchCache
    _backoffs: dict[Key, RequeueBackoff] = field(default_factory=dict)

    async def reconcile(self, key: Key) -> float | None:
        resources = [StoredResource.parse(Schema, it) for it in self.cache.schemas.get(key, {}).values()]
        if not resources:
            self._backoffs.pop(key, None)
            return None
        live = [it for it in resources if not is_terminating(it.body)]
        terminating = [it for it in resources if is_terminating(it.body) and _has_finalizer(it)]
        try:
            registry = await self._connect(key)
            if registry is None:
                for resource in terminating:  # the registry is deleted with the Cluster
                    await self._set_finalizer(resource, is_needed=False)
                raise Blocked(Reconciling("ClusterNotFound", f"Cluster {key.name} does not exist or is being deleted"))
            results = await self._reconcile_all(registry, key, live, terminating)
        except Blocked as blocked:
            results = [SchemaResult(it, it.unless_invalid(blocked.readiness)) for it in live]
        except Unreachable as error:
            blocked_by = Reconciling("RegistryUnreachable", str(error))
            results = [SchemaResult(it, it.unless_invalid(blocked_by)) for it in live]
        return await self._report_all(key, results, is_waiting=bool(terminating))

    async def report_error(self, key: Key, error: Exception) -> None:
        for body in self.cache.schemas.get(key, {}).values():
            resource = StoredResource.parse(Schema, body)
            if not is_terminating(body):
                await self._report(SchemaResult(resource, resource.unless_invalid(error_readiness(error))))

    async def _connect(self, key: Key) -> SchemaRegistryClient | None:
        """None if the Cluster does not exist or is being deleted. Raises Blocked."""
        found = await self.platform.find_cluster(key)
        if found is None or is_terminating(found):
            return None
        cluster = Cluster.parse_stored(found)
        brokers = await access_ready_brokers(self.platform, cluster)
        return schema_changes.connect_to_registry(await self.platform.registry_access(cluster, brokers))

    async def _reconcile_all(
        self,
        registry: SchemaRegistryClient,
        key: Key,
        live: Sequence[SchemaResource],
        terminating: Sequence[SchemaResource],
    ) -> list[SchemaResult]:
        """Raises Unreachable."""
        owners = subject_owners(live)
        await self._delete_subjects(registry, terminating, owners)
        ordered, cyclic = order_by_references(live)
        registered: dict[str, RegisteredVersion] = {}
        results = []
        for resource in ordered:
            result = await self._reconcile_one(registry, key, resource, owners, cyclic, registered)
            if result.observed is not None and result.observed.version is not None and resource.parsed is not None:
                registered[resource.name] = RegisteredVersion(resource.parsed.subject, result.observed.version)
            results.append(result)
        return results

    async def _reconcile_one(
        self,
        registry: SchemaRegistryClient,
        key: Key,
        resource: SchemaResource,
        owners: Mapping[str, SchemaResource],
        cyclic: Collection[str],
        registered: Mapping[str, RegisteredVersion],
    ) -> SchemaResult:
        """Raises Unreachable."""
        await self._set_finalizer(resource, is_needed=resource.has_delete_policy)
        if (obstacle := find_obstacle(resource, owners, cyclic, registered)) is not None:
            return SchemaResult(resource, obstacle)
        schema = resource.parsed
        assert schema is not None
        try:
            return await self._apply(registry, key, resource, schema, registered)
        except Blocked as blocked:
            return SchemaResult(resource, blocked.readiness)
        except RegistryRefusal as error:
            readers = self._find_readers(key, schema.subject)
            return SchemaResult(resource, evaluate_refusal(error.code, str(error), schema.subject, readers))

    async def _apply(
        self,
        registry: SchemaRegistryClient,
        key: Key,
        resource: SchemaResource,
        schema: Schema,
        registered: Mapping[str, RegisteredVersion],
    ) -> SchemaResult:
        """Applies the spec of one Schema to its subject. Raises Blocked, RegistryRefusal,
        Unreachable.
        """
        desired = desired_schema(schema, await self._read_text(key, schema), registered)
        level = schema.spec.compatibility
        observed = await schema_changes.observe_subject(registry, desired)
        for change in plan_schema_changes(desired, level, observed):
            await schema_changes.apply_change(registry, change)
            observed = await schema_changes.observe_subject(registry, desired)
            message = describe_change(change, observed, self._find_readers(key, schema.subject))
            await self.platform.record_event(resource.body, change.event, message)
        remaining = plan_schema_changes(desired, level, observed)
        return SchemaResult(resource, evaluate_schema(schema.subject, observed, remaining), observed)

    async def _read_text(self, key: Key, schema: Schema) -> str:
        """Raises Blocked."""
        if schema.spec.schema is not None:
            return schema.spec.schema
        reference = schema.spec.schema_from.config_map_key_ref if schema.spec.schema_from is not None else None
        if reference is None:
            message = "spec.schemaFrom.file is only for `ottla up`: use schemaFrom.configMapKeyRef"
            raise Blocked(Stalled("InvalidSpec", message))
        found = await self.platform.read_config_map(key.namespace, reference.name)
        if (text := (found or {}).get(reference.key)) is None:
            problem = "does not exist" if found is None else f"has no key {reference.key}"
            message = f"spec.schemaFrom.configMapKeyRef: ConfigMap {reference.name} {problem}"
            raise Blocked(Reconciling("SchemaSourceNotFound", message))
        return text

    def _find_readers(self, key: Key, subject: str) -> list[SubjectReader]:
        pipelines = [it for at, it in self.cache.pipelines.items() if at.namespace == key.namespace]
        return find_readers(subject, key.name, pipelines)

    async def _delete_subjects(
        self,
        registry: SchemaRegistryClient,
        terminating: Sequence[SchemaResource],
        owners: Mapping[str, SchemaResource],
    ) -> None:
        """Deletes the subjects of resources that are being deleted, except those that another
        resource owns now. Subjects that other schemas refer to stay until these schemas are
        deleted.
        """
        for resource in terminating:
            subject = resource.parsed.subject if resource.parsed is not None and resource.has_delete_policy else None
            if subject is not None and subject not in owners:
                try:
                    await schema_changes.delete_subject(registry, subject)
                except RegistryRefusal as error:
                    message = f"cannot delete subject {subject}: {error}"
                    await self.platform.record_event(
                        resource.body, "RejectedByRegistry", message, is_warning=True, lasts=True
                    )
                    continue
                await self.platform.record_event(resource.body, "SubjectDeleted", f"subject {subject} soft-deleted")
            await self._set_finalizer(resource, is_needed=False)

    async def _set_finalizer(self, resource: SchemaResource, *, is_needed: bool) -> None:
        if is_needed == _has_finalizer(resource):
            return
        others = [it for it in resource.body["metadata"].get("finalizers", ()) if it != FINALIZER]
        await self.platform.write_finalizers(resource.body, [*others, *([FINALIZER] if is_needed else [])])

    async def _report_all(self, key: Key, results: Sequence[SchemaResult], *, is_waiting: bool) -> float:
        """Writes statuses. Returns the requeue delay in seconds."""
        for result in results:
            await self._report(result)
        waiting = frozenset((it.resource.name, it.readiness) for it in results if isinstance(it.readiness, Reconciling))
        shortest_s = RETRY_S if waiting else WAIT_S if is_waiting else RESYNC_S
        backoff = self._backoffs.setdefault(key, RequeueBackoff())
        return backoff.delay_s(waiting, asyncio.get_running_loop().time(), shortest_s, RESYNC_S)

    async def _report(self, result: SchemaResult) -> None:
        """Writes the status. Keeps the present fields about the subject if this reconcile has not
        observed it.
        """
        body, readiness = result.resource.body, result.readiness
        status = body.get("status") or {}
        fields: dict[str, Json] = {key: status.get(key) for key in ("subject", "id", "version", "compatibility")}
        if (observed := result.observed) is not None and result.resource.parsed is not None:
            fields = {"subject": result.resource.parsed.subject, "id": observed.id, "version": observed.version}
            fields["compatibility"] = observed.level
        await report_status(self.platform, body, readiness, fields)


def _has_finalizer(resource: SchemaResource) -> bool:
    return FINALIZER in resource.body["metadata"].get("finalizers", ())
