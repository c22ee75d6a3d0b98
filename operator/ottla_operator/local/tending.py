"""Brings the brokers of a running cluster to what the files say: settings, rolling restarts, more brokers, fewer brokers. Level-triggered: looks,
does one step, and looks again; whatever was broken off goes on from what is seen."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka import cluster, quorum, reassignment_inputs
from ottla_operator.kafka.client import KafkaClient, Unreachable
from ottla_operator.local.brokers import Brokers
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.memory import Memory
from ottla_operator.local.moving import Moving
from ottla_operator.local.rolling import Rolling
from ottla_operator.plan import scale
from ottla_operator.plan.broker_processes import OFFSETS_FACTOR, with_replication_defaults
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_quantity

AGAIN_S = 0.5
REFUSED_AGAIN_S = 5.0  # a person has to do something first
RESYNC_S = 10.0
OWN_TOPICS = {"__consumer_offsets": OFFSETS_FACTOR}


@dataclass(slots=True)
class Tending:
    """`rolled`: set while every broker has the settings that are wished."""

    wanted: Cluster
    brokers: Brokers
    memory: Memory
    board: LiveView
    rolled: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _said: dict[str, str] = field(default_factory=dict)

    @property
    def wanted_ids(self) -> frozenset[int]:
        return frozenset(range(1, self.wanted.spec.replicas + 1))

    def want(self, wanted: Cluster) -> None:
        """Another wish, to be looked at at once."""
        self.wanted = wanted
        self.rolled.clear()
        self._changed.set()

    async def keep(self, link: KafkaClient) -> None:
        """For ever."""
        rolling = Rolling(self.wanted.name, self.brokers, self.memory, self.board)
        while True:
            self._changed.clear()
            try:
                rolled = await rolling.step(link, self.wanted_ids)
                if rolled and not self._changed.is_set():
                    self.rolled.set()
                pause = RESYNC_S if rolled else AGAIN_S
                if rolled and not await rolling.give_back(link):
                    pause = AGAIN_S
                if rolled or not rolling.waits_for_broker:
                    pause = min(pause, await self._scale(link))
            except (KafkaError, Unreachable) as error:
                # Brokers that stop and start are no news; what lasts is.
                pause = AGAIN_S
                self._say_once("trouble", str(error) if isinstance(error, KafkaError) else "", "bad")
            except OSError as error:
                if error.filename is None:
                    raise
                pause = REFUSED_AGAIN_S
                self._say_once("trouble", f"{error.filename}: {error.strerror}", "bad")
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _scale(self, link: KafkaClient) -> float:
        """One step towards the number of brokers; after how many seconds to look again."""
        if self.memory.present == self.memory.spread == self.wanted_ids and not self.memory.throttled:
            return RESYNC_S
        seen = await reassignment_inputs.read_reassignment_inputs(link)
        match step := scale.next_scale_step(self._seen(seen, await quorum.list_voters(link))):
            case scale.MovePartitions(moves, why):
                self._say_once("refused", "", "bad")
                await self._moving(link).run(moves, why, seen.broker_ids)
                return 0.0
            case scale.RemoveBroker(broker):
                await self._let_go(link, broker)
                return 0.0
            case scale.RecordSpread(brokers):
                await self._moving(link).unthrottle(seen.broker_ids)
                self.memory.spread = set(brokers)
                self.memory.save()
                self._suit(len(brokers))
                return 0.0
            case scale.ScalingBlocked(why):
                self._say_once("refused", f"cluster {self.wanted.name} keeps its brokers: {why}", "bad")
                return REFUSED_AGAIN_S
            case scale.WaitToScale():
                return AGAIN_S
            case scale.ScalingComplete():
                await self._moving(link).unthrottle(seen.broker_ids)
                return RESYNC_S
        raise AssertionError(step)

    def _suit(self, count: int) -> None:
        """From here on, settings that suit so many brokers."""
        self.brokers.take(
            [with_replication_defaults(it.plan, self.wanted, count) for it in self.brokers.by_id.values()]
        )

    def _seen(self, found: reassignment_inputs.ReassignmentInputs, members: frozenset[int]) -> scale.ScaleInputs:
        limits = self.wanted.spec.rebalance
        return scale.ScaleInputs(
            desired=self.wanted_ids,
            present=frozenset(self.memory.present),
            available=found.brokers,
            partitions=found.partitions,
            moving=len(found.reassignments),
            spread_over=frozenset(self.memory.spread),
            replication_factors=self._factors(),
            voters=members,
            on_scale=limits is None or limits.on_scale is not False,
        )

    def _factors(self) -> Mapping[str, int]:
        """How many replicas the brokers' own topics should have, as the settings say; what is no number is the brokers' to refuse."""
        settings = next(iter(self.brokers.by_id.values())).plan.settings
        return {topic: int(settings[key]) for topic, key in OWN_TOPICS.items() if settings[key].isdigit()}

    def _moving(self, link: KafkaClient) -> Moving:
        limits = self.wanted.spec.rebalance
        rate = int(parse_quantity(limits.throttle)) if limits and limits.throttle else None
        return Moving(self.wanted.name, link, self.memory, self.board, rate)

    async def _let_go(self, link: KafkaClient, broker: int) -> None:
        label = f"{self.wanted.name}-{broker}"
        if broker in self.brokers.by_id:
            await self.brokers.let_go(broker)
        if any(it.id == broker for it in (await cluster.describe_cluster_with_fenced_brokers(link)).brokers):
            await cluster.unregister_broker(link, broker)
        self.memory.present.discard(broker)
        self.memory.save()
        self.board.say(f"broker {label} held nothing any more: it is stopped and forgotten, its folder stays", "good")

    def _say_once(self, about: str, text: str, kind: str) -> None:
        if text and self._said.get(about) != text:
            self.board.say(text, kind)
        self._said[about] = text
