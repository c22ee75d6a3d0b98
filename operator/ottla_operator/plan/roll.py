"""Which broker may restart next.

Invariant: after any step that this module allows, every partition that could accept an acks=all write before can still accept one, and none loses its
last replica in sync, except where its number of replicas makes that impossible. The metadata log, which makes a broker the controller, is one of them. It is
kept by looking at live ISRs, not at the last plan; so a step is only ever one broker, and the caller asks again.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class BrokerState:
    """`outdated`: why it has to be restarted, in words; empty when it has not. `ready`: it serves, and the cluster counts on it. `relied_on`: the cluster
    counts on it although it is not said to be ready: it may be slow, and in sync."""

    id: int
    is_ready: bool
    outdated: str
    is_registered: bool = False


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`min_isr`: the min.insync.replicas that hold for its topic."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int


@dataclass(frozen=True, slots=True)
class Blocker:
    """A partition that could not lose `broker` now: `needed` others have to be in sync."""

    broker: int
    topic: str
    partition: int
    isr: tuple[int, ...]
    needed: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} has {', '.join(map(str, self.isr)) or 'nobody'} in sync, and needs {self.needed} beside broker {self.broker}"


@dataclass(frozen=True, slots=True)
class RestartBroker:
    broker: int
    reason: str


@dataclass(frozen=True, slots=True)
class RollBlocked:
    """`down`: brokers that have to come back first. `blocked_by`: what a person has to look at when it lasts."""

    down: tuple[int, ...] = ()
    blocked_by: tuple[Blocker, ...] = ()


@dataclass(frozen=True, slots=True)
class RollComplete:
    pass


RollStep: TypeAlias = RestartBroker | RollBlocked | RollComplete


def step_without_partitions(brokers: Sequence[BrokerState], max_unavailable: int = 1) -> RollStep | None:
    """What is to be done whatever partitions there are; None when they have to be looked at. `max_unavailable`: how many brokers may be away at once."""
    if not any(it.outdated for it in brokers):
        return RollComplete()
    down = [it for it in brokers if not it.is_ready]
    if first := next((it for it in down if it.outdated and not it.is_registered), None):
        return RestartBroker(first.id, first.outdated)  # it serves nobody: it goes first
    if len(down) >= max_unavailable and not any(it.outdated for it in down):
        return RollBlocked(down=tuple(it.id for it in down))
    return None


def next_roll_step(
    brokers: Sequence[BrokerState],
    partitions: Iterable[PartitionState],
    controller: int | None,
    max_unavailable: int = 1,
) -> RollStep:
    """`brokers`: all that there should be, and of those that leave the ones that are still there. `partitions`: all of them, and the metadata log; they are
    kept writable however many may be away."""
    if step := step_without_partitions(brokers, max_unavailable):
        return step
    down = [it.id for it in brokers if not it.is_ready]
    there = {it.id for it in brokers if it.is_ready}
    blockers: list[Blocker] = []
    every = list(partitions)
    may_go = [it for it in brokers if it.outdated and (not it.is_ready or len(down) < max_unavailable)]
    # Those that are not ready first, the controller last.
    for broker in sorted(may_go, key=lambda it: (it.is_ready, it.id == controller, it.id)):
        found = find_blockers(broker.id, every, there)
        if not found:
            return RestartBroker(broker.id, broker.outdated)
        blockers += found
    return RollBlocked(tuple(down), tuple(blockers))


def find_blockers(
    broker: int, partitions: Iterable[PartitionState], there: Collection[int] | None = None
) -> list[Blocker]:
    """Partitions that need this broker now. `there`: brokers that are, all when not given. One that is just being restarted, or is dead and not yet missed, is
    still told to be in sync, and helps nobody."""
    found: list[Blocker] = []
    for it in partitions:
        in_sync = tuple(at for at in it.isr if at == broker or there is None or at in there)
        needed = min(it.min_isr, len(it.replicas) - 1)
        if broker in in_sync and len(in_sync) - 1 < needed:
            found.append(Blocker(broker, it.topic, it.partition, in_sync, needed))
    return found


def metadata_log_state(
    topic: str, voters: Collection[int], in_sync: Collection[int], ready: Iterable[int]
) -> PartitionState:
    """The metadata log as a partition among the others: it takes records while a majority of its members is there. `in_sync`: members that have what is
    committed, as of a moment ago. `ready`: brokers that could be members, which it waits for: until one of two has been taken in again, the other is not to
    go."""
    replicas = tuple(dict.fromkeys([*voters, *ready]))
    return PartitionState(topic, 0, replicas, tuple(in_sync), len(voters) // 2 + 1)
