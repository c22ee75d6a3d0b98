"""The time that a group of many members takes to rebalance.

A rebalance begins with members that join or leave, and ends when the group is settled. In between
every member sends its next heartbeat as soon as the last one is answered. So what is measured is
the coordinator and not the interval between heartbeats.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Set
from contextlib import suppress
from dataclasses import dataclass, field

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.types import GroupId
from kio.static.primitive import i32

from bench.group_members import NO_GENERATION, Member, open_members
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode
from tests.brokers import BrokerProcess

SETTLED_WITHIN_S = 120.0
PAUSE_S = 0.05


@dataclass(frozen=True)
class RebalanceResult:
    """`start_s`: until all members, which joined at once, were settled. `rebalance_ms`: the median
    when one member leaves, or joins again; `cpu_ms`: the broker's processor time for one of those.
    """

    start_s: float
    rebalance_ms: float
    cpu_ms: float


@dataclass
class GroupUnderTest:
    """`generations`: members by generation or member epoch. `owned`: partitions that all members
    own together."""

    partitions: int
    members: list[Member]
    generations: Counter[int] = field(default_factory=Counter)
    owned: int = 0

    def is_settled(self, since: int) -> bool:
        """Every member is in the same generation, which is later than `since`, and every partition
        has an owner."""
        if self.owned != self.partitions or len(self.generations) != 1:
            return False
        (generation,) = self.generations
        return generation > since and self.generations[generation] == len(self.members)

    async def start(self) -> float:
        """All members join. Returns the seconds until they are settled."""
        began = time.perf_counter()
        await self._settle(frozenset(self.members), NO_GENERATION)
        return time.perf_counter() - began

    async def remove_last(self) -> float:
        since, leaving = max(self.generations), self.members.pop()
        began = time.perf_counter()
        await self._track(leaving, leaving.leave())
        del self.generations[NO_GENERATION]
        await self._settle(frozenset(), since)
        took = time.perf_counter() - began
        leaving.close()
        return took

    async def add(self, joining: Member) -> float:
        since = max(self.generations)
        self.members.append(joining)
        began = time.perf_counter()
        await self._settle({joining}, since)
        return time.perf_counter() - began

    async def _settle(self, joining: Set[Member], since: int) -> None:
        async def follow(member: Member, *, joins: bool) -> None:
            if joins:
                self.generations[NO_GENERATION] += 1
                await self._track(member, member.join())
            while not self.is_settled(since):
                await self._track(member, member.heartbeat())

        async with asyncio.timeout(SETTLED_WITHIN_S), asyncio.TaskGroup() as tasks:
            for member in self.members:
                tasks.create_task(follow(member, joins=member in joining))

    async def _track(self, member: Member, step: Awaitable[None]) -> None:
        generation, owned = member.generation, member.owned
        await step
        self.generations[generation] -= 1
        self.generations[member.generation] += 1
        if not self.generations[generation]:
            del self.generations[generation]
        self.owned += member.owned - owned


async def measure_rebalances(
    broker: BrokerProcess, protocol: str, topic: str, members: int, repeats: int
) -> RebalanceResult:
    """A new group of `members` members, one partition each. `protocol`: classic or consumer."""
    group = f"{topic}-{protocol}"

    async def open_some(count: int) -> list[Member]:
        return await open_members(protocol, broker.port, group, topic, members, count)

    await wait_for_coordinator(broker, group)
    tested = GroupUnderTest(members, await open_some(members))
    try:
        start_s = await tested.start()
        took: list[float] = []
        joining = await open_some(repeats)
        cpu_s = broker.cpu_s()
        for member in joining:
            took += [await tested.remove_last(), await tested.add(member)]
        cpu_s = broker.cpu_s() - cpu_s
    finally:
        for member in tested.members:
            member.close()
    return RebalanceResult(start_s, statistics.median(took) * 1000, cpu_s * 1000 / len(took))


async def wait_for_coordinator(broker: BrokerProcess, group: str) -> None:
    """Returns when the group's coordinator serves it: it knows then that the group has no such
    member."""
    probe = HeartbeatRequest(group_id=GroupId(group), generation_id=i32(0), member_id="nobody")
    async with asyncio.timeout(SETTLED_WITHIN_S), Client.connect(broker.bootstrap) as client:
        while True:
            with suppress(TimeoutError):  # a broker on a busy machine may take longer than one request may
                if (await client.send_to_coordinator(group, probe)).error_code is ErrorCode.unknown_member_id:
                    return
            await asyncio.sleep(PAUSE_S)
