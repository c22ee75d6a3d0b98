"""Reconciles Users, all of one Cluster together: a few requests describe and change all of them."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ottla_broker.wire.errors import ErrorCode
from ottla_operator.formatting import format_list
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.conditions import READY, Readiness, Ready, Reconciling, Stalled, find_condition
from ottla_operator.plan.listener_security import has_access_rules
from ottla_operator.plan.user_records import (
    UserRecord,
    plan_revocations,
    record_of,
    renamed_records,
    resources_to_look_up,
)
from ottla_operator.plan.user_rules import has_rules, policy_names, unusable_policies
from ottla_operator.plan.users import (
    UserChanges,
    UserResource,
    describe_changes,
    desired_user,
    find_obstacle,
    plan_user_changes,
    plan_user_removal,
    previous_credential_end,
    secret_owners,
    user_owners,
)
from ottla_operator.reconcile.access_policies import Policies, read_policies
from ottla_operator.reconcile.concurrency import for_each
from ottla_operator.reconcile.connection import connect_to_cluster
from ottla_operator.reconcile.platform import Blocked, Platform
from ottla_operator.reconcile.status_report import report_status
from ottla_operator.reconcile.user_changes import ObservedUsers, UserChange, apply_user_changes, observe_users
from ottla_operator.reconcile.user_secrets import ClientCredentials, UserSecrets
from ottla_operator.reconcile.validation import error_readiness, rejected_readiness
from ottla_operator.reconcile.watch_cache import Key, WatchCache, is_terminating
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import format_time, parse_duration_ms, parse_time
from ottla_operator.resources.model import Json
from ottla_operator.resources.user import UserCertificateStatus

RESYNC_S: Final = 20.0
WAIT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 30.0
MAX_UNUSED_RESOURCES: Final = 1000
TRANSIENT_ERRORS: Final = frozenset(
    {
        ErrorCode.not_controller,
        ErrorCode.request_timed_out,
        ErrorCode.broker_not_available,
        ErrorCode.security_disabled,  # brokers are being restarted with access rules
    }
)


@dataclass(frozen=True, slots=True)
class StatusFields:
    """`previous_until`: until when the password of the previous type remains valid; None without
    one.
    """

    secret: str
    previous_until: datetime.datetime | None
    certificate: UserCertificateStatus | None = None


@dataclass(slots=True)
class UserReconciler:
    platform: Platform
    cache: WatchCache
    secrets: UserSecrets = field(init=False)
    _resources: dict[str, tuple[object, UserResource]] = field(default_factory=dict)
    """Validated resources by uid, with their generation and that of their Cluster: a spec is
    validated once."""
    _applied_policies: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """The policies that each User named at its last changes, by uid."""

    def __post_init__(self) -> None:
        self.secrets = UserSecrets(self.platform)

    async def reconcile(self, key: Key) -> float | None:
        bodies = list(self.cache.users.get(key, {}).values())
        cluster = await self.platform.find_cluster(key)
        resources = [self._resource(it, cluster) for it in bodies if not is_terminating(it)]
        terminating = [str(it["metadata"]["uid"]) for it in bodies if is_terminating(it)]
        self._forget_unused(len(bodies))
        if cluster is None or is_terminating(cluster):
            message = f"Cluster {key.name} does not exist or is being deleted"
            await self._report_all(resources, Reconciling("ClusterNotFound", message))
            return WAIT_S if resources else None
        records = await self.platform.read_user_records(key)
        if not resources and not records:
            return None
        try:
            async with connect_to_cluster(self.platform, Cluster.parse_stored(cluster), CONNECT_TIMEOUT_S) as client:
                return await self._reconcile(client, key, cluster, resources, terminating, records)
        except Blocked as blocked:
            await self._report_all(resources, blocked.readiness)
            return WAIT_S

    async def report_error(self, key: Key, error: Exception) -> None:
        bodies, cluster = self.cache.users.get(key, {}).values(), self.cache.clusters.get(key)
        await self._report_all([self._resource(it, cluster) for it in bodies], error_readiness(error))

    async def _reconcile(
        self,
        client: KafkaClient,
        key: Key,
        cluster: Json,
        resources: Sequence[UserResource],
        terminating: Sequence[str],
        records: Mapping[str, UserRecord],
    ) -> float:
        """Revokes users whose resources no longer exist, applies the specs of the others and
        reports.

        Returns the requeue delay in seconds.
        """
        owners = user_owners(resources)
        revoked = await self._find_revoked(key, resources, terminating, records)
        recorded = {it.uid: record for it in owners.values() if (record := record_of(it)) is not None}
        pending = {uid: it for uid, it in records.items() if uid not in recorded}
        pending |= renamed_records(records, recorded)
        if {**pending, **recorded} != records:
            await self.platform.write_user_records(cluster, {**pending, **recorded})
        observed = await observe_users(client)
        await self._revoke(client, cluster, revoked, owners, observed)
        if any(uid in revoked for uid in pending):
            pending = {uid: it for uid, it in pending.items() if uid not in revoked}
            await self.platform.write_user_records(cluster, {**pending, **recorded})
        await self._apply_specs(client, Cluster.parse_stored(cluster), cluster, resources, owners, observed)
        return RESYNC_S

    async def _find_revoked(
        self,
        key: Key,
        resources: Sequence[UserResource],
        terminating: Sequence[str],
        records: Mapping[str, UserRecord],
    ) -> dict[str, UserRecord]:
        names = sorted(resources_to_look_up(records, resources, terminating))
        uids = {name: await self.platform.find_user_uid(key.namespace, name) for name in names}
        return plan_revocations(records, resources, terminating, uids)

    async def _revoke(
        self,
        client: KafkaClient,
        cluster: Json,
        revoked: Mapping[str, UserRecord],
        owners: Mapping[str, UserResource],
        observed: ObservedUsers,
    ) -> None:
        """Raises KafkaError if brokers refuse a removal, which the next reconcile repeats."""
        revoked_users = {it.user: it for it in revoked.values() if it.user not in owners}
        changes = [UserChange(name, plan_user_removal(observed.of(name))) for name in sorted(revoked_users)]
        for error in (await apply_user_changes(client, changes)).values():
            raise error
        in_use = {it.parsed.secret_name for it in owners.values() if it.parsed is not None}
        for record in revoked_users.values():
            if record.secret not in in_use:
                await self.platform.forget_user(cluster, record)
        if revoked_users:
            message = f"revoked, because no User has these names any more: {format_list(sorted(revoked_users))}"
            await self.platform.record_event(cluster, "UserRevoked", message)

    async def _apply_specs(
        self,
        client: KafkaClient,
        parsed: Cluster,
        cluster: Json,
        resources: Sequence[UserResource],
        owners: Mapping[str, UserResource],
        observed: ObservedUsers,
    ) -> None:
        owners_of_secrets = secret_owners(resources)

        async def prepare(resource: UserResource) -> ClientCredentials | Readiness:
            if (obstacle := find_obstacle(resource, owners, owners_of_secrets)) is not None:
                return obstacle
            try:
                return await self.secrets.prepare(resource, parsed, cluster)
            except Blocked as blocked:
                return blocked.readiness

        prepared = dict(zip([it.uid for it in resources], await for_each(resources, prepare), strict=True))
        policies = await read_policies(self.platform, parsed.metadata.namespace, resources)
        planned = {
            it.uid: _plan(it, credentials, observed, policies)
            for it in resources
            if isinstance(credentials := prepared[it.uid], ClientCredentials)
        }
        errors = await apply_user_changes(client, planned.values())

        async def finish(resource: UserResource) -> None:
            credentials = prepared[resource.uid]
            if not isinstance(credentials, ClientCredentials):
                await self._report(resource, credentials)
                return
            change = planned[resource.uid]
            if (error := errors.get(change.user)) is not None:
                await self._report(resource, rejected_readiness(error, TRANSIENT_ERRORS))
                return
            try:
                await self.secrets.write(resource, credentials)
            except Blocked as blocked:
                await self._report(resource, blocked.readiness)
                return
            await self._record_changes(
                resource, change.changes, policies, is_password_known=credentials.is_password_set
            )
            if credentials.issue_reason:
                message = f"client certificate issued, valid until {credentials.expiry}: {credentials.issue_reason}"
                await self.platform.record_event(resource.body, "CertificateIssued", message)
            status = StatusFields(credentials.secret_name, change.previous_until, credentials.certificate)
            await self._report(resource, _evaluate(resource, parsed, observed, policies), status)

        await for_each(resources, finish)

    async def _record_changes(
        self, resource: UserResource, changes: UserChanges, policies: Policies, *, is_password_known: bool
    ) -> None:
        """Records an event for the changes. Changes to a user that was Ready for the same spec are
        reported as drift, unless the source of the password or a policy may have changed, or the
        previous password has expired. After a start of the operator, policies may have changed.
        """
        assert resource.parsed is not None
        named = tuple(policies.get(it) for it in policy_names(resource.parsed))
        are_policies_known = self._applied_policies.get(resource.uid, ()) == named
        self._applied_policies[resource.uid] = named
        if not changes:
            return
        status = resource.body.get("status") or {}
        is_same_spec = status.get("observedGeneration") == resource.body["metadata"]["generation"]
        is_expected = not is_password_known or not are_policies_known or "previousCredentialUntil" in status
        message = describe_changes(changes)
        if is_same_spec and not is_expected and find_condition(resource.body, READY).get("status") == "True":
            message = f"changed by others on the brokers, and set back: {message}"
            await self.platform.record_event(resource.body, "DriftCorrected", message, is_warning=True)
        else:
            await self.platform.record_event(resource.body, "UserChanged", message)

    def _forget_unused(self, used_count: int) -> None:
        if len(self._resources) > 2 * used_count + MAX_UNUSED_RESOURCES:
            self._resources.clear()
            self._applied_policies.clear()
            self.secrets.forget()

    def _resource(self, body: Json, cluster: Json | None) -> UserResource:
        """`cluster`: the Cluster, whose spec decides by which name brokers know users with TLS."""
        uid = str(body["metadata"]["uid"])
        version = body["metadata"]["generation"], cluster and _version(cluster)
        found = self._resources.get(uid)
        if found is None or found[0] != version:
            found = self._resources[uid] = version, UserResource.of_cluster(_parse_cluster(cluster), body)
        found[1].body = body
        return found[1]

    async def _report_all(self, resources: Sequence[UserResource], readiness: Readiness) -> None:
        async def report_one(resource: UserResource) -> None:
            await self._report(resource, resource.unless_invalid(readiness))

        await for_each(resources, report_one)

    async def _report(
        self, resource: UserResource, readiness: Readiness, new_fields: StatusFields | None = None
    ) -> None:
        """Writes the status. Without `new_fields` the fields stay as they are."""
        previous = resource.body.get("status") or {}
        fields: dict[str, Json] = {
            "userName": resource.user_name if resource.parsed else previous.get("userName"),
            "secret": previous.get("secret") if new_fields is None else new_fields.secret or None,
            "previousCredentialUntil": previous.get("previousCredentialUntil"),
            "certificate": previous.get("certificate"),
        }
        if new_fields is not None:
            until = new_fields.previous_until
            fields["previousCredentialUntil"] = until and format_time(until.timestamp())
            fields["certificate"] = new_fields.certificate and new_fields.certificate.to_json()
        await report_status(self.platform, resource.body, readiness, fields)


def _parse_cluster(cluster: Json | None) -> Cluster | None:
    """None if there is none, or its spec has another shape. Rules are not evaluated: users keep
    their names on the brokers while a person corrects the Cluster.
    """
    try:
        return None if cluster is None else Cluster.parse_stored(cluster)
    except msgspec.ValidationError:
        return None


def _version(cluster: Json) -> tuple[object, ...]:
    return cluster["metadata"]["uid"], cluster["metadata"].get("generation")


def _plan(
    resource: UserResource, credentials: ClientCredentials, observed: ObservedUsers, policies: Policies
) -> UserChange:
    """Plans the changes of a user. Leaves out rules and quotas that the brokers do not support:
    they would refuse the other changes with them.
    """
    assert resource.parsed is not None
    desired = desired_user(resource.parsed, resource.user_name, policies, is_password_set=credentials.is_password_set)
    changes = plan_user_changes(desired, observed.of(desired.name))
    overlap = resource.parsed.spec.authentication.overlap
    known_end = (resource.body.get("status") or {}).get("previousCredentialUntil")
    previous_until = previous_credential_end(
        changes,
        parse_duration_ms(overlap) if overlap else 0,
        parse_time(known_end) if known_end else None,
        datetime.datetime.now(datetime.UTC),
    )
    return UserChange(
        desired.name,
        UserChanges(
            changes.set_password,
            () if previous_until else changes.remove_credentials,
            changes.add_acls if observed.has_acls else (),
            changes.remove_acls,
            changes.quotas if observed.has_quotas else {},
        ),
        credentials.password,
        previous_until,
    )


def _evaluate(resource: UserResource, cluster: Cluster, observed: ObservedUsers, policies: Policies) -> Readiness:
    """The readiness of a user after its changes were applied."""
    assert resource.parsed is not None
    spec, name = resource.parsed.spec, resource.user_name
    if has_rules(resource.parsed) and not has_access_rules(cluster):
        message = (
            f"access rules have no effect: Cluster {cluster.name} allows everything; set its authorization.type to ACL"
        )
        return Stalled("AuthorizationDisabled", message)
    if has_rules(resource.parsed) and not observed.has_acls:
        return Reconciling("WaitingForAuthorization", "waiting for brokers to be restarted with access rules")
    if unusable := unusable_policies(resource.parsed, policies):
        message = "; ".join(f"AccessPolicy {name} {why}" for name, why in unusable.items())
        return Stalled("AccessPolicyUnusable", f"spec.aclsFrom: {message}; nothing is allowed by it")
    if spec.quotas and not observed.has_quotas:
        return Stalled("RejectedByBrokers", "spec.quotas: the brokers do not support quotas")
    type_ = spec.authentication.type
    how = "has a credential that others manage" if type_ == "External" else f"logs in by {type_}"
    return Ready(f"user {name} {how}.")
