"""One look at all Topics of a Cluster: what the brokers have, what should be changed, and what is told of each.

They are looked at together: the brokers are asked once for all of them, and what differs is changed, many at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.brokers import reconcile
from ottla_operator.brokers.link import Link, Unreachable, connected
from ottla_operator.kube.api import Api
from ottla_operator.kube.cluster_brokers import ready_addresses
from ottla_operator.kube.clusters import cluster_of
from ottla_operator.kube.kinds import TOPIC
from ottla_operator.kube.known import Key
from ottla_operator.kube.ledger import Ledger
from ottla_operator.kube.telling import Telling
from ottla_operator.plan.conditions import Judged, Stuck, Verdict, Working
from ottla_operator.plan.topic_verdict import Wish, owners, verdict
from ottla_operator.plan.topics import Delete, Seen, changes
from ottla_operator.plan.topics import Stuck as CannotBe
from ottla_operator.resources.model import Json
from ottla_operator.resources.topic import Topic

RESYNC_S: Final = 10.0
AGAIN_S: Final = 1.0
WAITING_S: Final = 5.0
AT_ONCE: Final = 16
BROKERS_WITHIN_S: Final = 30.0


@dataclass(slots=True)
class Topics:
    """`bodies`: the Topics of a Cluster by name, as last seen. `cluster`: its body, None when there is none. `staying`: names of those that are gone and whose
    topics stay; what has been seen to is taken out."""

    api: Api
    telling: Telling
    bodies: Callable[[Key], Mapping[str, Json]]
    cluster: Callable[[Key], Awaitable[Json | None]]
    staying: Callable[[Key], set[str]]
    _wishes: dict[tuple[str, int], Wish] = field(default_factory=dict)
    """By uid and generation: a spec is parsed once."""

    async def look(self, key: Key) -> float | None:
        bodies = {name: it for name, it in self.bodies(key).items() if "deletionTimestamp" not in it["metadata"]}
        wishes = [self._wish(it) for it in bodies.values()]
        self._forget_old(wishes)
        body = await self.cluster(key)
        ledger = await self._ledger(key, wishes, body)
        if not wishes and not ledger.by_resource:
            return None
        if body is None or "deletionTimestamp" in body["metadata"]:
            await self._tell_all(wishes, Working("NoCluster", f"there is no Cluster {key.name} in this namespace"))
            return None if not wishes else WAITING_S
        at = await ready_addresses(self.api, cluster_of(body))
        if not at:
            await self._tell_all(wishes, Working("ClusterNotReady", f"no broker of Cluster {key.name} is ready"))
            return WAITING_S
        try:
            async with connected(",".join(at), BROKERS_WITHIN_S) as link:
                return await self._with_brokers(link, key, wishes, ledger, body)
        except Unreachable as error:
            await self._tell_all(wishes, Working("Unreachable", f"the brokers cannot be asked: {error}"))
            return WAITING_S

    async def _ledger(self, key: Key, wishes: Sequence[Wish], cluster: Json | None) -> Ledger:
        """Without those whose topics are to stay by now, whether or not brokers can be asked: who says so, and deletes the resource behind it, means it."""
        gone = set(self.staying(key))
        stay = gone | {it.topic.name for it in wishes if it.topic and it.topic.spec.deletion_policy != "Delete"}
        ledger = await Ledger.read(self.api, key)
        await ledger.write({name: it for name, it in ledger.by_resource.items() if name not in stay}, cluster)
        if cluster is not None:
            self.staying(key).difference_update(gone)
        return ledger

    async def failed(self, key: Key, error: Exception) -> None:
        await self._tell_all([self._wish(it) for it in self.bodies(key).values()], Working("TryingAgain", str(error)))

    async def _with_brokers(self, link: Link, key: Key, wishes: Sequence[Wish], ledger: Ledger, cluster: Json) -> float:
        good = owners(wishes)
        seen = await reconcile.observe(link, [it.topic for it in good.values() if it.topic])
        unseen = await self._delete_orphans(link, key, ledger, wishes)
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(wish: Wish) -> Verdict:
            if wish.topic is None or good.get(wish.topic.topic_name) is not wish:
                return await self._tell(wish, None, verdict(wish, None, (), good))
            async with limit:
                return await self._bring(link, wish, seen.get(wish.topic.topic_name), cluster["spec"]["replicas"])

        told = await asyncio.gather(*(one(it) for it in wishes))
        await ledger.write({**unseen, **_to_delete(good)}, cluster)
        return AGAIN_S if any(isinstance(it, Working) for it in told) else RESYNC_S

    async def _bring(self, link: Link, wish: Wish, seen: Seen | None, brokers: int) -> Verdict:
        """`brokers`: as many as the Cluster shall have."""
        assert wish.topic is not None
        todo = changes(wish.topic, seen)
        try:
            for change in todo:
                await reconcile.apply(link, change)
                if not isinstance(change, CannotBe):
                    await self.telling.event(wish.body, type(change).__name__, reconcile.spoken(change))
        except KafkaError as error:
            return await self._tell(wish, seen, _refused(error, wish.topic, brokers))
        if any(not isinstance(it, CannotBe) for it in todo):
            after = (await reconcile.observe(link, [wish.topic])).get(wish.topic.topic_name)
            return await self._tell(wish, after, verdict(wish, after, changes(wish.topic, after), {}))
        return await self._tell(wish, seen, verdict(wish, seen, todo, {}))

    async def _delete_orphans(
        self, link: Link, key: Key, ledger: Ledger, wishes: Sequence[Wish]
    ) -> dict[str, tuple[str, str]]:
        """Deletes topics whose resources are gone. The API server itself has to say so: what a watch has shown may be old. Resources that are there and
        that no watch has shown yet are returned: they stay noted."""
        claimed = {it.topic.topic_name for it in wishes if it.topic}
        known = {it.body["metadata"]["name"] for it in wishes}
        unseen: dict[str, tuple[str, str]] = {}
        for resource, (topic, id_) in sorted(ledger.by_resource.items()):
            if topic in claimed or resource in known:
                continue
            if await self.api.get(TOPIC, key.namespace, resource) is not None:
                unseen[resource] = topic, id_
                continue
            probe = Topic.model_validate(
                {
                    "apiVersion": "ottla.dev/v1alpha1",
                    "kind": "Topic",
                    "metadata": {"name": resource},
                    "spec": {"clusterRef": {"name": key.name}, "topicName": topic},
                }
            )
            found = (await reconcile.observe(link, [probe])).get(topic)
            if found is not None and found.topic_id == id_:  # a topic of the same name that was made since is another
                await reconcile.apply(link, Delete(topic))
        return unseen

    def _wish(self, body: Json) -> Wish:
        now = (body["metadata"]["uid"], body["metadata"]["generation"])
        if now not in self._wishes:
            self._wishes[now] = Wish.of(body)
        wish = self._wishes[now]
        wish.body = body
        return wish

    def _forget_old(self, wishes: Sequence[Wish]) -> None:
        if len(self._wishes) > 2 * len(wishes) + 1000:
            self._wishes.clear()

    async def _tell_all(self, wishes: Sequence[Wish], judged: Verdict) -> None:
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(wish: Wish) -> None:
            async with limit:
                await self._tell(wish, None, Stuck("InvalidSpec", wish.wrong) if wish.wrong else judged)

        await asyncio.gather(*(one(it) for it in wishes))

    async def _tell(self, wish: Wish, seen: Seen | None, judged: Verdict) -> Verdict:
        """What was known of the topic stays in the status while nobody can be asked."""
        before = wish.body.get("status") or {}
        more: dict[str, Json] = {key: before.get(key) for key in ("topicName", "topicId", "partitions", "replicas")}
        if seen is not None:
            more = {
                "topicName": seen.name,
                "topicId": seen.topic_id or None,
                "partitions": seen.partitions,
                "replicas": seen.replicas,
            }
        was: Json = next((it for it in before.get("conditions") or [] if it["type"] == "Stalled"), {})
        await self.telling.status(wish.body, Judged(judged, wish.body["metadata"]["generation"]), more)
        if isinstance(judged, Stuck) and was.get("message") != judged.message:
            await self.telling.event(wish.body, judged.reason, judged.message, warning=True)
        return judged


def _to_delete(good: Mapping[str, Wish]) -> dict[str, tuple[str, str]]:
    """What is to be noted: topics that go with their resource, with the id by which they were seen."""
    found: dict[str, tuple[str, str]] = {}
    for name, wish in good.items():
        if wish.topic and wish.topic.spec.deletion_policy == "Delete":
            id_ = (wish.body.get("status") or {}).get("topicId") or ""
            found[wish.topic.name] = (name, id_)
    return found


def _refused(error: KafkaError, wanted: Topic, brokers: int) -> Verdict:
    """What brokers refuse for good is a person's matter; what passes is tried again."""
    too_many = error.code is ErrorCode.invalid_replication_factor and (wanted.spec.replicas or 0) > brokers
    passing = error.code in PASSING and not too_many
    return Working("TryingAgain", str(error)) if passing else Stuck("Refused", str(error))


PASSING: Final = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_controller,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.reassignment_in_progress,
        ErrorCode.topic_already_exists,
        ErrorCode.broker_not_available,
        ErrorCode.invalid_replication_factor,  # fewer brokers are up than there should be
    }
)
