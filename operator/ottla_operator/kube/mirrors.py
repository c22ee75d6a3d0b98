"""One look at a Mirror: what the brokers of its target were told and what they should be, how its copies are, and what is said of that.

The brokers do the copying, and go on with it whoever looks or does not. When a Mirror is deleted they go on as they were set: its copies are somebody's data, and to
open or to delete them is for people to say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.brokers import mirrors
from ottla_operator.brokers.link import Link, Unreachable
from ottla_operator.kube.api import Api
from ottla_operator.kube.clusters import cluster_of
from ottla_operator.kube.known import Key
from ottla_operator.kube.pipeline_brokers import brokers_of
from ottla_operator.kube.telling import Telling
from ottla_operator.plan import mirror as plan
from ottla_operator.plan.conditions import Judged, Stuck, Verdict, Working
from ottla_operator.plan.mirror import PartitionSeen
from ottla_operator.plan.pipeline.whole import bootstrap
from ottla_operator.resources.check import problems
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json

RESYNC_S: Final = 10.0
AGAIN_S: Final = 1.0
WAITING_S: Final = 5.0
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
    """The Cluster that is the source is not there."""


@dataclass(slots=True)
class Mirrors:
    """`body`: the Mirror as it was last seen, None when it is gone; `cluster`: a Cluster's."""

    api: Api
    telling: Telling
    body: Callable[[Key], Json | None]
    cluster: Callable[[Key], Json | None]
    _checked: dict[tuple[str, int], str] = field(default_factory=dict)
    """By uid and generation: why the spec cannot be fulfilled."""

    async def look(self, key: Key) -> float | None:
        body = self.body(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return None
        if why := self._wrong(body):
            return await self._tell(body, Stuck("InvalidSpec", why))
        mirror = mirror_of(body)
        name = mirror.spec.target.cluster_ref.name
        target = self.cluster(Key(key.namespace, name))
        if target is None:
            return await self._tell(body, Working("NoCluster", f"there is no Cluster {name} in this namespace"))
        try:
            wanted = plan.settings(mirror, self._source(key, mirror))
        except NoSource as error:
            return await self._tell(body, Working("NoSource", str(error)))
        async with brokers_of(self.api, cluster_of(target)) as brokers:
            if brokers.link is None:
                return await self._tell(body, Working("ClusterNotReady", brokers.why))
            try:
                seen = await self._bring(brokers.link, body, mirror.name, wanted)
            except Unreachable as error:
                return await self._tell(body, Working("Unreachable", f"the brokers cannot be asked: {error}"))
            except KafkaError as error:
                passing = error.code in PASSING
                judged = Working("TryingAgain", str(error)) if passing else Stuck("Refused", str(error))
                return await self._tell(body, judged)
        return await self._tell(body, plan.verdict(wanted, seen), seen, plan.status(wanted, seen))

    async def failed(self, key: Key, error: Exception) -> None:
        if (body := self.body(key)) is not None:
            await self._tell(body, Working("TryingAgain", str(error)))

    async def _bring(self, link: Link, body: Json, name: str, wanted: dict[str, str]) -> list[PartitionSeen]:
        """Sets what differs, and looks how the copies are."""
        if changes := plan.changes(wanted, await mirrors.own_settings(link, name)):
            await mirrors.configure(link, name, changes)
            said = ", ".join(f"{key}={value}" if value is not None else f"no {key}" for key, value in changes.items())
            await self.telling.event(body, "Configured", f"told the brokers: {said}")
        return await mirrors.copies(link, name)

    def _source(self, key: Key, mirror: Mirror) -> str:
        """Addresses by which the target's brokers reach the source's. NoSource."""
        source = mirror.spec.source
        if source.cluster_ref is None:
            assert source.bootstrap is not None  # the schema wants one of them
            return source.bootstrap
        found = self.cluster(Key(key.namespace, source.cluster_ref.name))
        if found is None:
            raise NoSource(f"there is no Cluster {source.cluster_ref.name} in this namespace, which is the source")
        return bootstrap(cluster_of(found))

    def _wrong(self, body: Json) -> str:
        """Why the spec cannot be fulfilled; looked at once for each change of it."""
        now = (body["metadata"]["uid"], body["metadata"]["generation"])
        if now not in self._checked:
            metadata = {"name": body["metadata"]["name"]}
            found = problems({**{key: body[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata})
            wrong = [str(it) for it in found] or [f"spec.{it.field} {it.why}" for it in plan.unserved(mirror_of(body))]
            self._checked = {key: why for key, why in self._checked.items() if key[0] != now[0]}
            self._checked[now] = "; ".join(wrong)
        return self._checked[now]

    async def _tell(
        self, body: Json, judged: Verdict, seen: Sequence[PartitionSeen] = (), more: dict[str, Json] | None = None
    ) -> float:
        """What was known of the copies stays in the status while nobody can be asked."""
        before = body.get("status") or {}
        known = (
            {key: before.get(key) for key in ("role", "topics", "lagRecords", "lagSeconds", "lagBytes")}
            if more is None
            else more
        )
        was: Json = next((it for it in before.get("conditions") or [] if it["type"] == "Stalled"), {})
        aspects = plan.aspects(seen) if more is not None else []
        await self.telling.status(body, Judged(judged, body["metadata"]["generation"], aspects), known)
        if isinstance(judged, Stuck) and was.get("message") != judged.message:
            await self.telling.event(body, judged.reason, judged.message, warning=True)
        if isinstance(judged, Working):
            return (
                WAITING_S if judged.reason in ("NoCluster", "NoSource", "ClusterNotReady", "Unreachable") else AGAIN_S
            )
        return RESYNC_S


def mirror_of(body: Json) -> Mirror:
    return Mirror.model_validate({key: body[key] for key in ("apiVersion", "kind", "metadata", "spec")})
