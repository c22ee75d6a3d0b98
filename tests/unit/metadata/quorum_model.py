"""The quorum's rules in a world of lists: brokers with logs, promises and epochs, a register, and messages that come late or never.

Nothing here waits or writes: one random step after the other, each as the real code takes it, with the real rules. `Broken` when a committed
record is not in a later leader's log, when two lead in one epoch, or when a broker would take back what it was told is committed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from ottla_broker.log.leader_epochs import LeaderEpochs
from ottla_broker.metadata import quorum_rules
from ottla_broker.metadata.metadata_fetch import find_diverging_epoch, truncation_offset
from ottla_broker.metadata.quorum_rules import EpochAndOffset, ReplicaKey, Voter

Entry = tuple[int, int]  # epoch, value


class Broken(AssertionError):
    pass


@dataclass
class Office:
    epoch: int
    memberships: list[tuple[Voter, ...]]
    claims: dict[ReplicaKey, EpochAndOffset] = field(default_factory=dict)
    ends: dict[ReplicaKey, int] = field(default_factory=dict)
    start: int | None = None


@dataclass
class Ask:
    asker: "Node"
    life: int
    number: int
    epoch: int
    position: EpochAndOffset


@dataclass
class Answer:
    ask: Ask
    diverging: EpochAndOffset | None
    records: list[Entry]
    high_watermark: int


class Node:
    def __init__(self, member: Voter) -> None:
        self.member = member
        self.log: list[Entry] = []
        self.durable = 0
        self.promised = 0
        self.following: ReplicaKey | None = None  # the leader of the epoch promised
        self.high_watermark = 0
        self.office: Office | None = None
        self.life = 0
        self.asked = 0

    @property
    def key(self) -> ReplicaKey:
        return self.member.key

    @property
    def position(self) -> EpochAndOffset:
        return EpochAndOffset(self.log[-1][0] if self.log else -1, len(self.log))

    @property
    def epochs(self) -> LeaderEpochs:
        entries = [(epoch, at) for at, (epoch, _) in enumerate(self.log) if at == 0 or self.log[at - 1][0] != epoch]
        return LeaderEpochs("", entries)


class World:
    def __init__(self, random: Random, brokers: int) -> None:
        self.random = random
        self.nodes = [Node(Voter(broker, UUID(int=broker))) for broker in range(1, brokers + 1)]
        self.directories = brokers
        self.members: tuple[Voter, ...] = (self.nodes[0].member,)
        self.epoch = 0
        self.leader: ReplicaKey | None = None
        self.messages: list[Ask | Answer] = []
        self.committed: list[Entry] = []
        self.leaders: dict[int, ReplicaKey] = {}
        self.values = 0
        self.established = 0
        self.changed = 0
        steps: dict[Callable[[], None], int] = {
            self.take_over: 1,
            self.crash: 1,
            self.lose_message: 3,
            self.promise: 10,
            self.change_members: 10,
            self.append: 12,
            self.establish: 20,
            self.sync: 20,
            self.ask: 40,
            self.deliver: 80,
        }
        self.steps, self.weights = list(steps), list(steps.values())

    def run(self, steps: int) -> None:
        for step in self.random.choices(self.steps, self.weights, k=steps):
            step()
        if self.random.random() < 0.1:
            self.wipe()

    def node(self) -> Node:
        return self.random.choice(self.nodes)

    def officer(self) -> tuple[Node, Office] | None:
        found = [(node, node.office) for node in self.nodes if node.office is not None]
        return self.random.choice(found) if found else None

    # --- the register, and who leads

    def take_over(self) -> None:
        node = self.node()
        if node.key in [member.key for member in self.members]:
            self.epoch += 1
            self.leader = node.key
            node.promised, node.following = self.epoch, node.key
            node.durable = len(node.log)
            node.office = Office(self.epoch, [self.members])

    def promise(self) -> None:
        node = self.node()
        if self.leader is not None and self.epoch > node.promised:
            node.promised, node.following, node.office = self.epoch, self.leader, None
            node.asked += 1  # what was asked before is not waited for any more

    def establish(self) -> None:
        if (found := self.officer()) is None or found[1].start is not None:
            return
        node, office = found
        members = office.memberships[0]
        heard = {member.key: office.claims[member.key] for member in members if member.key in office.claims}
        if len(heard) + 1 < quorum_rules.election_quorum_size(len(members)):
            return
        node.durable = len(node.log)
        best = max(heard, key=lambda key: heard[key], default=None)
        if best is not None and heard[best] > node.position:
            source = next((one for one in self.nodes if one.key == best), None)
            if source is None or source.promised != office.epoch or source.following != node.key:
                del office.claims[best]
                return
            self._copy(node, source)
            return
        office.start = len(node.log)
        if self.leaders.setdefault(office.epoch, node.key) != node.key:
            raise Broken(f"two lead in epoch {office.epoch}")
        if node.log[: len(self.committed)] != self.committed:
            raise Broken(f"the leader of epoch {office.epoch} lacks what was committed")
        self.established += 1
        node.log.append((office.epoch, -1))

    def _copy(self, node: Node, source: Node) -> None:
        while (parting := find_diverging_epoch(source.epochs, len(source.log), node.position)) is not None:
            self._cut(node, truncation_offset(node.epochs, len(node.log), parting))
        node.log += source.log[len(node.log) :]
        node.durable = len(node.log)

    def _cut(self, node: Node, offset: int) -> None:
        if offset < node.high_watermark:
            raise Broken(f"broker {node.key[0]} would take back what is committed")
        if offset >= len(node.log):
            raise Broken("a cut that cuts nothing off")
        del node.log[offset:]
        node.durable = min(node.durable, offset)

    def append(self) -> None:
        if (found := self.officer()) is not None and found[1].start is not None:
            self.values += 1
            found[0].log.append((found[1].epoch, self.values))

    def sync(self) -> None:
        if (found := self.officer()) is not None:
            node, office = found
            node.durable = len(node.log)
            office.ends[node.key] = node.durable
            self._advance(node, office)

    def _advance(self, node: Node, office: Office) -> None:
        if office.start is None:
            return
        point = quorum_rules.committed_offset(office.ends, office.memberships)
        if point > office.start and point > node.high_watermark:
            node.high_watermark = point
            known = self.committed[:point]
            if node.log[: len(known)] != known:
                raise Broken(f"epoch {office.epoch} commits other records than were committed before")
            self.committed += node.log[len(self.committed) : point]

    def change_members(self) -> None:
        """Asks for another membership, or hears what became of it."""
        if (found := self.officer()) is None or (start := found[1].start) is None:
            return
        node, office = found
        if len(office.memberships) == 2:
            if self.epoch == office.epoch:
                self.members = office.memberships[1]
                office.memberships = [self.members]
                self.changed += 1
                self._advance(node, office)
            return
        members = office.memberships[0]
        other = self.node().member
        if other.key == node.key:
            return
        without = tuple(member for member in members if member.broker != other.broker)
        wanted = without if len(without) < len(members) else (*members, other)
        if quorum_rules.can_propose_voters(
            wanted, office.ends, high_watermark=node.high_watermark, epoch_start_offset=start
        ):
            office.memberships = [members, wanted]
            if self.random.random() < 0.3 and self.epoch == office.epoch:
                self.members = wanted  # written, and the leader does not hear of it yet

    # --- messages

    def ask(self) -> None:
        node = self.node()
        if node.promised and node.following != node.key:
            node.durable = len(node.log)
            node.asked += 1
            self.messages.append(Ask(node, node.life, node.asked, node.promised, node.position))

    def deliver(self) -> None:
        if self.messages:
            message = self.messages.pop(self.random.randrange(len(self.messages)))
            if isinstance(message, Ask):
                self._asked(message)
            else:
                self._answered(message)

    def lose_message(self) -> None:
        if self.messages:
            self.messages.pop(self.random.randrange(len(self.messages)))

    def _asked(self, ask: Ask) -> None:
        node = next((n for n in self.nodes if n.office is not None and n.office.epoch == ask.epoch), None)
        if node is None or node.office is None:
            return
        office = node.office
        office.claims[ask.asker.key] = ask.position
        if office.start is None:
            return
        parting = find_diverging_epoch(node.epochs, len(node.log), ask.position)
        if parting is None:
            office.ends[ask.asker.key] = ask.position.offset
            self._advance(node, office)
        up_to = self.random.randint(ask.position.offset, max(len(node.log), ask.position.offset))
        mark = node.high_watermark if node.high_watermark > office.start else -1
        self.messages.append(Answer(ask, parting, node.log[ask.position.offset : up_to], mark))

    def _answered(self, answer: Answer) -> None:
        ask = answer.ask
        node = ask.asker
        if (node.life, node.asked, node.promised) != (ask.life, ask.number, ask.epoch):
            return
        node.asked += 1
        if answer.diverging is not None:
            self._cut(node, truncation_offset(node.epochs, len(node.log), answer.diverging))
            return
        node.log += answer.records
        node.high_watermark = max(node.high_watermark, min(answer.high_watermark, len(node.log)))

    # --- what befalls brokers

    def crash(self) -> None:
        node = self.node()
        kept = self.random.randint(node.durable, len(node.log))
        del node.log[kept:]
        node.high_watermark = min(node.high_watermark, kept)
        node.office = None
        node.life += 1

    def wipe(self) -> None:
        node = self.node()
        self.directories += 1
        gone = self.nodes.index(node)
        self.nodes[gone] = Node(Voter(node.member.broker, UUID(int=self.directories)))
