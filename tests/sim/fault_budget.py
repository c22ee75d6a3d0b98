"""Limits how many faults overlap, so that no guarantee of the broker is exceeded. Other faults are
not limited.

The guarantee: with default settings no acknowledged record is lost while fewer than
min.insync.replicas brokers lose power between syncs; with flush.messages=1, no matter how many lose
power. A killed process loses no page cache, so kills are not limited. A plan that `loses_records`
does not limit losses of power either.

- **Power loss, default settings.** An acknowledged record is in the page caches of its ISR, at
  least min.insync.replicas brokers. A broker that lost power is *at risk* until its current process
  has been in the ISR of each of its partitions: from then on it has every record acknowledged
  before. Fewer than min.insync.replicas brokers may be at risk at a time.
- **Power loss, flush.messages=1.** Acknowledged records are on the devices of the whole ISR. All
  brokers may lose power at once.
- **Wiped disk.** It also removes what was synced, so it puts a broker at risk with either setting,
  and removes a voter's metadata log and vote. A wiped broker counts as at risk until it has been in
  every ISR again. A committed metadata record is on a majority of the voters, and a leader is
  elected by a majority. So no committed record is lost, and a leader can be elected, as long as a
  majority of the voters is not wiped. A wiped one counts until the voter set no longer has its old
  directory id.
- **A wipe hits a healthy cluster only**, with every broker running, no other fault in progress and
  every ISR complete. A wiped broker has to leave every ISR, even as its last member, because
  anything else would lose records. Such a partition waits for an administrator, and the run would
  never end. Other faults may follow directly after the wipe.
"""

from ottla_broker.metadata.voter_set import majority_size
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import committed_voters, has_caught_up, running_brokers, unhealthy_partitions
from tests.sim.plan import Plan


class FaultBudget:
    def __init__(self, cluster: SimulatedCluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._at_risk: set[int] = set()
        self._wiped_voters: set[int] = set()

    def record_power_loss(self, broker: SimulatedBroker) -> None:
        if not (self._plan.syncs_every_message or self._plan.loses_records):
            self._at_risk.add(broker.node_id)

    def record_wipe(self, broker: SimulatedBroker) -> None:
        self._at_risk.add(broker.node_id)
        self._wiped_voters.add(broker.node_id)

    def update(self) -> None:
        """Removes brokers that are no longer at risk, and wiped voters whose old directory id the
        voter set no longer has. Called often, because being in every ISR for a moment is enough.
        """
        for node_id in tuple(self._at_risk):
            if has_caught_up(self._cluster, self._cluster.brokers[node_id]):
                self._at_risk.remove(node_id)
        for node_id in tuple(self._wiped_voters):
            if self._is_old_directory_removed(node_id):
                self._wiped_voters.remove(node_id)

    def _is_old_directory_removed(self, node_id: int) -> bool:
        voters, broker = committed_voters(self._cluster), self._cluster.brokers[node_id].broker
        if not voters or broker is None or not broker.log_dirs:
            return False
        current = broker.log_dirs[0].directory_id
        return all(directory == current for voter, directory in voters if voter == node_id)

    def allows_power_loss(self, broker: SimulatedBroker) -> bool:
        self.update()
        return (
            self._plan.syncs_every_message
            or self._plan.loses_records
            or len({*self._at_risk, broker.node_id}) < self._plan.min_insync_replicas
        )

    def allows_wipe(self, broker: SimulatedBroker, *, calm: bool) -> bool:
        """`calm`: no other fault is in progress."""
        self.update()
        voters = committed_voters(self._cluster)
        if not calm or not voters or len({*self._at_risk, broker.node_id}) >= self._plan.min_insync_replicas:
            return False
        if len(voters) - len({*self._wiped_voters, broker.node_id}) < majority_size(len(voters)):
            return False
        brokers = list(running_brokers(self._cluster))
        ends = {living.image.end_offset for _, living in brokers}
        return (
            len(brokers) == len(self._cluster.brokers)
            and all(node.is_serving for node, _ in brokers)
            and len(ends) == 1
            and not unhealthy_partitions(brokers[0][1].image)
        )
