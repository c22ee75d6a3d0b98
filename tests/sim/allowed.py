"""What may be broken at a time without breaking what is promised; everything else a nemesis may do whenever it likes.

The promise: with default settings nothing acknowledged is lost while fewer than min.insync.replicas brokers lose power between syncs, and with
flush.messages=1 whatever loses power. A killed process loses no page cache, so kills are never counted.

- **Power loss, default settings.** An acknowledged record is in the page caches of its ISR, at least min.insync.replicas brokers. A broker that lost
  power is *at risk* until its present life has once been in the ISR of every partition that it has a replica of: then it has again all that was
  acknowledged before. Fewer than min.insync.replicas brokers may be at risk at a time.
- **Power loss, flush.messages=1.** What is acknowledged is on the devices of the whole ISR. Everybody may lose power at once.
- **Wiped disk.** It takes what was fsynced too, so it puts a broker at risk with either setting, and it takes a member's part of the metadata log.
  Two things follow. A wiped broker counts as at risk until it has been in every ISR again, and fewer than min.insync.replicas may be. And a
  committed metadata record is on a majority of the register's members, and who takes over hears so many of them that every majority has one among
  them; so it is found as long as fewer members than a majority are wiped at a time, and a wiped one counts until the register names it, with its old
  directory, no more.
- **A wipe strikes a calm cluster.** With every broker up, nothing else in progress and every ISR whole. A wiped broker has to leave every ISR, even where it was
  the last of one, which is right: nothing else can be done without losing what it had. Such a partition waits for a person, and a run
  would wait for ever. After the wipe anything else may happen, at once.
"""

from ottla_broker.metadata.quorum_rules import majority_size
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.plan import Plan
from tests.sim.standing import caught_up, running, unwell


class Allowed:
    def __init__(self, cluster: SimulatedCluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._at_risk: dict[int, bool] = {}  # broker → whether it was wiped
        self._wiped_members: dict[int, None] = {}

    def lost_power(self, broker: SimulatedBroker) -> None:
        if not (self._plan.synced or self._plan.forgets):
            self._at_risk.setdefault(broker.node_id, False)

    def lost_disk(self, broker: SimulatedBroker) -> None:
        self._at_risk[broker.node_id] = True
        self._wiped_members[broker.node_id] = None

    def look(self) -> None:
        """Who is at risk no more. Called often: it is enough to have been caught up for a moment."""
        for node_id in tuple(self._at_risk):
            if caught_up(self._cluster, self._cluster.brokers[node_id]):
                del self._at_risk[node_id]
        for node_id in tuple(self._wiped_members):
            if self._is_member_no_more(node_id):
                del self._wiped_members[node_id]

    def _is_member_no_more(self, node_id: int) -> bool:
        value, broker = self._cluster.register.value, self._cluster.brokers[node_id].broker
        if value is None or broker is None or not broker.log_dirs:
            return False
        now = broker.log_dirs[0].directory_id
        return all(member.directory == now for member in value.isr if member.broker == node_id)

    def power_loss(self, broker: SimulatedBroker) -> bool:
        self.look()
        return (
            self._plan.synced or self._plan.forgets or len({*self._at_risk, broker.node_id}) < self._plan.least_in_sync
        )

    def wipe(self, broker: SimulatedBroker, *, calm: bool) -> bool:
        """`calm`: nothing else is being done to the cluster."""
        self.look()
        value = self._cluster.register.value
        if not calm or value is None or len({*self._at_risk, broker.node_id}) >= self._plan.least_in_sync:
            return False
        if len({*self._wiped_members, broker.node_id}) >= majority_size(len(value.isr)):
            return False
        lives = list(running(self._cluster))
        ends = {living.image.end_offset for _, living in lives}
        return (
            len(lives) == len(self._cluster.brokers)
            and all(node.is_serving for node, _ in lives)
            and len(ends) == 1
            and not unwell(lives[0][1].image)
        )
