"""Which brokers have a fault now, so that faults choose brokers without one or wait until there is
no other fault.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from tests.sim import triggers
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import newest_image, unhealthy_partitions

CALM_WITHIN_S = 8.0

Fault = Callable[[SimulatedBroker], Awaitable[None]]
"""Injects a fault into a broker that is reserved for it, and returns when it is repaired."""


class FaultsInProgress:
    """The faults of one cluster."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._busy: Counter[int] = Counter()  # broker → number of faults in progress
        self._fault_count = 0
        self._action_count = 0  # faults and their actions on other brokers

    @property
    def are_none(self) -> bool:
        return not self._action_count

    def is_busy(self, broker: SimulatedBroker) -> bool:
        return self._busy[broker.node_id] > 0

    def sample_free_brokers(self, besides: SimulatedBroker) -> list[SimulatedBroker]:
        """A random number of the other brokers that serve clients and have no fault."""
        free = [one for one in self._cluster if one is not besides and one.is_serving and not self.is_busy(one)]
        return self._random.sample(free, self._random.randint(0, len(free)))

    async def run(self, fault: Fault, reserved: SimulatedBroker) -> None:
        self._fault_count += 1
        try:
            await self.run_on([reserved], fault(reserved))
        finally:
            self._fault_count -= 1

    async def run_on(self, brokers: Sequence[SimulatedBroker], action: Awaitable[None]) -> None:
        """Awaits an action, during which these brokers are busy."""
        self._busy.update(broker.node_id for broker in brokers)
        self._action_count += 1
        try:
            await action
        finally:
            self._action_count -= 1
            self._busy.subtract(broker.node_id for broker in brokers)

    async def run_when_calm(
        self,
        reserved: SimulatedBroker,
        action: Callable[[], Awaitable[None]],
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """Runs an action of a fault once no other fault is in progress, the cluster is healthy and
        `is_ready` is True; does nothing if that is not so within CALM_WITHIN_S. No fault begins
        meanwhile.
        """

        def is_calm() -> bool:
            image = newest_image(self._cluster)
            return (
                self._fault_count == 1
                and image is not None
                and all(one.is_serving for one in self._cluster)
                and not unhealthy_partitions(image)
                and is_ready()
            )

        async def act_when_calm() -> None:
            if await triggers.wait_until(is_calm, within_s=CALM_WITHIN_S):
                await action()

        await self.run_on([one for one in self._cluster if one is not reserved], act_when_calm())
