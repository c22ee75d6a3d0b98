"""One round of faults: creates a topic, loads it, injects faults, and checks the records."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import NewTopic

from ottla_broker.wire.errors import KafkaError
from tests.clients import librdkafka as rd
from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.rounds import checks, faults
from tests.e2e.rounds.load import GroupMember, Load, Producer, TopicPartition, committed_offsets, read_all_records
from tests.e2e.rounds.round_log import RoundLog
from tests.networks import NamespaceNetwork
from tests.waiting import eventually

PARTITIONS = 3
DISK_MIB = 128
RECOVERY_TIMEOUT_S = 40.0
CATCH_UP_TIMEOUT_S = 40.0
# Smaller than the defaults, so that within a round a follower leaves and rejoins the ISR, and
# segments are rolled.
SETTINGS: dict[str, Any] = {"replica_lag_time_max_ms": 3000, "log_segment_bytes": 4 << 20}


@dataclass(frozen=True)
class RoundResult:
    """`problems`: empty if nothing failed. `gap_s`: the longest time between two acknowledgements
    of a producer. `recovery_s`: from the removal of the last fault until the cluster was healthy;
    −1 if it was not in time.
    """

    faults: str
    problems: list[str]
    acknowledged_count: int
    gap_s: float
    recovery_s: float
    took_s: float
    log_file: Path


@contextmanager
def run_three_brokers(kind: str, folder: Path | None = None) -> Iterator[ProcessCluster]:
    """Three brokers, each in a network namespace and on a small disk of its own."""
    with (
        NamespaceNetwork.create(3) as network,
        run_cluster(kind, 3, folder=folder, network=network, disk_mebibytes=DISK_MIB, **SETTINGS) as cluster,
    ):
        yield cluster


def run_round(cluster: ProcessCluster, seed: str, folder: Path) -> RoundResult:
    """`seed`: decides about faults and settings, and names the round and its log in `folder`."""
    random = Random(seed)
    log = RoundLog(folder / f"{seed}.log", f"round {seed} against {cluster.kind}")
    marks = {number: len(broker.log_tail(1 << 30)) for number, broker in cluster.brokers.items()}
    topic = f"round-{seed}"
    planned = faults.choose_faults(random, cluster.kind)
    description = " + ".join(f"{fault.name} of {fault.role}" for fault in planned)
    config = {"flush.messages": "1"} if random.randrange(4) == 0 else {}
    create_topic(cluster, topic, config)
    load = create_load(cluster, topic, random)
    problems: list[str] = []
    recovery_s = -1.0
    log.write(f"{description}; topic {config or 'with defaults'}; producers {[p.settings for p in load.producers]}")
    load.start()
    try:
        eventually(
            lambda: load.count_acknowledged() > 200 and load.consumed(),
            within_s=30,
            message="acknowledged and consumed records",
        )
        context = faults.FaultContext(cluster, log, random, topic)
        inject_faults(context, planned, cluster.find_coordinator(load.members[0].group))
        faults_ended = time.monotonic()
        cluster.wait_until_healthy(within_s=RECOVERY_TIMEOUT_S)
        recovery_s = time.monotonic() - faults_ended
        log.write(f"healthy after {recovery_s:.2f} s; controller {cluster.controller_id()}")
        time.sleep(0.5)  # so that the healthy cluster gets records too; it waits for nothing
        load.stop_producers()
        problems += check_records(cluster, load, topic)
    except (AssertionError, OSError, KafkaError, LookupError, ck.KafkaException) as reason:
        problems.append(f"{type(reason).__name__}: {reason}")
        for number in cluster.brokers:
            for problem in cluster.health_problems(observers=[number]):
                log.write(f"unhealthy: {problem}")
    finally:
        load.stop_producers()
        load.stop_members()
    gap_s = max(producer.longest_gap_s() for producer in load.producers)
    for client in load.clients:
        log.write(summarize_client(client))
    for number, broker in cluster.brokers.items():
        if not broker.is_running:
            problems.append(f"broker {number} is not running")
    log.write("; ".join(problems[:20]) if problems else "no violation")
    for number, broker in cluster.brokers.items():
        log.append_section(f"output of broker {number}", broker.log_tail(1 << 30)[marks[number] :])
    if problems:
        for producer in load.producers:
            log.append_section(f"librdkafka log of producer {producer.name}", "\n".join(producer.idempotence_log))
        for number, broker in cluster.brokers.items():
            for partition in range(PARTITIONS):
                replica = broker.log_dir / f"{topic}-{partition}"
                log.append_section(f"{replica.name} of broker {number}", checks.format_batches(replica))
    else:
        client = rd.admin_client(cluster.bootstrap)
        client.delete_topics([topic], operation_timeout=10)[topic].result(30)
    return RoundResult(description, problems, load.count_acknowledged(), gap_s, recovery_s, log.elapsed_s(), log.path)


def wait_for_members(load: Load, contents: Mapping[TopicPartition, Mapping[int, bytes]]) -> None:
    """Returns when the group has read all of `contents`: records by partition and offset. Raises
    AssertionError after CATCH_UP_TIMEOUT_S.
    """

    def find_unread() -> dict[TopicPartition, list[int]]:
        consumed = load.consumed()
        unread = {at: sorted(records.keys() - consumed.get(at, {}).keys()) for at, records in contents.items()}
        return {at: offsets for at, offsets in unread.items() if offsets}

    def describe() -> str:
        found = [f"{at}: {offsets[0]} to {offsets[-1]}, {len(offsets)}" for at, offsets in find_unread().items()]
        members = [(member.name, member.committed, member.recovered_errors[-3:]) for member in load.members]
        return f"a group that has read all records; not read: {found}; members: {members}"

    eventually(lambda: not find_unread(), within_s=CATCH_UP_TIMEOUT_S, message=describe)


def check_records(cluster: ProcessCluster, load: Load, topic: str) -> list[str]:
    partitions = [(topic, partition) for partition in range(PARTITIONS)]
    contents = read_all_records(cluster.bootstrap, topic, PARTITIONS)
    wait_for_members(load, contents)
    load.stop_members()
    group = load.members[0].group
    problems = checks.find_violations(load, contents, committed_offsets(cluster.bootstrap, group, partitions))
    # Followers may still have to fetch the last records.
    try:
        eventually(lambda: not list(checks.check_replicas_are_equal(cluster, partitions)), within_s=10)
    except AssertionError:
        problems += checks.check_replicas_are_equal(cluster, partitions)
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
    client = rd.admin_client(cluster.bootstrap)  # must outlive its request
    client.create_topics([NewTopic(topic, PARTITIONS, 3, config=config)])[topic].result(30)
    cluster.wait_until_healthy(within_s=RECOVERY_TIMEOUT_S)


def inject_faults(context: faults.FaultContext, planned: list[faults.PlannedFault], coordinator: int) -> None:
    """Injects all faults at once, each in a thread. Returns when all are removed."""
    targets = faults.choose_targets(context, planned, coordinator)
    seeds = [context.random.random() for _ in planned]
    failures: list[str] = []

    def run(fault: faults.PlannedFault, number: int, seed: float) -> None:
        try:
            fault.fault(faults.FaultContext(context.cluster, context.log, Random(seed), context.topic), number)
        except Exception as reason:  # noqa: BLE001 – the main thread reports it
            failures.append(f"{fault.name} of broker {number}: {type(reason).__name__}: {reason}")

    threads = [threading.Thread(target=run, args=job) for job in zip(planned, targets, seeds, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, "; ".join(failures)


def summarize_client(client: Producer | GroupMember) -> str:
    if isinstance(client, Producer):
        return (
            f"{client.name}: {client.sent_count} sent, {len(client.acknowledgements)} acknowledged, "
            f"{len(client.failures)} failed, longest gap between acks {client.longest_gap_s():.2f} s"
        )
    read_count = sum(len(records) for records in client.consumed.values())
    return (
        f"{client.name}: {read_count} read, committed {client.committed}, "
        f"errors: {sorted(set(client.recovered_errors))[:6]}"
    )
