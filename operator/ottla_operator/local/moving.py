"""Partitions that move because brokers came or go: started, shown, seen to their end."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from ottla_operator.brokers import elections, reassignments, throttle
from ottla_operator.brokers.link import Link
from ottla_operator.brokers.progress import progress
from ottla_operator.figures import counted, size_text
from ottla_operator.local.board import Board
from ottla_operator.local.memory import Memory
from ottla_operator.plan.moves import Move, cost

POLL_S = 0.25


@dataclass(slots=True)
class Moving:
    """`rate`: bytes per second and broker; None: as fast as it goes."""

    cluster: str
    link: Link
    memory: Memory
    board: Board
    rate: int | None

    async def run(self, moves: tuple[Move, ...], why: str, up: Collection[int]) -> None:
        """Returns when nothing of it moves any more. KafkaError, Unreachable: it may go on by itself."""
        wanted = {(it.topic, it.partition): it.after for it in moves}
        found = cost(moves)
        copies = f", {size_text(found.bytes)} to copy" if found.replicas else ""
        self.board.say(f"cluster {self.cluster}: {counted(len(moves), 'partition')} to move, {why}{copies}", "info")
        if self.rate is not None and found.replicas:
            self.memory.throttled = sorted({*self.memory.throttled, *(it.topic for it in moves)})
            self.memory.save()
            await throttle.put(self.link, moves, self.rate, up)
        await reassignments.reassign(self.link, wanted)
        try:
            while (now := await progress(self.link, wanted)).moving:
                self.board.moving[self.cluster] = (
                    f"{now.partitions - now.moving} of {now.partitions} partitions have moved"
                    + (f", {size_text(now.bytes)} of {size_text(now.total_bytes)}" if now.total_bytes else "")
                )
                await asyncio.sleep(POLL_S)
        finally:
            self.board.moving.pop(self.cluster, None)
        await elections.prefer(self.link, wanted)
        await self.unthrottle(up)
        self.board.say(f"cluster {self.cluster}: {counted(len(moves), 'partition')} moved, {why}", "good")

    async def unthrottle(self, up: Collection[int]) -> None:
        """Takes off what an earlier move may have left."""
        if self.memory.throttled:
            await throttle.take_off(self.link, up, self.memory.throttled)
            self.memory.throttled = []
            self.memory.save()
