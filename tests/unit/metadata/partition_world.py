"""A model of one partition on a few brokers: logs, leaders with outdated metadata, lost and
repeated proposals, crashes, wiped disks.

The controller's part is the real one: the pure plans on a real image. Brokers follow the rules of
replication in their simplest form. The invariant: the leader that the controller has elected has
every acknowledged record.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.metadata import broker_plans, election, isr_changes, reassignment
from ottla_broker.metadata.broker_plans import election_candidates
from ottla_broker.metadata.election import TopicElectionRules, effective_min_isr
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.isr_changes import IsrChangeRequest
from ottla_broker.metadata.records import (
    NO_LEADER,
    Endpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla_broker.wire.errors import KafkaError

TOPIC = UUID(int=77)


@dataclass
class Process:
    """A running broker. `partition` and `broker_epochs`: from the metadata that it has read last.
    `follower_ends`: follower → (broker epoch, log end offset) in this leader epoch.
    """

    epoch: int
    partition: PartitionRecord
    broker_epochs: dict[int, int]
    follower_ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    high_watermark: int = 0
    pending: IsrChangeRequest | None = None


class PartitionWorld:
    """`initial_isr_size`: how many replicas were unfenced when the partition was created; None:
    all. `synced`: records are on disk before they are acknowledged.
    """

    def __init__(
        self,
        brokers: int,
        replicas: Sequence[int],
        min_insync: int,
        *,
        synced: bool = False,
        initial_isr_size: int | None = None,
    ) -> None:
        self.rules = TopicElectionRules(min_insync, allow_unclean=False, acks_are_synced=synced)
        self.image = MetadataImage()
        self.processes: dict[int, Process] = {}
        # Broker → its log of (leader epoch, record)
        self.logs: dict[int, list[tuple[int, int]]] = {broker: [] for broker in range(brokers)}
        self.directories = {broker: UUID(int=1000 + broker) for broker in range(brokers)}
        self.acknowledged: list[tuple[int, int]] = []
        # Stopped brokers that lost no records → epoch of their last incarnation
        self._trusted_epochs: dict[int, int] = {}
        self.losses = 0  # how many brokers may have lost acknowledged records
        # Proposals that may be delivered, lost or repeated: (broker, broker epoch, proposal)
        self.sent: list[tuple[int, int, IsrChangeRequest]] = []
        self._last_record = 0
        self._last_incarnation = 0
        for broker in range(brokers):
            self._register(broker, previous_epoch=-1)
        self.commit([TopicRecord("t", TOPIC)])
        all_replicas, isr = tuple(replicas), tuple(replicas[:initial_isr_size])
        directories = tuple(self.directories[broker] for broker in all_replicas)
        initial = PartitionRecord(TOPIC, 0, all_replicas, isr, isr[0], directories=directories)
        self.commit([election.with_initial_eligible_replicas(initial, self.rules)])
        for broker in range(brokers):
            self.processes[broker] = self._new_process(broker)
            self.commit(broker_plans.plan_unfencing(self.image, broker, self.rules_of))

    def rules_of(self, topic: UUID) -> TopicElectionRules:
        return self.rules

    @property
    def state(self) -> PartitionRecord:
        return self.image.topics["t"].partitions[0]

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, PartitionRecord) and (old := self.image.topics["t"].partitions.get(0)):
                self._check_step(old, record)
        self.image.apply_records((self.image.end_offset + n, record) for n, record in enumerate(records))

    def _check_step(self, old: PartitionRecord, new: PartitionRecord) -> None:
        """Raises AssertionError unless the new record may follow the old one."""
        assert new.partition_epoch == old.partition_epoch + 1
        assert new.leader_epoch == old.leader_epoch + (new.leader != old.leader)
        assert set(new.isr) <= set(new.replicas) and set(new.eligible) <= set(new.replicas)
        assert not set(new.isr) & set(new.eligible)
        assert set(new.last_known) <= set(new.replicas) - {*new.isr, *new.eligible}
        assert set(new.emptied) <= set(new.replicas) - set(new.isr)
        assert new.leader == NO_LEADER or new.leader in new.isr
        assert len(set(new.replicas)) == len(new.replicas) == len(new.directories)
        assert set(new.adding) | set(new.removing) <= set(new.replicas)
        if not self.losses:
            assert new.isr

    # --- brokers

    def _register(self, broker: int, previous_epoch: int) -> None:
        self._last_incarnation += 1
        registration = RegisterBrokerRecord(
            broker, UUID(int=self._last_incarnation), {"P": Endpoint("h", 1)}, directories=(self.directories[broker],)
        )
        broker_plans.validate_registration(self.image, registration, in_session=False)
        self.commit(broker_plans.plan_broker_registration(self.image, registration, previous_epoch, self.rules_of))

    def _new_process(self, broker: int) -> Process:
        return Process(self.image.brokers[broker].epoch, self.state, self._epochs())

    def _epochs(self) -> dict[int, int]:
        return {broker.id: broker.epoch for broker in self.image.brokers.values()}

    def kill(self, broker: int) -> None:
        """Kills the process. Its records stay in the page cache."""
        if (process := self.processes.pop(broker, None)) is not None:
            self._trusted_epochs[broker] = process.epoch

    def lose_power(self, broker: int, keeps: int) -> None:
        """Kills the broker, with the loss of all but the first `keeps` records unless records are
        synced. Nothing happens if more brokers would lose records than the topic tolerates.
        """
        if self.rules.acks_are_synced:
            self.kill(broker)
            self._trusted_epochs.pop(broker, None)
        elif self.losses < self.rules.min_insync - 1:
            self.losses += 1
            self.kill(broker)
            self._trusted_epochs.pop(broker, None)
            del self.logs[broker][keeps:]

    def wipe(self, broker: int) -> None:
        """Replaces the disk, unless more brokers would lose records than the topic tolerates."""
        if self.losses < self.rules.min_insync - 1:
            self.losses += 1
            self.kill(broker)
            self._trusted_epochs.pop(broker, None)
            self.logs[broker] = []
            self.directories[broker] = UUID(int=self.directories[broker].int + 1000)

    def start(self, broker: int) -> None:
        if broker not in self.processes:
            self._register(broker, previous_epoch=self._trusted_epochs.pop(broker, -1))
            self.processes[broker] = self._new_process(broker)

    def restart(self, broker: int) -> None:
        """Restarts a broker cleanly: controlled shutdown, fencing, registration."""
        if (process := self.processes.get(broker)) is not None and process.epoch == self.image.brokers[broker].epoch:
            self.commit(broker_plans.plan_controlled_shutdown(self.image, broker, self.rules_of))
            self.commit(broker_plans.plan_fencing(self.image, broker, self.rules_of))
            self._register(broker, previous_epoch=process.epoch)
            self.processes[broker] = self._new_process(broker)

    def send_heartbeat(self, broker: int) -> None:
        """The controller gets a heartbeat of the broker and unfences it."""
        process = self.processes.get(broker)
        if process is not None and process.epoch == self.image.brokers[broker].epoch:
            self.commit(broker_plans.plan_unfencing(self.image, broker, self.rules_of))

    def shut_down(self, broker: int) -> None:
        process = self.processes.get(broker)
        if process is not None and process.epoch == self.image.brokers[broker].epoch:
            self.commit(broker_plans.plan_controlled_shutdown(self.image, broker, self.rules_of))

    def fence(self, broker: int) -> None:
        """The controller fences the broker, which may still be running."""
        self.commit(broker_plans.plan_fencing(self.image, broker, self.rules_of))

    def read_metadata(self, broker: int) -> None:
        """The broker applies the newest metadata."""
        if (process := self.processes.get(broker)) is not None:
            if self.state.leader_epoch != process.partition.leader_epoch:
                process.follower_ends = {}
            if process.pending and self.state.partition_epoch > process.pending.partition_epoch:
                process.pending = None
            process.partition, process.broker_epochs = self.state, self._epochs()
            self._advance(broker)

    # --- replication, in its simplest form

    def produce(self, broker: int) -> None:
        process = self.processes.get(broker)
        if process is not None and process.partition.leader == broker:
            self._last_record += 1
            self.logs[broker].append((process.partition.leader_epoch, self._last_record))
            self._advance(broker)

    def fetch(self, follower: int) -> None:
        """The follower copies the log of its leader, which advances the high watermark."""
        process = self.processes.get(follower)
        if (
            process is None
            or process.partition.leader in (NO_LEADER, follower)
            or follower not in process.partition.replicas
        ):
            return
        leader = self.processes.get(process.partition.leader)
        if leader is None or leader.partition.leader_epoch != process.partition.leader_epoch:
            return
        if follower not in leader.partition.replicas:
            return
        self.logs[follower] = list(self.logs[process.partition.leader])
        # A new incarnation that the leader does not know may have left the ISR.
        if leader.broker_epochs[follower] == process.epoch:
            leader.follower_ends[follower] = (process.epoch, len(self.logs[follower]))
        process.high_watermark = max(process.high_watermark, leader.high_watermark)
        self._advance(process.partition.leader)

    def _advance(self, broker: int) -> None:
        """The leader advances its high watermark, below which records are acknowledged."""
        process = self.processes[broker]
        state = process.partition
        if state.leader != broker or len(state.isr) < effective_min_isr(state, self.rules.min_insync):
            return
        maximal = {*state.isr, *(b for b, _ in process.pending.isr)} if process.pending else set(state.isr)
        member_ends = [
            len(self.logs[broker]) if b == broker else process.follower_ends.get(b, (0, 0))[1] for b in maximal
        ]
        process.high_watermark = max(process.high_watermark, min(member_ends))
        if process.high_watermark > len(self.acknowledged):
            self.acknowledged = self.logs[broker][: process.high_watermark]

    def propose(self, broker: int, excluded: int) -> None:
        """The leader proposes an ISR of itself and of all followers that have caught up, except
        `excluded`."""
        process = self.processes.get(broker)
        if process is None or process.partition.leader != broker or process.pending is not None:
            return
        end = len(self.logs[broker])
        members = [
            b
            for b in process.partition.replicas
            if b == broker or (b in process.follower_ends and process.follower_ends[b][1] == end and b != excluded)
        ]
        isr = [(b, process.epoch if b == broker else process.follower_ends[b][0]) for b in members]
        process.pending = IsrChangeRequest(
            TOPIC, 0, process.partition.leader_epoch, process.partition.partition_epoch, isr
        )
        self.sent.append((broker, process.epoch, process.pending))

    def deliver(self, index: int, *, duplicate: bool) -> None:
        """The controller gets one of the sent proposals. `index`: modulo their number. `duplicate`:
        the same proposal may be delivered again.
        """
        if not self.sent:
            return
        broker, epoch, proposal = self.sent[index % len(self.sent)]
        if not duplicate:
            self.sent.remove((broker, epoch, proposal))
        if self.image.brokers[broker].epoch != epoch:
            return
        candidates = election_candidates(self.image)
        try:
            new = isr_changes.apply_isr_change(self.state, proposal, broker, self.image.brokers, candidates, self.rules)
        except KafkaError:
            return
        self.commit([new])

    # --- administrators

    def reassign(self, targets: Sequence[int]) -> None:
        if len(targets) < self.rules.min_insync:
            return  # with fewer replicas the losses that `losses` allows would be data loss
        directories = {broker: self.directories[broker] for broker in targets}
        try:
            new = reassignment.begin_reassignment(
                self.state, targets, directories, election_candidates(self.image), self.rules
            )
        except KafkaError:
            return
        self.commit([] if new is None else [new])

    def cancel(self) -> None:
        try:
            new = reassignment.cancel_reassignment(self.state, election_candidates(self.image), self.rules)
        except KafkaError:
            return
        self.commit([] if new is None else [new])

    def elect_preferred(self) -> None:
        new = election.elect_preferred_leader(self.state, election_candidates(self.image))
        self.commit([] if new is None else [new])

    # --- invariants

    def check(self) -> None:
        """Raises AssertionError unless the leader, if it runs, is unfenced and has every
        acknowledged record.
        """
        leader = self.state.leader
        if leader in self.processes:  # a stopped broker serves nobody until it has registered again
            prefix = self.logs[leader][: len(self.acknowledged)]
            assert prefix == self.acknowledged, (
                f"broker {leader} leads without {len(self.acknowledged)} acknowledged records"
            )
            assert not self.image.brokers[leader].fenced
