"""Whoever watches from outside: asks, over and over, how far groups have come and where logs end, and joins nothing. Tools that show lag do that."""

import asyncio
from collections.abc import Sequence
from random import Random

from ottla_broker.wire.client import Client
from tests.sim.client import FAILURES, SimulatedClient, World
from tests.sim.history import Place
from tests.sim.processes import Process

PAUSE_S = (0.02, 0.4)


class Onlooker(SimulatedClient):
    def __init__(
        self, world: World, process: Process, random: Random, groups: Sequence[str], places: Sequence[Place]
    ) -> None:
        super().__init__(world, process, random)
        self._groups = groups
        self._places = places

    async def run(self) -> None:
        await self.until_done("onlooker", self._look)

    async def _look(self, client: Client) -> bool:
        while not self.stopping:
            group, place = self.random.choice(self._groups), self.random.choice(self._places)
            try:
                await self.committed(client, group, self._places)
                await self.latest(client, place)
            except FAILURES as reason:
                self.failed("onlooker", reason)
                self.forget_coordinator(group)
            await asyncio.sleep(self.random.uniform(*PAUSE_S))
        return True
