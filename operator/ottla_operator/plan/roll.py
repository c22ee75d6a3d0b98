"""Decides which broker may be restarted next.

Invariant: after any step that this module allows, every partition that could accept an acks=all
write before can still accept one, and none loses its last in-sync replica, except where its
replication factor makes that impossible. The metadata log, which makes a broker the controller, is
one of these partitions. The invariant holds because every step is decided from the current ISRs,
not from an earlier plan. So a step is only ever one broker, and the caller asks again.

The second broker of a roll is restarted only when one broker is ready with the new setting or
image, whatever `max_unavailable` is. So a setting or image with which no broker starts makes only
one broker unavailable.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class BrokerState:
    """`is_ready`: it serves, and is registered and unfenced. `outdated`: why it must be restarted;
    empty if it need not be. `is_registered`: registered and unfenced, though perhaps not ready. It
    may be slow, and still in sync."""

    id: int
    is_ready: bool
    outdated: str
    is_registered: bool = False


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`min_isr`: the min.insync.replicas of its topic."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int


@dataclass(frozen=True, slots=True)
class Blocker:
    """A partition that cannot lose `broker` now: `needed` other replicas must be in sync."""

    broker: int
    topic: str
    partition: int
    isr: tuple[int, ...]
    needed: int

    def __str__(self) -> str:
        in_sync = ", ".join(map(str, self.isr)) or "no broker"
        return (
            f"{self.topic}-{self.partition} has {in_sync} in sync and needs {self.needed} besides broker {self.broker}"
        )


@dataclass(frozen=True, slots=True)
class RestartBroker:
    broker: int
    reason: str


@dataclass(frozen=True, slots=True)
class RollBlocked:
    """`down`: brokers that must be ready first. `blocked_by`: the partitions to examine if the
    state lasts.
    """

    down: tuple[int, ...] = ()
    blocked_by: tuple[Blocker, ...] = ()


@dataclass(frozen=True, slots=True)
class RollComplete:
    pass


RollStep: TypeAlias = RestartBroker | RollBlocked | RollComplete


def step_without_partitions(brokers: Sequence[BrokerState], max_unavailable: int = 1) -> RollStep | None:
    """The step if it does not depend on ISRs; None if it does. `max_unavailable`: number of brokers
    that may be unavailable at once.
    """
    if not any(it.outdated for it in brokers):
        return RollComplete()
    down = [it for it in brokers if not it.is_ready]
    if first := next((it for it in down if it.outdated and not it.is_registered), None):
        return RestartBroker(first.id, first.outdated)  # it serves nobody
    if len(down) >= _limit(brokers, max_unavailable) and not any(it.outdated for it in down):
        return RollBlocked(down=tuple(it.id for it in down))
    return None


def next_roll_step(
    brokers: Sequence[BrokerState],
    partitions: Iterable[PartitionState],
    controller: int | None,
    max_unavailable: int = 1,
) -> RollStep:
    """`brokers`: those of the spec, and those being removed that still run. `partitions`: all
    partitions and the metadata log; they stay writable for any `max_unavailable`.
    """
    if step := step_without_partitions(brokers, max_unavailable):
        return step
    down = [it.id for it in brokers if not it.is_ready]
    ready = {it.id for it in brokers if it.is_ready}
    blockers: list[Blocker] = []
    all_partitions = list(partitions)
    limit = _limit(brokers, max_unavailable)
    candidates = [it for it in brokers if it.outdated and (not it.is_ready or len(down) < limit)]
    # Brokers that are not ready first, the controller last.
    for broker in sorted(candidates, key=lambda it: (it.is_ready, it.id == controller, it.id)):
        found = find_blockers(broker.id, all_partitions, ready)
        if not found:
            return RestartBroker(broker.id, broker.outdated)
        blockers += found
    return RollBlocked(tuple(down), tuple(blockers))


def _limit(brokers: Sequence[BrokerState], max_unavailable: int) -> int:
    """Number of brokers that may be unavailable at once."""
    is_proven = any(it.is_ready and not it.outdated for it in brokers)
    return max_unavailable if is_proven else 1


def find_blockers(
    broker: int, partitions: Iterable[PartitionState], ready: Collection[int] | None = None
) -> list[Blocker]:
    """Partitions that need this broker now. `ready`: other brokers count only if they are among
    these; None: all count. A broker that is restarting, or has failed and is not yet fenced, is
    still in ISRs and does not count.
    """
    found: list[Blocker] = []
    for partition in partitions:
        in_sync = tuple(it for it in partition.isr if it == broker or ready is None or it in ready)
        needed = min(partition.min_isr, len(partition.replicas) - 1)
        if broker in in_sync and len(in_sync) - 1 < needed:
            found.append(Blocker(broker, partition.topic, partition.partition, in_sync, needed))
    return found


def metadata_log_state(topic: str, voters: Collection[int], in_sync: Collection[int]) -> PartitionState:
    """The metadata log as a partition: it is writable while a majority of its voters is available.
    `in_sync`: voters that had all committed records a moment ago. A single voter is restarted too,
    because no other broker can become controller.
    """
    return PartitionState(topic, 0, tuple(voters), tuple(in_sync), len(voters) // 2 + 1)
