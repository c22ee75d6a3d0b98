"""Reads the AccessPolicies that Users name, and writes their status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla_operator.formatting import format_count
from ottla_operator.plan.conditions import Conditions, Readiness, Ready, Stalled
from ottla_operator.plan.user_rules import policy_names
from ottla_operator.plan.users import UserResource
from ottla_operator.reconcile.platform import Platform
from ottla_operator.reconcile.validation import error_readiness
from ottla_operator.reconcile.watch_cache import Key, WatchCache, is_terminating
from ottla_operator.resources.access_policy import AccessPolicy
from ottla_operator.resources.model import Json
from ottla_operator.resources.validation import find_spec_problems

Policies: TypeAlias = Mapping[str, AccessPolicy | None]
"""Name → policy; None if it does not exist, is being deleted or is invalid."""


async def read_policies(platform: Platform, namespace: str, users: Iterable[UserResource]) -> Policies:
    """The policies that these users name."""
    names = sorted({name for it in users if it.parsed is not None for name in policy_names(it.parsed)})
    return {name: _parse(await platform.find_access_policy(Key(namespace, name))) for name in names}


def _parse(body: Json | None) -> AccessPolicy | None:
    if body is None or is_terminating(body) or find_spec_problems(body):
        return None
    return AccessPolicy.parse_stored(body)


def count_users(cache: WatchCache, policy: Key) -> int:
    """Number of Users in the policy's namespace that name it."""
    return sum(
        policy.name in cached_policy_names(it)
        for cluster, users in cache.users.items()
        if cluster.namespace == policy.namespace
        for it in users.values()
    )


def cached_policy_names(user: Json) -> set[str]:
    """Names of the policies in a User as it is cached, which may be invalid."""
    found = (user["spec"] or {}).get("aclsFrom")
    return {str(it.get("name")) for it in found if isinstance(it, dict)} if isinstance(found, list) else set()


@dataclass(slots=True)
class AccessPolicyReconciler:
    """Writes the status of AccessPolicies. The reconciler of Users applies their rules."""

    platform: Platform
    cache: WatchCache

    async def reconcile(self, key: Key) -> float | None:
        if (body := self.cache.policies.get(key)) is None or is_terminating(body):
            return None
        user_count = count_users(self.cache, key)
        problems = find_spec_problems(body)
        readiness = (
            Stalled("InvalidSpec", problems) if problems else Ready(f"named by {format_count(user_count, 'User')}.")
        )
        await self._report(body, readiness, user_count)
        return None

    async def report_error(self, key: Key, error: Exception) -> None:
        if (body := self.cache.policies.get(key)) is not None:
            await self._report(body, error_readiness(error), count_users(self.cache, key))

    async def _report(self, body: Json, readiness: Readiness, users: int) -> None:
        await self.platform.write_status(body, Conditions(readiness, body["metadata"]["generation"]), {"users": users})
