"""One look at all Topics of a Cluster: what the brokers have, what should be changed, and what is told of each.

They are looked at together: the brokers are asked once for all of them, and what differs is changed, many at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import topic_reconciler
from ottla_operator.kafka import topics as brokers_topics
from ottla_operator.kafka.client import KafkaClient, Unreachable, connect
from ottla_operator.kube.api import Api, ApiError
from ottla_operator.kube.cluster_brokers import ready_addresses
from ottla_operator.kube.clusters import cluster_of
from ottla_operator.kube.kinds import TOPIC
from ottla_operator.kube.known import Key
from ottla_operator.kube.ledger import Ledger
from ottla_operator.kube.patience import Patience
from ottla_operator.kube.telling import Telling
from ottla_operator.plan.conditions import Conditions, Readiness, Reconciling, Stalled
from ottla_operator.plan.topic_deletion import (
    DeletionRecord,
    plan_deletions,
    resources_to_look_up,
    topic_list,
    update_records,
)
from ottla_operator.plan.topic_verdict import TopicResource, evaluate_topic, topic_owners
from ottla_operator.plan.topics import ObservedTopic, changes
from ottla_operator.plan.topics import UnsatisfiableSpec as CannotBe
from ottla_operator.resources.model import Json
from ottla_operator.resources.topic import Topic

RESYNC_S: Final = 10.0
AGAIN_S: Final = 1.0
WAITING_S: Final = 5.0
AT_ONCE: Final = 16
BROKERS_WITHIN_S: Final = 30.0

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Brought:
    """A Topic after a look. `seen`: its topic, None when there is none, or nobody knows."""

    wish: TopicResource
    seen: ObservedTopic | None
    verdict: Readiness

    @property
    def note(self) -> DeletionRecord | None:
        """What is to be noted before anything else is said of it: that its topic goes with it."""
        if self.seen is None or not self.wish.deletes_topic or not isinstance(self.wish.topic, Topic):
            return None
        return DeletionRecord(self.wish.name, self.seen.name, self.seen.topic_id)


@dataclass(slots=True)
class Topics:
    """`bodies`: the Topics of a Cluster by name, as last seen. `cluster`: its body, None when there is none. `gone`: uids of those that were seen to go, and
    whether their topics go with them; what has been noted is taken out."""

    api: Api
    telling: Telling
    bodies: Callable[[Key], Mapping[str, Json]]
    cluster: Callable[[Key], Awaitable[Json | None]]
    gone: Callable[[Key], dict[str, bool]]
    _wishes: dict[tuple[str, int], TopicResource] = field(default_factory=dict)
    """By uid and generation: a spec is parsed once."""
    _patiences: dict[Key, Patience] = field(default_factory=dict)

    async def look(self, key: Key) -> float | None:
        bodies = {name: it for name, it in self.bodies(key).items() if "deletionTimestamp" not in it["metadata"]}
        wishes = [self._wish(it) for it in bodies.values()]
        self._forget_old(wishes)
        body = await self.cluster(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self.gone(key).clear()  # what was noted goes with the Cluster
            await self._tell_all(wishes, Reconciling("NoCluster", f"there is no Cluster {key.name} in this namespace"))
            return WAITING_S if wishes else None
        ledger = await Ledger.read(self.api, key)
        notes = await self._hear(key, wishes, ledger, body)
        if not wishes and not notes:
            self._patiences.pop(key, None)
            return None
        at = await ready_addresses(self.api, cluster_of(body))
        if not at:
            await self._tell_all(wishes, Reconciling("ClusterNotReady", f"no broker of Cluster {key.name} is ready"))
            return WAITING_S
        try:
            async with connect(",".join(at), BROKERS_WITHIN_S) as link:
                return await self._with_brokers(link, wishes, ledger, notes, body)
        except Unreachable as error:
            await self._tell_all(wishes, Reconciling("Unreachable", f"the brokers cannot be asked: {error}"))
            return WAITING_S

    async def failed(self, key: Key, error: Exception) -> None:
        await self._tell_all(
            [self._wish(it) for it in self.bodies(key).values()], Reconciling("TryingAgain", str(error))
        )

    # --- what is noted of topics that go with their resources

    async def _hear(
        self, key: Key, wishes: Sequence[TopicResource], ledger: Ledger, cluster: Json
    ) -> dict[str, DeletionRecord]:
        """What is noted, without those whose topics are to stay by now, whether or not brokers can be asked: who says so, and deletes the resource behind it,
        means it."""
        gone = dict(self.gone(key))
        notes = update_records(ledger.by_uid, wishes, gone)
        if not await self._write(ledger, notes, cluster):
            for uid in gone:
                self.gone(key).pop(uid, None)
        return notes

    async def _write(self, ledger: Ledger, notes: Mapping[str, DeletionRecord], cluster: Json) -> str:
        """Why it could not be noted; empty when it is."""
        try:
            await ledger.write(notes, cluster)
        except ApiError as error:
            if error.away:
                raise
            why = f"which topics go with their Topics cannot be noted: {error}"
            await self.telling.event(cluster, "NotNoted", why, warning=True)
            return why
        return ""

    async def _let_go(
        self, link: KafkaClient, wishes: Sequence[TopicResource], notes: Mapping[str, DeletionRecord], cluster: Json
    ) -> tuple[dict[str, DeletionRecord], set[str]]:
        """Deletes topics that go with their resources. What stays noted; and the ids of the topics that are gone: brokers may show them for a moment yet."""
        namespace = cluster["metadata"]["namespace"]
        there = {name: await self._uid(namespace, name) for name in sorted(resources_to_look_up(notes, wishes))}
        found = plan_deletions(notes, wishes, there)
        if found.retained:
            why = f"no operator watched when their Topics went, so what these said last is not known; with their records stay: {topic_list(found.retained.values())}"
            await self.telling.event(cluster, "TopicKept", why, warning=True)
        stay, gone, deleted = dict(found.pending), set[str](), list[DeletionRecord]()

        async def delete(leaving: tuple[str, DeletionRecord]) -> None:
            uid, note = leaving
            try:
                if note.topic_id and await brokers_topics.delete_topic_by_id(link, UUID(note.topic_id)):
                    deleted.append(note)
                gone.add(note.topic_id)
            except KafkaError as error:
                stay[uid] = note
                why = f"topic {note.topic} of Topic {note.resource}, which is gone, cannot be deleted: {error}"
                await self.telling.event(cluster, "TopicNotDeleted", why, warning=True)

        await _each(found.delete.items(), delete)
        if deleted:
            await self.telling.event(cluster, "TopicDeleted", f"deleted, as their Topics said: {topic_list(deleted)}")
        return stay, gone

    async def _uid(self, namespace: str, name: str) -> str | None:
        """Of the Topic of this name. The API server itself has to say so: what watches have shown may be old."""
        found = await self.api.get(TOPIC, namespace, name)
        return None if found is None else str(found["metadata"]["uid"])

    # --- what is done with brokers

    async def _with_brokers(
        self,
        link: KafkaClient,
        wishes: Sequence[TopicResource],
        ledger: Ledger,
        notes: Mapping[str, DeletionRecord],
        cluster: Json,
    ) -> float:
        good = topic_owners(wishes)
        stay, deleted = await self._let_go(link, wishes, notes, cluster)
        seen = await _observed(link, [it.topic for it in good.values() if it.topic], deleted)
        pauses: list[float] = [WAITING_S] if any(it.is_deleted for it in stay.values()) else []

        async def one(wish: TopicResource) -> _Brought:
            if wish.topic is None or good.get(wish.topic.topic_name) is not wish:
                found = _Brought(wish, None, evaluate_topic(wish, None, (), good))
            else:
                found = await self._bring(link, wish, seen, cluster["spec"]["replicas"])
            if found.note is None or ledger.by_uid.get(wish.uid) == found.note:
                pauses.append(await self._tell(wish, found.seen, found.verdict))
            return found

        brought = await _each(wishes, one)
        noted = {it.wish.uid: it.note for it in brought if it.note}
        later = [it for it in brought if it.note and ledger.by_uid.get(it.wish.uid) != it.note]
        # A topic of which nothing was seen now is as it was noted before.
        before = {it.wish.uid: notes[it.wish.uid] for it in brought if it.wish.deletes_topic and it.wish.uid in notes}
        why = await self._write(ledger, {**stay, **before, **noted}, cluster)

        async def tell(it: _Brought) -> None:
            judged = Reconciling("NotNoted", why) if why and not isinstance(it.verdict, Stalled) else it.verdict
            pauses.append(await self._tell(it.wish, it.seen, judged))

        await _each(later, tell)
        waits = frozenset((it.wish.uid, it.verdict.message) for it in brought if isinstance(it.verdict, Reconciling))
        soon_s = min([RESYNC_S, *pauses, *([WAITING_S] if why else [])])
        patience = self._patiences.setdefault(ledger.key, Patience())
        return patience.pause(waits, asyncio.get_running_loop().time(), soon_s, RESYNC_S)

    async def _bring(
        self, link: KafkaClient, wish: TopicResource, all_seen: Mapping[str, ObservedTopic] | None, brokers: int
    ) -> _Brought:
        """`brokers`: as many as the Cluster shall have."""
        topic, seen = wish.topic, None
        assert topic is not None
        try:
            every = await topic_reconciler.observe_topics(link, [topic]) if all_seen is None else all_seen
            seen = every.get(topic.topic_name)
            todo = changes(topic, seen)
            for change in todo:
                await topic_reconciler.apply_topic_change(link, change)
                if not isinstance(change, CannotBe):
                    await self.telling.event(
                        wish.body, type(change).__name__, topic_reconciler.describe_topic_change(change)
                    )
            if any(not isinstance(it, CannotBe) for it in todo):
                seen = (await topic_reconciler.observe_topics(link, [topic])).get(topic.topic_name)
                todo = changes(topic, seen)
        except KafkaError as error:
            return _Brought(wish, seen, _refused(error, topic, brokers))
        return _Brought(wish, seen, evaluate_topic(wish, seen, todo, {}))

    def _wish(self, body: Json) -> TopicResource:
        now = (body["metadata"]["uid"], body["metadata"]["generation"])
        if now not in self._wishes:
            self._wishes[now] = TopicResource.of(body)
        wish = self._wishes[now]
        wish.body = body
        return wish

    def _forget_old(self, wishes: Sequence[TopicResource]) -> None:
        if len(self._wishes) > 2 * len(wishes) + 1000:
            self._wishes.clear()

    # --- what is told

    async def _tell_all(self, wishes: Sequence[TopicResource], judged: Readiness) -> None:
        async def one(wish: TopicResource) -> None:
            await self._tell(wish, None, Stalled("InvalidSpec", wish.invalid_reason) if wish.invalid_reason else judged)

        await _each(wishes, one)

    async def _tell(self, wish: TopicResource, seen: ObservedTopic | None, judged: Readiness) -> float:
        """What was known of the topic stays in the status while nobody can be asked. After how long it is to be looked at again."""
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
        try:
            await self.telling.status(wish.body, Conditions(judged, wish.body["metadata"]["generation"]), more)
        except ApiError as error:
            if error.away:
                raise
            why = f"its status cannot be written: {error}"
            await self.telling.event(wish.body, "StatusNotWritten", why, warning=True)
            return WAITING_S
        if isinstance(judged, Stalled) and was.get("message") != judged.message:
            await self.telling.event(wish.body, judged.reason, judged.message, warning=True)
        return AGAIN_S if isinstance(judged, Reconciling) else RESYNC_S


async def _observed(
    link: KafkaClient, wanted: Sequence[Topic], deleted: Collection[str]
) -> dict[str, ObservedTopic] | None:
    """All at once; None when brokers refuse to tell of one of them: then each is asked for by itself."""
    try:
        found = await topic_reconciler.observe_topics(link, wanted)
    except KafkaError:
        return None
    return {name: it for name, it in found.items() if it.topic_id not in deleted}


async def _each(items: Iterable[T], do: Callable[[T], Awaitable[R]]) -> list[R]:
    """A few at a time. The first that fails ends the others, and is raised."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(it: T) -> R:
        async with limit:
            return await do(it)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(it)) for it in items]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [it.result() for it in tasks]


def _refused(error: KafkaError, wanted: Topic, brokers: int) -> Readiness:
    """What brokers refuse for good is a person's matter; what passes is tried again."""
    too_many = error.code is ErrorCode.invalid_replication_factor and (wanted.spec.replicas or 0) > brokers
    passing = error.code in PASSING and not too_many
    return Reconciling("TryingAgain", str(error)) if passing else Stalled("Refused", str(error))


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
