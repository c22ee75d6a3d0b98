"""One partition on a few brokers, in a model: logs, leaders that know less than the controller,
lost and repeated words, crashes, wiped disks.

The controller's part is the real one (the pure plans on a real image); brokers follow the rules of
replication in their simplest form. What is checked is what all of it is for: whoever the controller
has made leader has every acknowledged record.
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
    """One life of a broker. `known`, `registered`: the partition and the epochs of brokers as this
    one has heard of them; `ends`: follower → (its epoch, its log's end) in this leader epoch."""

    epoch: int
    known: PartitionRecord
    registered: dict[int, int]
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    watermark: int = 0
    pending: IsrChangeRequest | None = None


class World:
    """`began_with`: so many of the replicas were there when the partition was made. `synced`: what
    is fetched or appended is on the device at once.
    """

    def __init__(
        self,
        brokers: int,
        replicas: Sequence[int],
        min_insync: int,
        *,
        unclean: bool = False,
        synced: bool = False,
        began_with: int | None = None,
    ) -> None:
        self.rules = TopicElectionRules(min_insync, unclean, synced)
        self.image = MetadataImage()
        self.lives: dict[int, Process] = {}
        self.logs: dict[int, list[tuple[int, int]]] = {
            broker: [] for broker in range(brokers)
        }  # (leader epoch, record)
        self.directories = {broker: UUID(int=1000 + broker) for broker in range(brokers)}
        self.acknowledged: list[tuple[int, int]] = []
        self._kept: dict[int, int] = {}  # brokers that are down and lost nothing → the epoch of their last life
        self.losses = 0  # brokers that lost what others may rely on
        self.sent: list[
            tuple[int, int, IsrChangeRequest]
        ] = []  # on the way, or lost, or to come twice: (broker, its epoch, …)
        self._records = 0
        self._incarnations = 0
        for broker in range(brokers):
            self._register(broker, previous_epoch=-1)
        self.commit([TopicRecord("t", TOPIC)])
        everywhere, isr = tuple(replicas), tuple(replicas[:began_with])
        known = tuple(self.directories[broker] for broker in everywhere)
        made = PartitionRecord(TOPIC, 0, everywhere, isr, isr[0], directories=known)
        self.commit([election.with_initial_eligible_replicas(made, self.rules)])
        for broker in range(brokers):
            self.lives[broker] = self._life(broker)
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
        assert new.partition_epoch == old.partition_epoch + 1
        assert new.leader_epoch == old.leader_epoch + (new.leader != old.leader)
        assert set(new.isr) <= set(new.replicas) and set(new.eligible) <= set(new.replicas)
        assert not set(new.isr) & set(new.eligible)
        assert set(new.last_known) <= set(new.replicas) - {*new.isr, *new.eligible}
        assert new.leader == NO_LEADER or new.leader in new.isr
        assert len(set(new.replicas)) == len(new.replicas) == len(new.directories)
        assert set(new.adding) | set(new.removing) <= set(new.replicas)
        if not self.losses:
            assert new.isr

    # --- brokers

    def _register(self, broker: int, previous_epoch: int) -> None:
        self._incarnations += 1
        coming = RegisterBrokerRecord(
            broker, UUID(int=self._incarnations), {"P": Endpoint("h", 1)}, directories=(self.directories[broker],)
        )
        broker_plans.validate_registration(self.image, coming, in_session=False)
        self.commit(broker_plans.plan_registration(self.image, coming, previous_epoch, self.rules_of))

    def _life(self, broker: int) -> Process:
        return Process(self.image.brokers[broker].epoch, self.state, self._epochs())

    def _epochs(self) -> dict[int, int]:
        return {broker.id: broker.epoch for broker in self.image.brokers.values()}

    def kill(self, broker: int) -> None:
        """The process alone: what it wrote is in the machine's memory."""
        if (life := self.lives.pop(broker, None)) is not None:
            self._kept[broker] = life.epoch

    def lose_power(self, broker: int, keeps: int) -> None:
        """What it had not synced is gone."""
        if self.rules.acks_are_synced:
            self.kill(broker)
            self._kept.pop(broker, None)
        elif self.losses < self.rules.min_insync - 1:
            self.losses += 1
            self.kill(broker)
            self._kept.pop(broker, None)
            del self.logs[broker][keeps:]

    def wipe(self, broker: int) -> None:
        if self.losses < self.rules.min_insync - 1:
            self.losses += 1
            self.kill(broker)
            self._kept.pop(broker, None)
            self.logs[broker] = []
            self.directories[broker] = UUID(int=self.directories[broker].int + 1000)

    def start(self, broker: int) -> None:
        if broker not in self.lives:
            self._register(broker, previous_epoch=self._kept.pop(broker, -1))
            self.lives[broker] = self._life(broker)

    def restart(self, broker: int) -> None:
        """In order: it leaves, stops cleanly, and comes again."""
        if (life := self.lives.get(broker)) is not None and life.epoch == self.image.brokers[broker].epoch:
            self.commit(broker_plans.plan_controlled_shutdown(self.image, broker, self.rules_of))
            self.commit(broker_plans.plan_fencing(self.image, broker, self.rules_of))
            self._register(broker, previous_epoch=life.epoch)
            self.lives[broker] = self._life(broker)

    def hear(self, broker: int) -> None:
        """Its heartbeat comes to the controller."""
        life = self.lives.get(broker)
        if life is not None and life.epoch == self.image.brokers[broker].epoch:
            self.commit(broker_plans.plan_unfencing(self.image, broker, self.rules_of))

    def leave(self, broker: int) -> None:
        life = self.lives.get(broker)
        if life is not None and life.epoch == self.image.brokers[broker].epoch:
            self.commit(broker_plans.plan_controlled_shutdown(self.image, broker, self.rules_of))

    def fence(self, broker: int) -> None:
        """Whether it is dead or only slow."""
        self.commit(broker_plans.plan_fencing(self.image, broker, self.rules_of))

    def learn(self, broker: int) -> None:
        """It hears of the newest metadata."""
        if (life := self.lives.get(broker)) is not None:
            if self.state.leader_epoch != life.known.leader_epoch:
                life.ends = {}
            if life.pending and self.state.partition_epoch > life.pending.partition_epoch:
                life.pending = None
            life.known, life.registered = self.state, self._epochs()
            self._advance(broker)

    # --- replication, in its simplest form

    def produce(self, broker: int) -> None:
        life = self.lives.get(broker)
        if life is not None and life.known.leader == broker:
            self._records += 1
            self.logs[broker].append((life.known.leader_epoch, self._records))
            self._advance(broker)

    def fetch(self, follower: int) -> None:
        life = self.lives.get(follower)
        if life is None or life.known.leader in (NO_LEADER, follower) or follower not in life.known.replicas:
            return
        leader = self.lives.get(life.known.leader)
        if leader is None or leader.known.leader_epoch != life.known.leader_epoch:
            return
        if follower not in leader.known.replicas:
            return
        self.logs[follower] = list(self.logs[life.known.leader])
        if (
            leader.registered[follower] == life.epoch
        ):  # a life that the leader has not heard of may have left the ISR as it came
            leader.ends[follower] = (life.epoch, len(self.logs[follower]))
        life.watermark = max(life.watermark, leader.watermark)
        self._advance(life.known.leader)

    def _advance(self, broker: int) -> None:
        life = self.lives[broker]
        state = life.known
        if state.leader != broker or len(state.isr) < effective_min_isr(state, self.rules.min_insync):
            return
        maximal = {*state.isr, *(b for b, _ in life.pending.isr)} if life.pending else set(state.isr)
        ends = [len(self.logs[broker]) if b == broker else life.ends.get(b, (0, 0))[1] for b in maximal]
        life.watermark = max(life.watermark, min(ends))
        if life.watermark > len(self.acknowledged):
            self.acknowledged = self.logs[broker][: life.watermark]

    def propose(self, broker: int, drop: int) -> None:
        """The ISR with all that have caught up, or without one."""
        life = self.lives.get(broker)
        if life is None or life.known.leader != broker or life.pending is not None:
            return
        end = len(self.logs[broker])
        members = [
            b for b in life.known.replicas if b == broker or (b in life.ends and life.ends[b][1] == end and b != drop)
        ]
        isr = [(b, life.epoch if b == broker else life.ends[b][0]) for b in members]
        life.pending = IsrChangeRequest(TOPIC, 0, life.known.leader_epoch, life.known.partition_epoch, isr)
        self.sent.append((broker, life.epoch, life.pending))

    def deliver(self, which: int, *, again: bool) -> None:
        """One of the proposals on the way comes to the controller; it may come once more later."""
        if not self.sent:
            return
        broker, epoch, proposal = self.sent[which % len(self.sent)]
        if not again:
            self.sent.remove((broker, epoch, proposal))
        if self.image.brokers[broker].epoch != epoch:
            return
        voters = election_candidates(self.image)
        try:
            new = isr_changes.apply_isr_change(self.state, proposal, broker, self.image.brokers, voters, self.rules)
        except KafkaError:
            return
        self.commit([new])

    # --- people

    def reassign(self, targets: Sequence[int]) -> None:
        if len(targets) < self.rules.min_insync:
            return  # so few replicas promise less than `losses` allows
        places = {broker: self.directories[broker] for broker in targets}
        try:
            new = reassignment.begin_reassignment(
                self.state, targets, places, election_candidates(self.image), self.rules
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

    def prefer(self) -> None:
        new = election.elect_preferred_leader(self.state, election_candidates(self.image))
        self.commit([] if new is None else [new])

    # --- what must hold

    def check(self) -> None:
        leader = self.state.leader
        if leader in self.lives:  # what is dead serves nobody, until it comes and registers
            has = self.logs[leader][: len(self.acknowledged)]
            assert has == self.acknowledged, (
                f"broker {leader} leads without {len(self.acknowledged)} acknowledged records"
            )
            assert not self.image.brokers[leader].fenced
