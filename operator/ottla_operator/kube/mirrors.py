"""One look at a Mirror: what the brokers of its target were told and what they should be, how its copies are, and what is said of that.

The brokers do the copying, and go on with it whoever looks or does not. When a Mirror is deleted they go on as they were set: its copies are somebody's data, and to
open or to delete them is for people to say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import mirrors
from ottla_operator.kafka.client import Unreachable
from ottla_operator.kube.api import Api
from ottla_operator.kube.checked import Checked
from ottla_operator.kube.cluster_brokers import brokers_of
from ottla_operator.kube.clusters import cluster_of
from ottla_operator.kube.known import Key
from ottla_operator.kube.patience import Patience
from ottla_operator.kube.secrets import secrets_in
from ottla_operator.kube.telling import Telling
from ottla_operator.plan import mirror as plan
from ottla_operator.plan import source_credentials
from ottla_operator.plan.conditions import Conditions, Readiness, Reconciling, Stalled
from ottla_operator.plan.mirror import ObservedMirrorPartition
from ottla_operator.plan.pipeline.desired import plaintext_bootstrap
from ottla_operator.plan.source_credentials import SecretUnusable
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json

RESYNC_S: Final = 10.0
AGAIN_S: Final = 1.0
WAITING_S: Final = 5.0
OTHERS_FIRST: Final = ("NoCluster", "NoSource", "NoCredentials", "ClusterNotReady", "Unreachable")
PASSING: Final = frozenset(
    {
        ErrorCode.not_controller,
        ErrorCode.broker_not_available,
        ErrorCode.leader_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
    }
)


class NoSource(Exception):
    """The Cluster that is the source is not there, or cannot be reached as is wished."""


@dataclass(slots=True)
class Mirrors:
    """`body`: the Mirror as it was last seen, None when it is gone; `cluster`: a Cluster's."""

    api: Api
    telling: Telling
    body: Callable[[Key], Json | None]
    cluster: Callable[[Key], Awaitable[Json | None]]
    _patiences: dict[Key, Patience] = field(default_factory=dict)
    _checked: Checked = field(default_factory=lambda: Checked(lambda body: plan.find_unsupported(mirror_of(body))))

    async def look(self, key: Key) -> float | None:
        body = self.body(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._checked.forget(key)
            self._patiences.pop(key, None)
            return None
        if why := self._checked.wrong(key, body):
            return await self._tell(body, Stalled("InvalidSpec", why))
        mirror = mirror_of(body)
        name = mirror.spec.target.cluster_ref.name
        target = await self.cluster(Key(key.namespace, name))
        if target is None:
            return await self._tell(body, Reconciling("NoCluster", f"there is no Cluster {name} in this namespace"))
        try:
            wanted = plan.mirror_settings(mirror, await self._source(key, mirror))
            secrets = await secrets_in(self.api, key.namespace, source_credentials.secret_names(mirror))
            wanted |= source_credentials.credential_settings(mirror, secrets)
        except NoSource as error:
            return await self._tell(body, Reconciling("NoSource", str(error)))
        except SecretUnusable as error:
            return await self._tell(body, Reconciling("NoCredentials", str(error)))
        async with brokers_of(self.api, cluster_of(target)) as brokers:
            if brokers.link is None:
                return await self._tell(body, Reconciling("ClusterNotReady", brokers.why))
            try:
                itself = await mirrors.describe_mirror(brokers.link, mirror.name)
                role = (body.get("status") or {}).get("role")
                if (unasked := plan.find_unrequested_failover(wanted, itself.settings, role)) is not None:
                    return await self._tell(body, unasked)
                if changes := plan.plan_mirror_changes(wanted, itself.settings):
                    await mirrors.alter_mirror(brokers.link, mirror.name, changes)
                    said = source_credentials.redacted_changes(changes)
                    await self.telling.event(body, "Configured", f"told the brokers: {said}")
                    itself = await mirrors.describe_mirror(brokers.link, mirror.name)
                seen = await mirrors.describe_mirrored_partitions(brokers.link, mirror.name)
            except Unreachable as error:
                return await self._tell(body, Reconciling("Unreachable", f"the brokers cannot be asked: {error}"))
            except KafkaError as error:
                passing = error.code in PASSING
                judged = Reconciling("TryingAgain", str(error)) if passing else Stalled("Refused", str(error))
                return await self._tell(body, judged)
        found = plan.evaluate_mirror(wanted, seen, itself)
        return await self._tell(body, found, seen, plan.mirror_status_fields(wanted, seen, itself))

    async def failed(self, key: Key, error: Exception) -> None:
        if (body := self.body(key)) is not None:
            await self._tell(body, Reconciling("TryingAgain", str(error)))

    async def _source(self, key: Key, mirror: Mirror) -> str:
        """Addresses by which the target's brokers reach the source's. NoSource."""
        source = mirror.spec.source
        if source.cluster_ref is None:
            assert source.bootstrap is not None  # the schema wants one of them
            return source.bootstrap
        found = await self.cluster(Key(key.namespace, source.cluster_ref.name))
        if found is None:
            raise NoSource(f"there is no Cluster {source.cluster_ref.name} in this namespace, which is the source")
        tls = source.tls is not None
        if not (at := plaintext_bootstrap(cluster_of(found), tls=tls)):
            how = "with TLS, as source.tls asks" if tls else "without TLS; source.tls says that the mirror speaks it"
            raise NoSource(f"Cluster {source.cluster_ref.name}, which is the source, has no listener {how}")
        return at

    async def _tell(
        self,
        body: Json,
        judged: Readiness,
        seen: Sequence[ObservedMirrorPartition] = (),
        more: dict[str, Json] | None = None,
    ) -> float:
        """What was known of the copies stays in the status while nobody can be asked."""
        before = body.get("status") or {}
        known = (
            {
                key: before.get(key)
                for key in ("role", "topics", "lagRecords", "lagSeconds", "lagBytes", "silentSeconds")
            }
            if more is None
            else more
        )
        was: Json = next((it for it in before.get("conditions") or [] if it["type"] == "Stalled"), {})
        aspects = plan.mirror_conditions(seen) if more is not None else []
        await self.telling.status(body, Conditions(judged, body["metadata"]["generation"], aspects), known)
        if isinstance(judged, Stalled) and was.get("message") != judged.message:
            await self.telling.event(body, judged.reason, judged.message, warning=True)
        if not isinstance(judged, Reconciling):
            return RESYNC_S
        soon_s = WAITING_S if judged.reason in OTHERS_FIRST else AGAIN_S
        key = Key(body["metadata"]["namespace"], body["metadata"]["name"])
        patience = self._patiences.setdefault(key, Patience())
        return patience.pause(judged, asyncio.get_running_loop().time(), soon_s, RESYNC_S)


def mirror_of(body: Json) -> Mirror:
    return Mirror.parse({key: body[key] for key in ("apiVersion", "kind", "metadata", "spec")})
