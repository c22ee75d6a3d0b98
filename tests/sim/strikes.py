"""What is done to the leader of a partition in the moment that matters, when chance would seldom hit it."""

from collections.abc import Awaitable, Callable
from random import Random

from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.copies import led
from tests.sim.faults import some_time
from tests.sim.history import Place

SLOW_LATENCY_S = (0.05, 0.5)


class Strikes:
    """On one cluster. `happened`: how many."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.happened: dict[str, int] = {}
        self._cluster = cluster
        self._random = random

    async def leader(self, place: Place, moment: Callable[[], Awaitable[None]]) -> None:
        """Its followers fall behind; then comes the moment; then it is killed, and starts again."""
        if (node := self._leader(place)) is None:
            await moment()
            return
        name = "leader struck"
        self.happened[name] = self.happened.get(name, 0) + 1
        latency_s = self._random.uniform(*SLOW_LATENCY_S)
        ways = [
            way for one in self._cluster if one is not node for way in ((one.host, node.host), (node.host, one.host))
        ]
        self._cluster.trace.add_line(
            f"{node.host}, who leads {place}, is heard late, by {latency_s * 1000:.0f} ms, and is to die"
        )
        with self._cluster.network.late(ways, latency_s):
            await some_time(self._random, 0.1, 1)
            await moment()
            await some_time(self._random, 0.005, 1)
            if node.is_running:
                node.kill()
        await some_time(self._random, 0.1, 4)
        if not node.is_running:
            node.start()

    def _leader(self, place: Place) -> SimulatedBroker | None:
        found = led(self._cluster).get(place)
        return next((one for one in self._cluster if found is not None and one.broker is found.broker), None)
