"""A member of a group that changes its protocol while it has members (KIP-848): it leaves from time
to time, and comes back as a member of the classic or of the consumer protocol.
"""

from random import Random

from tests.sim.client import SimulatedClient, Workload
from tests.sim.consumer_group_member import ConsumerGroupMember
from tests.sim.group_member import Member
from tests.sim.processes import SimulatedProcess

STAYS_S = (3.0, 12.0)


class MigratingMember(SimulatedClient):
    def __init__(
        self, workload: Workload, process: SimulatedProcess, random: Random, group: str, topic: str, rack: str
    ) -> None:
        super().__init__(workload, process, random)
        self._group = group
        self._topic = topic
        self._rack = rack

    async def run(self) -> None:
        while not self.stopping:
            protocol = self.random.choice((Member, ConsumerGroupMember))
            member = protocol(self.workload, self.process, self.random, self._group, self._topic, self._rack)
            member.leaves_at_s = self.loop.time() + self.random.uniform(*STAYS_S)
            await member.run()
