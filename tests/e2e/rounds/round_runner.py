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
from tests.e2e.rounds.load import GroupMember, Load, Producer, committed_offsets, read_all_records
from tests.e2e.rounds.round_log import RoundLog
from tests.networks import NamespaceNetwork
from tests.waiting import eventually

PARTITIONS = 3
DISK_MIB = 128
RECOVERY_TIMEOUT_S = 40.0
CATCH_UP_TIMEOUT_S = 40.0
# Short, so that a round sees a follower leave and come back; everything else is as anybody has it.
SETTINGS: dict[str, Any] = {"replica_lag_time_max_ms": 3000, "log_segment_bytes": 4 << 20}


@dataclass(frozen=True)
class RoundResult:
    """`problems`: empty when all promises were kept. `healed_s`: from the last mending until the cluster was whole."""

    faults: str
    problems: list[str]
    acknowledged: int
    gap_s: float
    recovery_s: float
    took_s: float
    log_file: Path


@contextmanager
def run_three_brokers(kind: str, folder: Path | None = None) -> Iterator[ProcessCluster]:
    """Three brokers on hosts and disks of their own."""
    with (
        NamespaceNetwork.create(3) as network,
        run_cluster(kind, 3, folder=folder, network=network, disk_mebibytes=DISK_MIB, **SETTINGS) as cluster,
    ):
        yield cluster


def run_round(cluster: ProcessCluster, seed: str, folder: Path) -> RoundResult:
    """`seed`: what the round is made of, and its name."""
    random = Random(seed)
    diary = RoundLog(folder / f"{seed}.log", f"round {seed} against {cluster.kind}")
    marks = {number: len(broker.log_tail(1 << 30)) for number, broker in cluster.brokers.items()}
    topic = f"round-{seed}"
    strikes = faults.choose_faults(random, cluster.kind)
    what = " + ".join(f"{strike.name} of {strike.role}" for strike in strikes)
    config = {"flush.messages": "1"} if random.randrange(4) == 0 else {}
    create_topic(cluster, topic, config)
    load = create_load(cluster, topic, random)
    problems: list[str] = []
    healed_s = -1.0
    diary.write(f"{what}; topic {config or 'with defaults'}; producers {[p.settings for p in load.producers]}")
    load.start()
    try:
        eventually(
            lambda: load.count_acknowledged() > 200 and load.consumed(),
            within_s=30,
            message="acknowledged and consumed records",
        )
        scene = faults.FaultContext(cluster, diary, random, topic)
        inject_faults(scene, strikes, find_coordinator(cluster, load.members[0].group))
        mended = time.monotonic()
        eventually(lambda: cluster.is_healthy(), within_s=RECOVERY_TIMEOUT_S, message="the cluster is whole again")
        healed_s = time.monotonic() - mended
        diary.write(f"whole again after {healed_s:.2f} s; controller {cluster.controller_id()}")
        time.sleep(0.5)
        load.stop_producers()
        problems += check_records(cluster, load, topic)
    except (AssertionError, OSError, KafkaError, LookupError, ck.KafkaException) as reason:
        problems.append(f"{type(reason).__name__}: {reason}")
        for number in cluster.brokers:
            for trouble in cluster.health_problems(observers=[number]):
                diary.write(f"not whole: {trouble}")
    finally:
        load.stop_producers()
        load.stop_members()
    gap_s = max(producer.longest_gap_s() for producer in load.producers)
    for client in load.clients:
        diary.write(summarize_client(client))
    for number, broker in cluster.brokers.items():
        if not broker.is_running:
            problems.append(f"broker {number} does not run")
    diary.write("; ".join(problems[:20]) if problems else "nothing lost, nothing doubled")
    for number, broker in cluster.brokers.items():
        diary.append_section(f"broker {number} wrote", broker.log_tail(1 << 30)[marks[number] :])
    if problems:
        for producer in load.producers:
            diary.append_section(f"librdkafka of {producer.name} said", "\n".join(producer.idempotence_log))
        for number, broker in cluster.brokers.items():
            for partition in range(PARTITIONS):
                replica = broker.log_dir / f"{topic}-{partition}"
                diary.append_section(f"{replica.name} of broker {number}", checks.format_batches(replica))
    else:
        client = rd.admin_client(cluster.bootstrap)
        client.delete_topics([topic], operation_timeout=10)[topic].result(30)
    return RoundResult(what, problems, load.count_acknowledged(), gap_s, healed_s, diary.elapsed_s(), diary.path)


def check_records(cluster: ProcessCluster, load: Load, topic: str) -> list[str]:
    places = [(topic, partition) for partition in range(PARTITIONS)]
    contents = read_all_records(cluster.bootstrap, topic, PARTITIONS)

    def caught_up() -> bool:
        seen = load.consumed()
        return all(contents[place].keys() <= seen.get(place, {}).keys() for place in places)

    eventually(caught_up, within_s=CATCH_UP_TIMEOUT_S, message="the group has read everything")
    load.stop_members()
    group = load.members[0].group
    problems = checks.find_violations(load, contents, committed_offsets(cluster.bootstrap, group, places))
    # A follower writes what it has fetched at once, but it has to have fetched it.
    try:
        eventually(lambda: not list(checks.check_replicas_are_equal(cluster, places)), within_s=10)
    except AssertionError:
        problems += checks.check_replicas_are_equal(cluster, places)
    return problems


def create_load(cluster: ProcessCluster, topic: str, random: Random) -> Load:
    codec = {"compression.type": random.choice(["none", "none", "lz4", "zstd"])}
    producers = [
        Producer("once", cluster.bootstrap, topic, PARTITIONS, {"enable.idempotence": True} | codec),
        Producer("plain", cluster.bootstrap, topic, PARTITIONS, dict(codec)),
    ]
    members = [GroupMember(f"member-{n}", cluster.bootstrap, topic, f"readers-of-{topic}") for n in (1, 2)]
    return Load(producers, members)


def create_topic(cluster: ProcessCluster, topic: str, config: dict[str, str]) -> None:
    client = rd.admin_client(cluster.bootstrap)  # held until the answer is there: it ends with its last reference
    client.create_topics([NewTopic(topic, PARTITIONS, 3, config=config)])[topic].result(30)
    eventually(lambda: cluster.is_healthy(), within_s=RECOVERY_TIMEOUT_S, message="the new topic is whole")


def inject_faults(scene: faults.FaultContext, strikes: list[faults.PlannedFault], coordinator: int) -> None:
    """All at once, each in a thread; returns when everything is mended."""
    chosen = faults.choose_targets(scene, strikes, coordinator)
    seeds = [scene.random.random() for _ in strikes]
    failures: list[str] = []

    def run(what: faults.PlannedFault, number: int, seed: float) -> None:
        try:
            what.fault(faults.FaultContext(scene.cluster, scene.log, Random(seed), scene.topic), number)
        except Exception as reason:  # noqa: BLE001 – a thread's end: told by the main thread
            failures.append(f"{what.name} of broker {number}: {type(reason).__name__}: {reason}")

    threads = [threading.Thread(target=run, args=job) for job in zip(strikes, chosen, seeds, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, "; ".join(failures)


def find_coordinator(cluster: ProcessCluster, group: str) -> int:
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


def summarize_client(client: Producer | GroupMember) -> str:
    if isinstance(client, Producer):
        return (
            f"{client.name}: {client.sent_count} sent, {len(client.acknowledgements)} acknowledged, {len(client.failures)} failed, "
            f"longest time without an ack {client.longest_gap_s():.2f} s"
        )
    read = sum(len(records) for records in client.consumed.values())
    return f"{client.name}: {read} read, committed {client.committed}, told: {sorted(set(client.recovered_errors))[:6]}"
