"""Whoever watches from outside: asks, over and over, how far groups have come and where logs end, and joins nothing. Tools that show lag do that."""

import asyncio
from collections.abc import Sequence
from random import Random

from ottla_broker.wire.client import Client
from tests.sim.client import FAILURES, SimulatedClient, World
from tests.sim.history import Place
from tests.sim.processes import SimulatedProcess

ONLOOKER = "onlooker"  # what their names begin with
PAUSE_S = (0.02, 0.4)


class Onlooker(SimulatedClient):
    def __init__(
        self, world: World, process: SimulatedProcess, random: Random, groups: Sequence[str], places: Sequence[Place]
    ) -> None:
        super().__init__(world, process, random)
        self._groups = groups
        self._places = places

    async def run(self) -> None:
        """Each question has connections of its own: one that gets no answer keeps the other from nothing."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.until_done(ONLOOKER, self._look_at_groups))
            tasks.create_task(self.until_done(ONLOOKER, self._look_at_ends))

    async def _look_at_groups(self, client: Client) -> bool:
        while not self.stopping:
            group = self.random.choice(self._groups)
            try:
                await self.committed(client, group, self._places)
            except FAILURES as reason:
                self.failed(ONLOOKER, reason)
                self.forget_coordinator(group)
            await asyncio.sleep(self.random.uniform(*PAUSE_S))
        return True

    async def _look_at_ends(self, client: Client) -> bool:
        while not self.stopping:
            try:
                await self.latest(client, self.random.choice(self._places))
            except FAILURES as reason:
                self.failed(ONLOOKER, reason)
            await asyncio.sleep(self.random.uniform(*PAUSE_S))
        return True
