"""Counts the fetches of the metadata log that each broker of a simulated cluster handles.

`python -m tests.sim.metadata_fan_out 300` prints them for an idle cluster and for commits, when
observers copy from voters and when all brokers fetch from the leader, and the virtual time in which
a commit reaches every broker. Brokers send no probes to each other and few heartbeats here, because
300 of them in one process would take too long.
"""

import argparse
import sys
from collections import Counter
from typing import Any
from unittest.mock import patch

from ottla_broker.metadata import leader_term
from ottla_broker.metadata.failure_detector import FailureDetector
from ottla_broker.metadata.fetch_sources import FetchSources
from ottla_broker.metadata.metadata_fetch import MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.raft_quorum import RaftQuorum
from tests.sim.network import Link
from tests.unit.metadata.whole_cluster import WholeCluster, simulated_cluster

SETTINGS = {"broker.heartbeat.interval.ms": "6000", "broker.session.timeout.ms": "30000"}
START_LATENCY_S = 0.05  # so that a fetch gets the registrations of many brokers
IDLE_S = 20
SETTLING_S = 12  # longer than the time between an observer's fetches from the leader
COMMITS = 10
STARTS_WITHIN_S = 120.0


async def measure(cluster: WholeCluster, fetches: Counter[int]) -> None:
    """Prints the fetches that the leader and other voters handle, and the times of commits.
    `fetches`: their number by the broker that handles them.
    """
    leader = cluster.leader
    await cluster.pause(SETTLING_S)
    fetches.clear()
    await cluster.pause(IDLE_S)
    print_counts("idle, per second", fetches, leader.node_id, IDLE_S)
    fetches.clear()
    took_ms = []
    for number in range(COMMITS):
        started_s = cluster.loop.time()
        await cluster.set_retention_ms(1000 + number)
        offset = end_offset(leader)
        await cluster.until(lambda offset=offset: all(end_offset(node) >= offset for node in cluster))  # type: ignore[misc]
        took_ms.append(round((cluster.loop.time() - started_s) * 1000))
        await cluster.pause(0.1)
    print_counts("per commit", fetches, leader.node_id, COMMITS)
    took_ms.sort()
    print(f"  applied by every broker after {took_ms[0]}, {took_ms[COMMITS // 2]}, {took_ms[-1]} ms", flush=True)


def end_offset(node: Any) -> int:
    return int(node.broker.image.end_offset)


def print_counts(what: str, fetches: Counter[int], leader: int, divisor: int) -> None:
    others = sorted((count for broker, count in fetches.items() if broker != leader), reverse=True)
    shares = ", ".join(f"{count / divisor:.1f}" for count in others[:4]) or "none"
    print(f"  {what}: leader {fetches[leader] / divisor:.1f}, other voters {shares}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.metadata_fan_out", description=__doc__)
    parser.add_argument("brokers", type=int)
    count = parser.parse_args().brokers
    fetches: Counter[int] = Counter()
    handle_fetch = RaftQuorum.handle_fetch

    async def handle_and_count(quorum: RaftQuorum, request: MetadataFetchRequest) -> MetadataFetchResponse:
        fetches[quorum.describe_replica().key[0]] += 1
        return await handle_fetch(quorum, request)

    async def scenario(cluster: WholeCluster) -> None:
        with (
            patch.object(leader_term, "next_voter_set", lambda *_, **__: None),
            patch.object(Link, "latency_s", START_LATENCY_S),
        ):
            for node in cluster:
                node.start()
            await cluster.until(lambda: all(node.is_serving for node in cluster), STARTS_WITHIN_S)
        await cluster.until(lambda: len(cluster.voters) == min(count, 3))
        print(f"{count} brokers; observers copy from voters:", flush=True)
        await measure(cluster, fetches)
        print("all fetch from the leader:", flush=True)
        with patch.object(FetchSources, "may_copy", False):
            await measure(cluster, fetches)

    with (
        patch.object(FailureDetector, "update_peers", lambda _: None),
        patch.object(RaftQuorum, "handle_fetch", handle_and_count),
        simulated_cluster(count, 1, SETTINGS) as (loop, cluster),
    ):
        loop.run_until_complete(loop.create_task(scenario(cluster)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
