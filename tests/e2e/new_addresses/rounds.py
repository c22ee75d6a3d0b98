"""One round: all brokers are killed, move, and start again; every group must read the records
written afterwards.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from tests.e2e.new_addresses.client import MEMBERS
from tests.e2e.new_addresses.client_processes import ClientProcesses, start_client
from tests.e2e.new_addresses.moving_cluster import MovingCluster
from tests.waiting import eventually

READS_ON_WITHIN_S: Final = 180.0  # three times librdkafka's default socket.timeout.ms
JOINS_WITHIN_S: Final = 360.0  # more than librdkafka's default max.poll.interval.ms
REBALANCE_DELAY_MS: Final = 10_000  # group.initial.rebalance.delay.ms
ROUNDS_OF_ONE_GROUP: Final = 20  # then new groups begin: old members may know what new ones do not
LONGEST_DOWN_S: Final = 5.0
# How clients lose their brokers, with weights. "closed": the hosts close the connections of dead
# processes, and the names lead to addresses where nothing answers. "unnamed": the hosts close them,
# and the names do not resolve. "silent": nothing closes the connections, and the names lead to
# addresses where nothing answers.
LOSSES: Final = {"closed": 6, "unnamed": 6, "silent": 1}


@dataclass
class RoundResult:
    """`healthy_s`: from the start of the brokers until all partitions were in sync. `read_on_s`: by
    kind of group, from then until the group had read records of all partitions that were written
    after that; for "producer", until such records were acknowledged. `stuck`: the groups, or
    "producer", for which this took too long.
    """

    number: int
    loss: str
    down_s: float
    healthy_s: float
    read_on_s: dict[str, float] = field(default_factory=dict)
    stuck: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        times = ", ".join(f"{group} {seconds:.1f} s" for group, seconds in self.read_on_s.items())
        stuck = f"; STUCK: {', '.join(self.stuck)}" if self.stuck else ""
        return (
            f"{time.strftime('%H:%M:%S')} round {self.number}: {self.loss}, down {self.down_s:.1f} s, "
            f"healthy after {self.healthy_s:.1f} s; read on: {times}{stuck}"
        )


def run_rounds(
    moving: MovingCluster, kinds: Sequence[str], count: int, seed: str, folder: Path
) -> Iterator[RoundResult]:
    random = Random(seed)
    for first in range(1, count + 1, ROUNDS_OF_ONE_GROUP):
        numbers = range(first, min(first + ROUNDS_OF_ONE_GROUP, count + 1))
        with run_clients(moving, kinds, f"t{seed}-{first}", folder) as (producer, groups):
            for number in numbers:
                yield run_round(moving, producer, groups, number, random)


@contextmanager
def run_clients(
    moving: MovingCluster, kinds: Sequence[str], topic: str, folder: Path
) -> Iterator[tuple[ClientProcesses, dict[str, ClientProcesses]]]:
    """Yields a producer and, by kind, groups that have read records of all partitions."""
    clients = [start_client(moving, "producer", topic, f"{topic}-producer", folder)]
    try:
        [producer] = clients
        eventually(producer.has_all_partitions, within_s=60, message="records in all partitions")
        groups = {kind: start_client(moving, kind, topic, f"{topic}-{kind}", folder) for kind in kinds}
        clients.extend(groups.values())
        for kind, group in groups.items():
            eventually(group.has_all_partitions, within_s=60, message=f"{kind} reads")
        yield producer, groups
    finally:
        for client in clients:
            client.kill()


def run_round(
    moving: MovingCluster, producer: ClientProcesses, groups: dict[str, ClientProcesses], number: int, random: Random
) -> RoundResult:
    loss = random.choices(list(LOSSES), list(LOSSES.values()))[0]
    return lose_brokers(moving, producer, groups, number, loss, random.uniform(0, LONGEST_DOWN_S), READS_ON_WITHIN_S)


def run_joining_rounds(
    moving: MovingCluster, kinds: Sequence[str], count: int, seed: str, folder: Path
) -> Iterator[RoundResult]:
    """The brokers fall silent while the members of new groups of librdkafka wait for the responses
    of JoinGroup, which the coordinator holds back for `REBALANCE_DELAY_MS`.
    """
    for number in range(1, count + 1):
        topic = f"j{seed}-{number}"
        with run_clients(moving, (), topic, folder) as (producer, groups):
            groups |= {kind: start_client(moving, kind, topic, f"{topic}-{kind}", folder) for kind in kinds}
            try:
                for kind, group in groups.items():
                    joining = partial(have_all_sent_join_requests, group)
                    eventually(joining, within_s=60, message=f"both members of {kind} have sent JoinGroup")
                yield lose_brokers(moving, producer, groups, number, "silent", 0.0, JOINS_WITHIN_S)
            finally:
                for group in groups.values():
                    group.kill()


def have_all_sent_join_requests(group: ClientProcesses) -> bool:
    return group.count_join_requests() >= MEMBERS


def lose_brokers(
    moving: MovingCluster,
    producer: ClientProcesses,
    groups: dict[str, ClientProcesses],
    number: int,
    loss: str,
    down_s: float,
    reads_on_within_s: float,
) -> RoundResult:
    """Kills all brokers, moves them, and starts them again after `down_s`. Returns when the
    producer and all groups have gone on, or after `reads_on_within_s`. `loss`: a key of `LOSSES`.
    """
    if loss == "silent":
        moving.move_all()
        moving.kill_all()
    else:
        moving.kill_all()
        if loss == "unnamed":
            moving.publish_names(of_brokers=False)
        moving.move_all()
    time.sleep(down_s)
    started = time.monotonic()
    moving.publish_names()
    moving.start_all()
    healthy = time.monotonic()
    result = RoundResult(number, loss, down_s, healthy - started)
    producer.update()
    before = dict(producer.ends)
    wanted: dict[int, int] = {}
    waiting = dict(groups)
    while waiting or not wanted:
        elapsed_s = time.monotonic() - healthy
        producer.update()
        if not wanted and all(producer.ends[partition] > end for partition, end in before.items()):
            wanted = dict(producer.ends)
            result.read_on_s["producer"] = elapsed_s
        for kind, group in list(waiting.items()):
            if wanted and group.has_reached(wanted):
                result.read_on_s[kind] = elapsed_s
                del waiting[kind]
        if elapsed_s > reads_on_within_s:
            result.stuck = [*(() if wanted else ("producer",)), *waiting]
            break
        time.sleep(0.1)
    return result
