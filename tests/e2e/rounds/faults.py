"""What is done to brokers: one kind of fault a function, which does it, waits, and mends it.

Everything here is covered by the promise of default settings: a killed process loses no page cache, so any number may be
killed; a disk is wiped only of one broker at a time, while all others are in sync and left alone.
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

SESSION_TIMEOUT_S = 2.5  # broker.session.timeout.ms: a pause is taken from both sides of it


@dataclass(frozen=True)
class FaultContext:
    """What a fault may know. `topic`: the one under load; its first partition gives `leader` and `follower` their meaning."""

    cluster: ProcessCluster
    log: RoundLog
    random: Random
    topic: str


Fault = Callable[[FaultContext, int], None]


def kill(scene: FaultContext, number: int) -> None:
    _broker(scene, number).kill()
    scene.log.write(f"kill -9 of broker {number}")
    if scene.random.randrange(4) == 0:  # and once more while it recovers
        _sleep_between(scene, 0.0, 2.0)
        _start_broker(scene, number)
        _sleep_between(scene, 0.1, 0.6)
        _broker(scene, number).kill()
        scene.log.write(f"kill -9 of broker {number} again")
    _sleep_between(scene, 0.0, 5.0)
    _start_broker(scene, number)


def stop(scene: FaultContext, number: int) -> None:
    began = time.monotonic()
    code = _broker(scene, number).stop()
    scene.log.write(f"SIGTERM to broker {number}: it ended with {code} after {time.monotonic() - began:.2f} s")
    _sleep_between(scene, 0.0, 3.0)
    _start_broker(scene, number)


def pause(scene: FaultContext, number: int) -> None:
    _broker(scene, number).pause()
    scene.log.write(f"SIGSTOP to broker {number}")
    _sleep_between(scene, 0.2, 2.5 * SESSION_TIMEOUT_S)
    _broker(scene, number).resume()
    scene.log.write(f"SIGCONT to broker {number}")


def fill_broker_disk(scene: FaultContext, number: int) -> None:
    broker = _broker(scene, number)
    filler = broker.log_dir / "filler"
    fill_disk(filler)
    scene.log.write(f"the disk of broker {number} is full")
    _sleep_between(scene, 0.5, 5.0)
    if scene.random.randrange(4) == 0:
        broker.kill()
        scene.log.write(f"kill -9 of broker {number}, its disk still full")
        _sleep_between(scene, 0.0, 1.0)
        broker.spawn()
        _sleep_between(scene, 0.5, 2.0)
    filler.unlink()
    scene.log.write(f"the disk of broker {number} has room again")
    if not broker.is_running:
        _start_broker(scene, number)


def wipe_disk(scene: FaultContext, number: int) -> None:
    broker = _broker(scene, number)
    broker.kill()
    for path in broker.log_dir.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    scene.log.write(f"kill -9 of broker {number}, and its disk is empty")
    _sleep_between(scene, 0.0, 3.0)
    _start_broker(scene, number)


def isolate(scene: FaultContext, number: int) -> None:
    """From everybody."""
    _cut_links(
        scene,
        [way for other in _other_hosts(scene, number, clients=True) for way in _both_directions(str(number), other)],
    )


def isolate_from_brokers(scene: FaultContext, number: int) -> None:
    """From the other brokers, while clients still reach it."""
    _cut_links(scene, [way for other in _other_hosts(scene, number) for way in _both_directions(str(number), other)])


def cut_one_link(scene: FaultContext, number: int) -> None:
    _cut_links(scene, _both_directions(str(number), scene.random.choice(_other_hosts(scene, number))))


def block_incoming(scene: FaultContext, number: int) -> None:
    """Nothing of what others send arrives; what it sends does."""
    _cut_links(scene, [(other, str(number)) for other in _other_hosts(scene, number)])


def block_outgoing(scene: FaultContext, number: int) -> None:
    _cut_links(scene, [(str(number), other) for other in _other_hosts(scene, number)])


def _cut_links(scene: FaultContext, ways: list[tuple[str, str]]) -> None:
    network = scene.cluster.network
    assert network is not None
    for way in ways:
        network.cut_link(*way)
    scene.log.write("cut: " + ", ".join(f"{a} → {b}" for a, b in ways))
    _sleep_between(scene, 0.5, 2.5 * SESSION_TIMEOUT_S)
    for way in ways:
        network.restore_link(*way)
    scene.log.write("mended: " + ", ".join(f"{a} → {b}" for a, b in ways))


def _both_directions(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]


def _other_hosts(scene: FaultContext, number: int, *, clients: bool = False) -> list[str]:
    found = [str(other) for other in scene.cluster.brokers if other != number]
    return [*found, OUTSIDE] if clients else found


def _broker(scene: FaultContext, number: int) -> BrokerProcess:
    return scene.cluster.brokers[number]


def _start_broker(scene: FaultContext, number: int) -> None:
    _broker(scene, number).spawn()
    scene.log.write(f"broker {number} is started")


def _sleep_between(scene: FaultContext, least_s: float, most_s: float) -> None:
    time.sleep(scene.random.uniform(least_s, most_s))


# weight, name, what is done
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
OTTLA_ONLY_FAULTS = ("full disk", "wipe")  # it ends at the first failed write, and wants a formatted folder
EXCLUSIVE_FAULTS = ("wipe",)
ROLES = ("leader", "follower", "controller", "coordinator", "any")


@dataclass(frozen=True)
class PlannedFault:
    name: str
    fault: Fault
    role: str


def choose_faults(random: Random, kind: str) -> list[PlannedFault]:
    """What happens in a round: mostly one fault, at times two at once, or all brokers killed."""
    able = [entry for entry in FAULTS if kind == "ottla" or entry[1] not in OTTLA_ONLY_FAULTS]
    if random.randrange(12) == 0:
        return [PlannedFault("kill", kill, role) for role in ("controller", "any", "any")]
    count = 2 if random.randrange(3) == 0 else 1
    picked = random.choices(able, [weight for weight, _, _ in able], k=count)
    if any(name in EXCLUSIVE_FAULTS for _, name, _ in picked):
        picked = picked[:1] if picked[0][1] in EXCLUSIVE_FAULTS else picked[1:]
    return [PlannedFault(name, fault, random.choice(ROLES)) for _, name, fault in picked]


def choose_targets(scene: FaultContext, strikes: list[PlannedFault], coordinator: int) -> list[int]:
    """A broker for each, all different. `coordinator`: of the group under load."""
    view = scene.cluster.partition_state(scene.topic)
    followers = [number for number in view.replicas if number != view.leader]
    found: list[int] = []
    for strike in strikes:
        wanted = {
            "leader": [view.leader],
            "follower": followers,
            "controller": [scene.cluster.controller_id()],
            "coordinator": [coordinator],
            "any": list(scene.cluster.brokers),
        }[strike.role]
        free = [number for number in wanted if number not in found]
        found.append(scene.random.choice(free or [n for n in scene.cluster.brokers if n not in found]))
    return found
