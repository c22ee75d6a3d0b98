"""Faults of brokers: one function for each kind, which injects it, waits, and removes it.

No fault may lose an acknowledged record with default settings. A killed process loses no page
cache, so any number of brokers may be killed. Only one broker's disk is wiped, while all others are
in sync and have no fault.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.brokers import BrokerProcess
from tests.clusters import ProcessCluster
from tests.disks import fill_disk
from tests.e2e.rounds.round_log import RoundLog
from tests.networks import OUTSIDE

SESSION_TIMEOUT_S = 2.5  # the default of broker.session.timeout.ms: some pauses are shorter, some longer


@dataclass(frozen=True)
class FaultContext:
    """Inputs of a fault. `topic`: the one under load; the roles leader and follower are those of
    its first partition.
    """

    cluster: ProcessCluster
    log: RoundLog
    random: Random
    topic: str


Fault = Callable[[FaultContext, int], None]


def kill(context: FaultContext, number: int) -> None:
    _broker(context, number).kill()
    context.log.write(f"kill -9 of broker {number}")
    if context.random.randrange(4) == 0:  # and once more while it recovers
        _sleep_between(context, 0.0, 2.0)
        _start_broker(context, number)
        _sleep_between(context, 0.1, 0.6)
        _broker(context, number).kill()
        context.log.write(f"kill -9 of broker {number} again")
    _sleep_between(context, 0.0, 5.0)
    _start_broker(context, number)


def stop(context: FaultContext, number: int) -> None:
    began = time.monotonic()
    code = _broker(context, number).stop()
    context.log.write(f"SIGTERM to broker {number}: exit code {code} after {time.monotonic() - began:.2f} s")
    _sleep_between(context, 0.0, 3.0)
    _start_broker(context, number)


def pause(context: FaultContext, number: int) -> None:
    _broker(context, number).pause()
    context.log.write(f"SIGSTOP to broker {number}")
    _sleep_between(context, 0.2, 2.5 * SESSION_TIMEOUT_S)
    _broker(context, number).resume()
    context.log.write(f"SIGCONT to broker {number}")


def fill_broker_disk(context: FaultContext, number: int) -> None:
    broker = _broker(context, number)
    filler = broker.log_dir / "filler"
    fill_disk(filler)
    context.log.write(f"the disk of broker {number} is full")
    _sleep_between(context, 0.5, 5.0)
    if context.random.randrange(4) == 0:
        broker.kill()
        context.log.write(f"kill -9 of broker {number}, its disk still full")
        _sleep_between(context, 0.0, 1.0)
        broker.spawn()
        _sleep_between(context, 0.5, 2.0)
    filler.unlink()
    context.log.write(f"the disk of broker {number} has space again")
    if not broker.is_running:
        _start_broker(context, number)


def wipe_disk(context: FaultContext, number: int) -> None:
    broker = _broker(context, number)
    broker.kill()
    for path in broker.log_dir.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    context.log.write(f"kill -9 of broker {number}, and its disk is empty")
    _sleep_between(context, 0.0, 3.0)
    _start_broker(context, number)


def isolate(context: FaultContext, number: int) -> None:
    """Cuts all links of the broker, those of clients too."""
    _cut_links(
        context,
        [
            link
            for other in _other_hosts(context, number, clients=True)
            for link in _both_directions(str(number), other)
        ],
    )


def isolate_from_brokers(context: FaultContext, number: int) -> None:
    """Cuts the links to the other brokers; clients still reach it."""
    _cut_links(
        context, [link for other in _other_hosts(context, number) for link in _both_directions(str(number), other)]
    )


def cut_one_link(context: FaultContext, number: int) -> None:
    _cut_links(context, _both_directions(str(number), context.random.choice(_other_hosts(context, number))))


def block_incoming(context: FaultContext, number: int) -> None:
    """Drops what the other brokers send to this one."""
    _cut_links(context, [(other, str(number)) for other in _other_hosts(context, number)])


def block_outgoing(context: FaultContext, number: int) -> None:
    """Drops what this broker sends to the other brokers."""
    _cut_links(context, [(str(number), other) for other in _other_hosts(context, number)])


def _cut_links(context: FaultContext, links: list[tuple[str, str]]) -> None:
    network = context.cluster.network
    assert network is not None
    for link in links:
        network.cut_link(*link)
    context.log.write("cut: " + ", ".join(f"{a} → {b}" for a, b in links))
    _sleep_between(context, 0.5, 2.5 * SESSION_TIMEOUT_S)
    for link in links:
        network.restore_link(*link)
    context.log.write("restored: " + ", ".join(f"{a} → {b}" for a, b in links))


def _both_directions(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]


def _other_hosts(context: FaultContext, number: int, *, clients: bool = False) -> list[str]:
    found = [str(other) for other in context.cluster.brokers if other != number]
    return [*found, OUTSIDE] if clients else found


def _broker(context: FaultContext, number: int) -> BrokerProcess:
    return context.cluster.brokers[number]


def _start_broker(context: FaultContext, number: int) -> None:
    _broker(context, number).spawn()
    context.log.write(f"starting broker {number}")


def _sleep_between(context: FaultContext, min_s: float, max_s: float) -> None:
    time.sleep(context.random.uniform(min_s, max_s))


# weight, name, function
FAULTS: tuple[tuple[int, str, Fault], ...] = (
    (6, "kill", kill),
    (2, "stop", stop),
    (4, "pause", pause),
    (3, "full disk", fill_broker_disk),
    (2, "wipe", wipe_disk),
    (3, "cut off", isolate),
    (3, "cut from brokers", isolate_from_brokers),
    (2, "cut from one", cut_one_link),
    (1, "deaf", block_incoming),
    (1, "mute", block_outgoing),
)
OTTLA_ONLY_FAULTS = ("full disk", "wipe")  # Kafka exits at the first failed write, and needs a formatted folder
EXCLUSIVE_FAULTS = ("wipe",)
ROLES = ("leader", "follower", "controller", "coordinator", "any")


@dataclass(frozen=True)
class PlannedFault:
    name: str
    fault: Fault
    role: str


def choose_faults(random: Random, kind: str) -> list[PlannedFault]:
    """The faults of a round: usually one, sometimes two at once, or all brokers killed."""
    possible = [entry for entry in FAULTS if kind == "ottla" or entry[1] not in OTTLA_ONLY_FAULTS]
    if random.randrange(12) == 0:
        return [PlannedFault("kill", kill, role) for role in ("controller", "any", "any")]
    count = 2 if random.randrange(3) == 0 else 1
    picked = random.choices(possible, [weight for weight, _, _ in possible], k=count)
    if any(name in EXCLUSIVE_FAULTS for _, name, _ in picked):
        picked = picked[:1] if picked[0][1] in EXCLUSIVE_FAULTS else picked[1:]
    return [PlannedFault(name, fault, random.choice(ROLES)) for _, name, fault in picked]


def choose_targets(context: FaultContext, planned: list[PlannedFault], coordinator: int) -> list[int]:
    """A broker for each fault, all different. A fault gets any other broker if those of its role
    are taken. `coordinator`: that of the group under load.
    """
    state = context.cluster.partition_state(context.topic)
    followers = [number for number in state.replicas if number != state.leader]
    targets: list[int] = []
    for fault in planned:
        candidates = {
            "leader": [state.leader],
            "follower": followers,
            "controller": [context.cluster.controller_id()],
            "coordinator": [coordinator],
            "any": list(context.cluster.brokers),
        }[fault.role]
        free = [number for number in candidates if number not in targets]
        targets.append(context.random.choice(free or [n for n in context.cluster.brokers if n not in targets]))
    return targets
