"""Partitions that move because brokers came or go: started, shown, seen to their end."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from ottla_operator.formatting import format_count, format_size
from ottla_operator.kafka import elections, reassignments, throttle
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.reassignments import measure_progress
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.memory import Memory
from ottla_operator.plan.moves import Move, estimate_cost

POLL_S = 0.25


@dataclass(slots=True)
class Moving:
    """`rate`: bytes per second and broker; None: as fast as it goes."""

    cluster: str
    link: KafkaClient
    memory: Memory
    board: LiveView
    rate: int | None

    async def run(self, moves: tuple[Move, ...], why: str, up: Collection[int]) -> None:
        """Returns when nothing of it moves any more. KafkaError, Unreachable: it may go on by itself."""
        wanted = {(it.topic, it.partition): it.after for it in moves}
        found = estimate_cost(moves)
        copies = f", {format_size(found.bytes)} to copy" if found.replicas else ""
        self.board.say(
            f"cluster {self.cluster}: {format_count(len(moves), 'partition')} to move, {why}{copies}", "info"
        )
        if self.rate is not None and found.replicas:
            self.memory.throttled = sorted({*self.memory.throttled, *(it.topic for it in moves)})
            self.memory.save()
            await throttle.set_throttle(self.link, moves, self.rate, up)
        await reassignments.reassign_partitions(self.link, wanted)
        try:
            while (now := await measure_progress(self.link, wanted)).unfinished:
                self.board.moving[self.cluster] = (
                    f"{now.partitions - now.unfinished} of {now.partitions} partitions have moved"
                    + (
                        f", {format_size(now.copied_bytes)} of {format_size(now.total_bytes)}"
                        if now.total_bytes
                        else ""
                    )
                )
                await asyncio.sleep(POLL_S)
        finally:
            self.board.moving.pop(self.cluster, None)
        await elections.elect_preferred_leaders(self.link, wanted)
        await self.unthrottle(up)
        self.board.say(f"cluster {self.cluster}: {format_count(len(moves), 'partition')} moved, {why}", "good")

    async def unthrottle(self, up: Collection[int]) -> None:
        """Takes off what an earlier move may have left."""
        if self.memory.throttled:
            await throttle.remove_throttle(self.link, up, self.memory.throttled)
            self.memory.throttled = []
            self.memory.save()
