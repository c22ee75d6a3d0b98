"""The topics of one cluster: kept as wished, and counted."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import cluster, groups, log_dirs, offsets, topic_reconciler, topics
from ottla_operator.kafka.client import KafkaClient, Unreachable
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.local.documents import Document
from ottla_operator.local.live_view import BrokerRow, LiveView, State, TopicRow
from ottla_operator.plan.topics import ObservedTopic, UnsatisfiableSpec, after_removal, changes
from ottla_operator.resources.topic import Topic

RESYNC_S = 10.0  # drift is looked for this often
RETRY_S = 0.5
COUNT_S = 1.0
EAGER_COUNT_S = 0.1  # until the first message, whose time is told
EAGER_FOR_S = 60.0
SLOW_S = 3.0  # bytes and groups cost more, and change more slowly

# A broker that has just started, or a leader that has just moved: ask again.
PASSING = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.invalid_replication_factor,  # brokers are still coming
        ErrorCode.leader_not_available,
        ErrorCode.not_controller,
        ErrorCode.not_coordinator,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
    }
)


@dataclass(slots=True)
class Topics:
    """`wanted` is replaced by `want`. `documents`: topic → where it is written, for errors to name lines."""

    name: str
    board: LiveView
    wanted: tuple[Topic, ...]
    documents: Mapping[str, Document] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when every wish was looked at once and all topics that can be there are."""
    counted: asyncio.Event = field(default_factory=asyncio.Event)
    ids: dict[str, str] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    _leaving: list[Topic] = field(default_factory=list)
    """Taken out of the files, and what becomes of them is not done yet."""

    async def keep(self, link: KafkaClient) -> None:
        """For ever: whenever a wish changes, and now and then because somebody else may have changed a topic."""
        await self.counted.wait()  # what is there before we make anything
        while True:
            self.changed.clear()
            good = await self._reconcile(link)
            if good:
                self.settled.set()
            try:
                async with asyncio.timeout(RESYNC_S if good else RETRY_S):
                    await self.changed.wait()
            except TimeoutError:
                pass

    def want(self, wanted: tuple[Topic, ...], documents: Mapping[str, Document]) -> None:
        """Another wish, to be looked at at once."""
        named = {it.topic_name for it in wanted}
        self._leaving = [it for it in (*self._leaving, *self.wanted) if it.topic_name not in named]
        self.wanted, self.documents = wanted, documents
        self.changed.set()

    async def _remove(self, link: KafkaClient) -> bool:
        """What becomes of topics whose resources were taken out of the files; whether that is done."""
        for topic in tuple(self._leaving):
            try:
                seen = (await topic_reconciler.observe_topics(link, [topic])).get(topic.topic_name)
                done = after_removal(topic, seen)
                for change in done:
                    await topic_reconciler.apply_topic_change(link, change)
                    self.board.say(topic_reconciler.describe_topic_change(change), "warn")
            except Unreachable:
                return False
            except KafkaError as error:
                if error.code in PASSING:
                    return False
                self.board.say(f"topic {topic.topic_name} stays: {error}", "bad")
            else:
                if seen and not done:
                    self.board.say(
                        f"topic {topic.topic_name} is no longer described; it stays, with its records (deletionPolicy Retain)",
                        "info",
                    )
            if topic in self._leaving:  # or it is wished for again
                self._leaving.remove(topic)
                self.board.topics.pop((self.name, topic.topic_name), None)
        return True

    async def count(self, link: KafkaClient) -> None:
        """For ever: records, bytes and lag of every topic, onto the board. What is there at the first look is no first message."""
        loop = asyncio.get_running_loop()
        before: dict[str, int] | None = None
        began = at = slow_at = loop.time()
        while True:
            try:
                every = await topics.list_topics(link)
                self._show_brokers(every)
                found = [it for it in every if not it.is_internal and not it.name.startswith("__")]
                ends, starts = await asyncio.gather(
                    offsets.list_offsets(link, found, offsets.LATEST),
                    offsets.list_offsets(link, found, offsets.EARLIEST),
                )
                now = loop.time()
                written = self._show(found, ends, starts, before or {}, now - at)
                if before is not None and any(count > before.get(name, 0) for name, count in written.items()):
                    self.board.first("first message")
                before, at = written, now
                self.counted.set()
                if now >= slow_at:
                    slow_at = now + SLOW_S
                    await self._show_slow(link, ends)
            except KafkaError as error:
                if error.code not in PASSING and self._said.get("") != str(error):
                    self._said[""] = str(error)
                    self.board.say(f"counting records: {error}", "bad")
            except Unreachable:
                pass  # the brokers' rows say why; counting goes on when they are back
            eager = "first message" not in self.board.firsts and loop.time() < began + EAGER_FOR_S
            await asyncio.sleep(EAGER_COUNT_S if eager else COUNT_S)

    async def _reconcile(self, link: KafkaClient) -> bool:
        """Whether all is as wished, or cannot be."""
        good = await self._remove(link)
        wanted = self.wanted
        try:
            seen = await topic_reconciler.observe_topics(link, wanted)
        except (KafkaError, Unreachable):
            return False
        for topic in wanted:
            row = self._row(topic.topic_name)
            try:
                stuck = ""
                for change in changes(topic, seen.get(topic.topic_name)):
                    await topic_reconciler.apply_topic_change(link, change)
                    if isinstance(change, UnsatisfiableSpec):
                        stuck = change.reason
                    else:
                        self.board.say(topic_reconciler.describe_topic_change(change), "info")
                row.state, row.note = (State.failed, stuck) if stuck else (State.ready, "")
            except KafkaError as error:
                # A mirror may have made it meanwhile, and a request may be answered twice when an answer was lost: another look settles it.
                there = error.code is ErrorCode.topic_already_exists
                row.state, row.note = State.retrying, "" if there else str(error)
                good = good and not there and error.code not in PASSING
            except Unreachable:
                return False
            if row.note and self._said.get(topic.topic_name) != row.note:
                self.board.say(self._in_the_files(topic.topic_name, row.note), "bad")
            self._said[topic.topic_name] = row.note
        self.ids = {name: it.topic_id for name, it in (await self._ids(link, seen)).items()}
        return good

    def _in_the_files(self, name: str, note: str) -> str:
        said = note if note.startswith("topic ") else f"topic {name}: {note}"
        if (document := self.documents.get(name)) is None:
            return said
        return f"{document.where(document.setting_named(note) or ('spec',))}: {said}"

    async def _ids(self, link: KafkaClient, seen: dict[str, ObservedTopic]) -> dict[str, ObservedTopic]:
        missing = [it for it in self.wanted if it.topic_name not in seen]
        try:
            return {**seen, **await topic_reconciler.observe_topics(link, missing)} if missing else seen
        except (KafkaError, Unreachable):
            return seen

    def _row(self, name: str) -> TopicRow:
        return self.board.topics.setdefault((self.name, name), TopicRow(self.name, name))

    def _show(
        self,
        found: list[topics.TopicDescription],
        ends: dict[TopicPartition, int],
        starts: dict[TopicPartition, int],
        before: dict[str, int],
        seconds: float,
    ) -> dict[str, int]:
        """The end offsets of each topic's partitions added up: grows by one with every record."""
        there = {it.name for it in found}
        for gone in [
            key
            for key in self.board.topics
            if key[0] == self.name and key[1] not in there and key[1] not in self._wished()
        ]:
            del self.board.topics[gone]
        written: dict[str, int] = {}
        for topic in found:
            places = [(topic.name, it.index) for it in topic.partitions if (topic.name, it.index) in ends]
            written[topic.name] = sum(ends[it] for it in places)
            row = self._row(topic.name)
            if topic.name not in self._wished():
                row.state, row.note = State.ready, "made by a client"
            row.partitions = len(topic.partitions)
            row.records = sum(ends[it] - starts.get(it, 0) for it in places)
            if topic.name in before and seconds > 0:
                row.records_per_second = max(0.0, (written[topic.name] - before[topic.name]) / seconds)
        return written

    def _show_brokers(self, found: list[topics.TopicDescription]) -> None:
        """What each broker leads and holds, onto its row."""
        partitions = [it for topic in found for it in topic.partitions]
        leads = Counter(it.leader for it in partitions)
        replicas = Counter(broker for it in partitions for broker in it.replicas)
        behind = Counter(broker for it in partitions for broker in it.replicas if broker not in it.isr)
        for id_, row in self._broker_rows():
            row.leads, row.replicas, row.behind = leads[id_], replicas[id_], behind[id_]

    def _broker_rows(self) -> Iterator[tuple[int, BrokerRow]]:
        for label, row in self.board.brokers.items():
            name, _, id_ = label.rpartition("-")
            if name == self.name:
                yield int(id_), row

    def _wished(self) -> set[str]:
        return {it.topic_name for it in self.wanted}

    async def _show_slow(self, link: KafkaClient, ends: dict[TopicPartition, int]) -> None:
        told = await cluster.describe_cluster(link)
        brokers = [it.id for it in told.brokers]
        for id_, broker in self._broker_rows():
            broker.controller = id_ == told.controller
        for name, size in log_dirs.sum_by_topic(await log_dirs.describe_replica_sizes(link, brokers)).items():
            if (self.name, name) in self.board.topics:
                self.board.topics[self.name, name].bytes = size
        worst: dict[str, tuple[int, str]] = {}
        for group in await groups.list_groups(link, brokers):
            lag: dict[str, int] = {}
            for place, offset in (await groups.list_group_offsets(link, group.id)).items():
                if place in ends:
                    lag[place[0]] = lag.get(place[0], 0) + max(0, ends[place] - offset)
            for name, behind in lag.items():
                worst[name] = max(worst.get(name, (-1, "")), (behind, group.id))
        for (cluster_name, name), row in self.board.topics.items():
            if cluster_name == self.name:
                row.lag_records, row.lag_group = worst.get(name, (None, ""))
