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
from tests.e2e.rounds.diary import Diary
from tests.networks import OUTSIDE

SESSION_S = 2.5  # broker.session.timeout.ms: a pause is taken from both sides of it


@dataclass(frozen=True)
class Scene:
    """What a fault may know. `topic`: the one under load; its first partition gives `leader` and `follower` their meaning."""

    cluster: ProcessCluster
    diary: Diary
    random: Random
    topic: str


Fault = Callable[[Scene, int], None]


def kill(scene: Scene, number: int) -> None:
    _broker(scene, number).kill()
    scene.diary.say(f"kill -9 of broker {number}")
    if scene.random.randrange(4) == 0:  # and once more while it recovers
        _wait(scene, 0.0, 2.0)
        _start(scene, number)
        _wait(scene, 0.1, 0.6)
        _broker(scene, number).kill()
        scene.diary.say(f"kill -9 of broker {number} again")
    _wait(scene, 0.0, 5.0)
    _start(scene, number)


def stop(scene: Scene, number: int) -> None:
    began = time.monotonic()
    code = _broker(scene, number).stop()
    scene.diary.say(f"SIGTERM to broker {number}: it ended with {code} after {time.monotonic() - began:.2f} s")
    _wait(scene, 0.0, 3.0)
    _start(scene, number)


def pause(scene: Scene, number: int) -> None:
    _broker(scene, number).pause()
    scene.diary.say(f"SIGSTOP to broker {number}")
    _wait(scene, 0.2, 2.5 * SESSION_S)
    _broker(scene, number).resume()
    scene.diary.say(f"SIGCONT to broker {number}")


def full_disk(scene: Scene, number: int) -> None:
    broker = _broker(scene, number)
    filler = broker.log_dir / "filler"
    fill_disk(filler)
    scene.diary.say(f"the disk of broker {number} is full")
    _wait(scene, 0.5, 5.0)
    if scene.random.randrange(4) == 0:
        broker.kill()
        scene.diary.say(f"kill -9 of broker {number}, its disk still full")
        _wait(scene, 0.0, 1.0)
        broker.spawn()
        _wait(scene, 0.5, 2.0)
    filler.unlink()
    scene.diary.say(f"the disk of broker {number} has room again")
    if not broker.is_running:
        _start(scene, number)


def wipe(scene: Scene, number: int) -> None:
    broker = _broker(scene, number)
    broker.kill()
    for path in broker.log_dir.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    scene.diary.say(f"kill -9 of broker {number}, and its disk is empty")
    _wait(scene, 0.0, 3.0)
    _start(scene, number)


def cut_off(scene: Scene, number: int) -> None:
    """From everybody."""
    _cut(scene, [way for other in _others(scene, number, clients=True) for way in _both(str(number), other)])


def cut_from_brokers(scene: Scene, number: int) -> None:
    """From the other brokers, while clients still reach it."""
    _cut(scene, [way for other in _others(scene, number) for way in _both(str(number), other)])


def cut_from_one(scene: Scene, number: int) -> None:
    _cut(scene, _both(str(number), scene.random.choice(_others(scene, number))))


def deaf(scene: Scene, number: int) -> None:
    """Nothing of what others send arrives; what it sends does."""
    _cut(scene, [(other, str(number)) for other in _others(scene, number)])


def mute(scene: Scene, number: int) -> None:
    _cut(scene, [(str(number), other) for other in _others(scene, number)])


def _cut(scene: Scene, ways: list[tuple[str, str]]) -> None:
    network = scene.cluster.network
    assert network is not None
    for way in ways:
        network.cut_link(*way)
    scene.diary.say("cut: " + ", ".join(f"{a} → {b}" for a, b in ways))
    _wait(scene, 0.5, 2.5 * SESSION_S)
    for way in ways:
        network.restore_link(*way)
    scene.diary.say("mended: " + ", ".join(f"{a} → {b}" for a, b in ways))


def _both(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]


def _others(scene: Scene, number: int, *, clients: bool = False) -> list[str]:
    found = [str(other) for other in scene.cluster.brokers if other != number]
    return [*found, OUTSIDE] if clients else found


def _broker(scene: Scene, number: int) -> BrokerProcess:
    return scene.cluster.brokers[number]


def _start(scene: Scene, number: int) -> None:
    _broker(scene, number).spawn()
    scene.diary.say(f"broker {number} is started")


def _wait(scene: Scene, least_s: float, most_s: float) -> None:
    time.sleep(scene.random.uniform(least_s, most_s))


# weight, name, what is done
FAULTS: tuple[tuple[int, str, Fault], ...] = (
    (6, "kill", kill),
    (2, "stop", stop),
    (4, "pause", pause),
    (3, "full disk", full_disk),
    (2, "wipe", wipe),
    (3, "cut off", cut_off),
    (3, "cut from brokers", cut_from_brokers),
    (2, "cut from one", cut_from_one),
    (1, "deaf", deaf),
    (1, "mute", mute),
)
KAFKA_CANNOT = ("full disk", "wipe")  # it ends at the first failed write, and wants a formatted folder
ALONE = ("wipe",)
ROLES = ("leader", "follower", "controller", "coordinator", "any")


@dataclass(frozen=True)
class Strike:
    name: str
    fault: Fault
    role: str


def chosen(random: Random, kind: str) -> list[Strike]:
    """What happens in a round: mostly one fault, at times two at once, or all brokers killed."""
    able = [entry for entry in FAULTS if kind == "ottla" or entry[1] not in KAFKA_CANNOT]
    if random.randrange(12) == 0:
        return [Strike("kill", kill, role) for role in ("controller", "any", "any")]
    count = 2 if random.randrange(3) == 0 else 1
    picked = random.choices(able, [weight for weight, _, _ in able], k=count)
    if any(name in ALONE for _, name, _ in picked):
        picked = picked[:1] if picked[0][1] in ALONE else picked[1:]
    return [Strike(name, fault, random.choice(ROLES)) for _, name, fault in picked]


def targets(scene: Scene, strikes: list[Strike], coordinator: int) -> list[int]:
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
