"""Kills brokers at random moments and restarts them after random pauses, while workers copy a topic
in transactions. Compares the copies with the records that were acknowledged.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random

from confluent_kafka import Message
from confluent_kafka.admin import NewTopic

from tests.clients import librdkafka as rd
from tests.clusters import TRANSACTION_KEY, ProcessCluster, run_cluster
from tests.e2e.background_producer import fail_on_rejected_record, produce_in_background
from tests.e2e.transaction_kills.copy_worker import CopyWorker
from tests.waiting import eventually

PARTITIONS = 3
SOURCE = "copied-from"
WORKERS = 2
PRODUCER_PAUSE_S = 0.2
"""Pause after every twenty records: the workers, whose transactions are small, must keep up."""


@dataclass
class KillResult:
    """`killed`: reason of the choice of a broker → number of kills. `sent`: acknowledged records.
    `new_instances`: how often a worker began again. `duplicates`: copies of a value beyond the
    first. `losses`: acknowledged values that a target does not have. `unexpected`: values in a
    target that were not acknowledged. These three are sums over all targets.
    """

    killed: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    transactions: int = 0
    new_instances: int = 0
    duplicates: int = 0
    losses: int = 0
    unexpected: int = 0


@contextmanager
def run_three_brokers(kind: str = "ottla") -> Iterator[ProcessCluster]:
    with run_cluster(kind, 3, transaction_abort_timed_out_transaction_cleanup_interval_ms=500) as cluster:
        yield cluster


def kill_under_load(
    cluster: ProcessCluster, kills: int, random: Random, report: Callable[[str], None] = print
) -> KillResult:
    """Kills and restarts one broker after the other, `kills` times, while `WORKERS` workers each
    copy the same topic. Raises AssertionError if copying does not go on after a kill.
    """
    workers = [CopyWorker(cluster.bootstrap, SOURCE, f"copied-to-{number}") for number in range(WORKERS)]
    for topic in (SOURCE, *(worker.target for worker in workers)):
        create_topic(cluster, topic)
    for worker in workers:
        worker.start()
    result = KillResult()
    acknowledged: list[str] = []

    def add_value(message: Message) -> None:
        acknowledged.append((message.value() or b"").decode())

    with produce_in_background(
        cluster.bootstrap,
        SOURCE,
        PARTITIONS,
        str,
        add_value,
        fail_on_rejected_record,
        pause_s=PRODUCER_PAUSE_S,
    ):
        for number in range(1, kills + 1):
            wait_for_commits(workers)
            reason, broker = choose_broker(cluster, workers, random)
            result.killed[reason] += 1
            # The pauses wait for nothing: they choose the moment of the fault and its length.
            time.sleep(random.uniform(0, 0.3))
            cluster.brokers[broker].kill()
            time.sleep(random.uniform(0, 1.0))
            cluster.brokers[broker].start()
            cluster.wait_until_healthy()
            report(f"kill {number}: broker {broker} ({reason}); {[worker.commit_count for worker in workers]} commits")
    sent = Counter(acknowledged)
    assert sent.total() == len(sent), "a record was acknowledged twice"
    for worker in workers:
        eventually(
            partial(has_copied, cluster, worker, sent.total()),
            within_s=120,
            message=partial(describe_copies, cluster, worker, sent.total()),
        )
        worker.stop()
        copied = Counter(read_committed(cluster, worker.target))
        result.duplicates += (copied - Counter(copied.keys())).total()
        result.losses += len(sent.keys() - copied.keys())
        result.unexpected += len(copied.keys() - sent.keys())
        result.transactions += worker.commit_count
        result.new_instances += len(worker.errors)
    result.sent = sent.total()
    return result


def wait_for_commits(workers: Sequence[CopyWorker]) -> None:
    """Returns when each worker has committed another transaction."""
    before = [worker.commit_count for worker in workers]

    def have_committed() -> bool:
        return all(worker.commit_count > count for worker, count in zip(workers, before, strict=True))

    eventually(
        have_committed, within_s=90, message=lambda: f"each worker goes on; {[it.errors[-3:] for it in workers]}"
    )


def choose_broker(cluster: ProcessCluster, workers: Sequence[CopyWorker], random: Random) -> tuple[str, int]:
    """Chooses any broker, or a coordinator of a worker. Returns the reason and the broker."""
    worker = random.choice(workers)
    match random.randrange(3):
        case 0:
            return "transaction coordinator", cluster.find_coordinator(worker.transactional_id, TRANSACTION_KEY)
        case 1:
            return "group coordinator", cluster.find_coordinator(worker.group)
        case _:
            return "any", random.choice(list(cluster.brokers))


def create_topic(cluster: ProcessCluster, topic: str) -> None:
    client = rd.admin_client(cluster.bootstrap)  # keep a reference until the result
    for made in client.create_topics([NewTopic(topic, PARTITIONS, 3)]).values():
        made.result(30)


def read_committed(cluster: ProcessCluster, topic: str) -> list[str]:
    return [
        (message.value() or b"").decode()
        for partition in range(PARTITIONS)
        for message in rd.consume(cluster.bootstrap, topic, partition=partition, isolation_level="read_committed")
    ]


def has_copied(cluster: ProcessCluster, worker: CopyWorker, count: int) -> bool:
    return len(read_committed(cluster, worker.target)) >= count


def describe_copies(cluster: ProcessCluster, worker: CopyWorker, count: int) -> str:
    return f"{len(read_committed(cluster, worker.target))} of {count} in {worker.target}; {worker.errors[-3:]}"
