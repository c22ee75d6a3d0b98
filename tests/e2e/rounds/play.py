"""One round, from the making of its topic to the verdict."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import NewTopic
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.static.primitive import i8

from ottla_broker.wire.errors import KafkaError
from tests.clients import librdkafka as rd
from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.rounds import checks, faults
from tests.e2e.rounds.diary import Diary
from tests.e2e.rounds.load import Load, Member, Producer, committed_offsets, kept
from tests.networks import NamespaceNetwork
from tests.waiting import eventually

PARTITIONS = 3
DISK_MIB = 128
HEALS_WITHIN_S = 40.0
CATCHES_UP_WITHIN_S = 40.0
# Short, so that a round sees a follower leave and come back; everything else is as anybody has it.
SETTINGS: dict[str, Any] = {"replica_lag_time_max_ms": 3000, "log_segment_bytes": 4 << 20}


@dataclass(frozen=True)
class Outcome:
    """`problems`: empty when all promises were kept. `healed_s`: from the last mending until the cluster was whole."""

    what: str
    problems: list[str]
    acked: int
    gap_s: float
    healed_s: float
    took_s: float
    diary: Path


@contextmanager
def stage(kind: str, folder: Path | None = None) -> Iterator[ProcessCluster]:
    """Three brokers on hosts and disks of their own."""
    with (
        NamespaceNetwork.create(3) as network,
        run_cluster(kind, 3, folder=folder, network=network, disk_mebibytes=DISK_MIB, **SETTINGS) as cluster,
    ):
        yield cluster


def play(cluster: ProcessCluster, seed: str, folder: Path) -> Outcome:
    """`seed`: what the round is made of, and its name."""
    random = Random(seed)
    diary = Diary(folder / f"{seed}.log", f"round {seed} against {cluster.kind}")
    marks = {number: len(broker.log_tail(1 << 30)) for number, broker in cluster.brokers.items()}
    topic = f"round-{seed}"
    strikes = faults.chosen(random, cluster.kind)
    what = " + ".join(f"{strike.name} of {strike.role}" for strike in strikes)
    config = {"flush.messages": "1"} if random.randrange(4) == 0 else {}
    make_topic(cluster, topic, config)
    load = load_for(cluster, topic, random)
    problems: list[str] = []
    healed_s = -1.0
    diary.say(f"{what}; topic {config or 'with defaults'}; producers {[p.settings for p in load.producers]}")
    load.start()
    try:
        eventually(lambda: load.acked() > 200 and load.seen(), within_s=30, message="acknowledged and consumed records")
        scene = faults.Scene(cluster, diary, random, topic)
        strike(scene, strikes, coordinator_of(cluster, load.members[0].group))
        mended = time.monotonic()
        eventually(lambda: cluster.is_healthy(), within_s=HEALS_WITHIN_S, message="the cluster is whole again")
        healed_s = time.monotonic() - mended
        diary.say(f"whole again after {healed_s:.2f} s; controller {cluster.controller_id()}")
        time.sleep(0.5)
        load.stop_producers()
        problems += judged(cluster, load, topic)
    except (AssertionError, OSError, KafkaError, LookupError, ck.KafkaException) as reason:
        problems.append(f"{type(reason).__name__}: {reason}")
        for number in cluster.brokers:
            for trouble in cluster.health_problems(observers=[number]):
                diary.say(f"not whole: {trouble}")
    finally:
        load.stop_producers()
        load.stop_members()
    gap_s = max(producer.longest_gap_s() for producer in load.producers)
    for client in load.clients:
        diary.say(describe(client))
    for number, broker in cluster.brokers.items():
        if not broker.is_running:
            problems.append(f"broker {number} does not run")
    diary.say("; ".join(problems[:20]) if problems else "nothing lost, nothing doubled")
    for number, broker in cluster.brokers.items():
        diary.append(f"broker {number} wrote", broker.log_tail(1 << 30)[marks[number] :])
    if problems:
        for producer in load.producers:
            diary.append(f"librdkafka of {producer.name} said", "\n".join(producer.told))
        for number, broker in cluster.brokers.items():
            for partition in range(PARTITIONS):
                replica = broker.log_dir / f"{topic}-{partition}"
                diary.append(f"{replica.name} of broker {number}", checks.batches_of(replica))
    else:
        client = rd.admin_client(cluster.bootstrap)
        client.delete_topics([topic], operation_timeout=10)[topic].result(30)
    return Outcome(what, problems, load.acked(), gap_s, healed_s, diary.seconds(), diary.path)


def judged(cluster: ProcessCluster, load: Load, topic: str) -> list[str]:
    places = [(topic, partition) for partition in range(PARTITIONS)]
    contents = kept(cluster.bootstrap, topic, PARTITIONS)

    def caught_up() -> bool:
        seen = load.seen()
        return all(contents[place].keys() <= seen.get(place, {}).keys() for place in places)

    eventually(caught_up, within_s=CATCHES_UP_WITHIN_S, message="the group has read everything")
    load.stop_members()
    group = load.members[0].group
    problems = checks.broken_promises(load, contents, committed_offsets(cluster.bootstrap, group, places))
    # A follower writes what it has fetched at once, but it has to have fetched it.
    try:
        eventually(lambda: not list(checks.replicas_are_equal(cluster, places)), within_s=10)
    except AssertionError:
        problems += checks.replicas_are_equal(cluster, places)
    return problems


def load_for(cluster: ProcessCluster, topic: str, random: Random) -> Load:
    codec = {"compression.type": random.choice(["none", "none", "lz4", "zstd"])}
    producers = [
        Producer("once", cluster.bootstrap, topic, PARTITIONS, {"enable.idempotence": True} | codec),
        Producer("plain", cluster.bootstrap, topic, PARTITIONS, dict(codec)),
    ]
    members = [Member(f"member-{n}", cluster.bootstrap, topic, f"readers-of-{topic}") for n in (1, 2)]
    return Load(producers, members)


def make_topic(cluster: ProcessCluster, topic: str, config: dict[str, str]) -> None:
    client = rd.admin_client(cluster.bootstrap)  # held until the answer is there: it ends with its last reference
    client.create_topics([NewTopic(topic, PARTITIONS, 3, config=config)])[topic].result(30)
    eventually(lambda: cluster.is_healthy(), within_s=HEALS_WITHIN_S, message="the new topic is whole")


def strike(scene: faults.Scene, strikes: list[faults.Strike], coordinator: int) -> None:
    """All at once, each in a thread; returns when everything is mended."""
    chosen = faults.targets(scene, strikes, coordinator)
    seeds = [scene.random.random() for _ in strikes]
    failures: list[str] = []

    def run(what: faults.Strike, number: int, seed: float) -> None:
        try:
            what.fault(faults.Scene(scene.cluster, scene.diary, Random(seed), scene.topic), number)
        except Exception as reason:  # noqa: BLE001 – a thread's end: told by the main thread
            failures.append(f"{what.name} of broker {number}: {type(reason).__name__}: {reason}")

    threads = [threading.Thread(target=run, args=job) for job in zip(strikes, chosen, seeds, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, "; ".join(failures)


def coordinator_of(cluster: ProcessCluster, group: str) -> int:
    for number in cluster.running_ids:
        try:
            answer = cluster.call_broker(
                number, lambda client: client.send(FindCoordinatorRequest(key=group, key_type=i8(0)))
            )
        except (OSError, KafkaError):
            continue
        if int(answer.node_id) in cluster.brokers:
            return int(answer.node_id)
    raise LookupError(f"no broker tells who coordinates {group}")


def describe(client: Producer | Member) -> str:
    if isinstance(client, Producer):
        return (
            f"{client.name}: {client.sent} sent, {len(client.acks)} acknowledged, {len(client.failures)} failed, "
            f"longest time without an ack {client.longest_gap_s():.2f} s"
        )
    read = sum(len(records) for records in client.seen.values())
    return f"{client.name}: {read} read, committed {client.committed}, told: {sorted(set(client.troubles))[:6]}"
