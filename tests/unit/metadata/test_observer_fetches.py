"""Observers copy the metadata log from voters, and from the leader when a voter cannot serve it."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from ottla_broker.metadata import fetch_sources, leader_follower
from ottla_broker.metadata.fetch_sources import assign_voter
from ottla_broker.metadata.metadata_fetch import MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.raft_quorum import RaftQuorum
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.records import ConfigRecord
from ottla_broker.metadata.voter_set import Voter
from ottla_broker.wire.errors import ErrorCode
from tests.sim.cluster import SimulatedBroker
from tests.unit.metadata.whole_cluster import FETCH_TIMEOUT_S, WholeCluster, commit, run_scenario

BROKERS = 8
SEEDS = (1, 2, 3)


@contextmanager
def counted_fetches() -> Iterator[Counter[tuple[int, int]]]:
    """Counts fetches of the metadata log by receiver and sender."""
    counts: Counter[tuple[int, int]] = Counter()
    original = RaftQuorum.handle_fetch

    async def handle_fetch(quorum: RaftQuorum, request: MetadataFetchRequest) -> MetadataFetchResponse:
        counts[quorum.describe_replica().key[0], request.replica_id] += 1
        return await original(quorum, request)

    with patch.object(RaftQuorum, "handle_fetch", handle_fetch):
        yield counts


def quorum_of(node: SimulatedBroker) -> RaftQuorum:
    assert node.broker is not None
    return node.broker.quorum


def source_of(cluster: WholeCluster, node: SimulatedBroker) -> SimulatedBroker | None:
    """The voter that the image assigns to a broker; None: the leader."""
    log = quorum_of(node).metadata_log
    me = quorum_of(node).describe_replica().key
    voter = assign_voter(me, log.image, log.voters.latest, quorum_of(node).leader_id, "PLAINTEXT")
    return None if voter is None else cluster.brokers[voter.broker]


async def start(cluster: WholeCluster) -> tuple[SimulatedBroker, SimulatedBroker, SimulatedBroker]:
    """Starts all brokers. Returns the leader, an observer and the voter that it copies from."""
    leader = await cluster.start_all()
    await cluster.pause(1.0)
    observer = max((node for node in cluster if source_of(cluster, node) is not None), key=lambda node: node.node_id)
    source = source_of(cluster, observer)
    assert source is not None
    return leader, observer, source


def test_only_voters_and_standby_voters_fetch_from_the_leader_all_the_time() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader, observer, source = await start(cluster)
        await cluster.pause(12)  # brokers that became standby voters after the start fetch from the leader by now
        with counted_fetches() as counts:
            await cluster.pause(60)
        assert source is not leader and source.node_id in cluster.voters
        at_leader = {sender: count for (receiver, sender), count in counts.items() if receiver == leader.node_id}
        assert 5 <= at_leader[observer.node_id] <= 7  # every ten seconds
        assert counts[source.node_id, observer.node_id] > 60
        standby = (
            set(cluster.brokers)
            - cluster.voters
            - {sender for receiver, sender in counts if receiver != leader.node_id}
        )
        assert len(standby) == 2
        assert all(at_leader[sender] > 60 for sender in standby | cluster.voters - {leader.node_id})
        assert not any(sender in cluster.voters for receiver, sender in counts if receiver != leader.node_id)

    run_scenario(scenario, BROKERS)


def test_the_leader_describes_every_observer() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader, _, _ = await start(cluster)
        for number in range(30):
            await cluster.set_retention_ms(1000 + number)
            await cluster.pause(1.0)
        described = quorum_of(leader).describe()
        assert {replica.key[0] for replica in described.observers} == set(cluster.brokers) - cluster.voters
        now_ms = leader.now_ms()
        assert all(now_ms - replica.last_fetch_ms < 11_000 for replica in described.observers)
        assert all(described.high_watermark - replica.log_end_offset < 12 for replica in described.observers)

    run_scenario(scenario, BROKERS)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", ["killed", "paused", "cut off from the leader", "cut off from the observer"])
def test_an_observer_fetches_from_the_leader_when_its_voter_fails(fault: str, seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader, observer, source = await start(cluster)
        if fault == "killed":
            source.kill()
        elif fault == "paused":
            assert source.process is not None
            source.process.pause()
        else:
            peer = leader if fault.endswith("leader") else observer
            cluster.network.isolate_host(source.host, [peer.host])
        work = commit(leader, [ConfigRecord(2, "anything", "retention.ms", "1")])
        await cluster.until(work.done)
        image = quorum_of(observer).metadata_log.image
        duration_s = await cluster.until(lambda: (2, "anything") in image.configs)
        assert duration_s < (0.5 if fault == "killed" else 1.7 * FETCH_TIMEOUT_S)
        assert cluster.leader is leader or fault.endswith("leader")

    run_scenario(scenario, BROKERS, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_observers_follow_the_next_leader_at_once(seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader, _, _ = await start(cluster)
        leader.kill()
        await cluster.wait_for_new_leader(leader)
        epoch = quorum_of(cluster.leader).epoch
        rest = cluster.others(leader)
        assert await cluster.until(lambda: {quorum_of(node).epoch for node in rest} == {epoch}) < 0.5
        leader.start()
        await cluster.create_topic("one")
        await cluster.wait_until_equal("one")

    run_scenario(scenario, BROKERS, seed)


def test_an_observer_that_an_administrator_adds_becomes_a_voter_soon() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader, observer, _ = await start(cluster)
        await cluster.set_retention_ms(1000)  # the leader does not know that the observer has this
        me = quorum_of(observer).describe_replica()
        assert leader.process is not None
        work = leader.process.run(quorum_of(leader).add_voter(Voter(*me.key, me.address), 8.0))
        assert await cluster.until(work.done) < 1.5
        work.result()
        assert observer.node_id in cluster.voters
        with counted_fetches() as counts:
            await cluster.pause(5)
        assert counts[leader.node_id, observer.node_id] > 5

    run_scenario(scenario, BROKERS)


def start_fetch(node: SimulatedBroker, request: MetadataFetchRequest) -> "asyncio.Task[MetadataFetchResponse]":
    assert node.process is not None
    work: asyncio.Task[MetadataFetchResponse] = node.process.run(quorum_of(node).handle_fetch(request))
    return work


def test_a_voter_serves_committed_records_of_its_epoch_and_refuses_everything_else() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader, observer, source = await start(cluster)
        log, epoch = quorum_of(source).metadata_log, quorum_of(source).epoch
        key = quorum_of(observer).describe_replica().key
        other_voter = next(one for one in log.voters.latest if one.broker not in (leader.node_id, source.node_id))

        async def fetch(
            end: EpochAndOffset, sender: tuple[int, object] = key, in_epoch: int = epoch, known: int = -1
        ) -> MetadataFetchResponse:
            request = MetadataFetchRequest(sender[0], sender[1], in_epoch, end, known, max_wait_ms=300)  # type: ignore[arg-type]
            work = start_fetch(source, request)
            await cluster.until(work.done)
            return work.result()

        end = log.log_end
        served = await fetch(EpochAndOffset(epoch, end.offset - 1))
        assert served.error is ErrorCode.none and served.records and served.high_watermark == log.high_watermark
        idle = await fetch(end, known=log.high_watermark)
        assert idle.error is ErrorCode.none and not idle.records
        for refused in (
            await fetch(EpochAndOffset(epoch, end.offset + 1)),  # ahead of this voter
            await fetch(EpochAndOffset(epoch - 1, end.offset)),  # diverges
            await fetch(end, in_epoch=epoch - 1),
            await fetch(end, in_epoch=epoch + 1),
            await fetch(end, sender=other_voter.key),
        ):
            assert refused.error is ErrorCode.not_leader_or_follower
            assert refused.diverging_epoch is refused.snapshot_id is None
            assert refused.leader is not None and refused.leader.leader == leader.node_id

        work = commit(leader, [ConfigRecord(2, "anything", "retention.ms", "1")])
        cluster.network.isolate_host(leader.host, [node.host for node in cluster.others(leader)])
        await cluster.until(lambda: quorum_of(source).describe_replica().leader_id != leader.node_id)
        late = await fetch(end, known=log.high_watermark)
        assert late.error is ErrorCode.not_leader_or_follower  # no leader is heard
        await cluster.until(work.done)
        work.exception()

    run_scenario(scenario, BROKERS)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_that_only_a_minority_of_the_voters_has_are_served_to_nobody(seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        for node in cluster:
            node.start()
        await cluster.until(lambda: len(cluster.voters) == 5 and all(node.is_serving for node in cluster))
        await cluster.pause(1.0)
        leader = cluster.leader
        observed = [node for node in cluster if source_of(cluster, node) is not None]
        source = source_of(cluster, observed[0])
        assert source is not None
        log = quorum_of(source).metadata_log
        majority = [cluster.brokers[broker] for broker in cluster.voters - {leader.node_id, source.node_id}]
        for node in (leader, source):
            cluster.network.isolate_host(node.host, [other.host for other in majority])
        work = commit(leader, [ConfigRecord(2, "never committed", "retention.ms", "1")])
        await cluster.until(lambda: log.end_offset > log.high_watermark)
        await cluster.pause(0.5)
        assert log.end_offset > log.high_watermark and not work.done()
        end = EpochAndOffset(quorum_of(source).epoch, log.high_watermark)
        request = MetadataFetchRequest(*quorum_of(observed[0]).describe_replica().key, end.epoch, end)
        fetch = start_fetch(source, request)
        await cluster.until(fetch.done)
        assert fetch.result().error is ErrorCode.none
        assert not fetch.result().records and fetch.result().high_watermark == end.offset
        await cluster.until(lambda: cluster.leader is not leader)
        await cluster.create_topic("one")
        for node in (leader, source):
            cluster.network.rejoin_host(node.host, [other.host for other in majority])
        await cluster.wait_until_equal("one")
        assert all((2, "never committed") not in quorum_of(node).metadata_log.image.configs for node in cluster)
        assert work.done() and work.exception() is not None

    run_scenario(scenario, 10, seed, {"controller.quorum.voter.count": "5"})


def test_a_broker_that_has_not_caught_up_fetches_from_the_leader() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader, observer, source = await start(cluster)
        observer.kill()
        for number in range(5):
            await cluster.set_retention_ms(1000 + number)
        with counted_fetches() as counts, patch.object(leader_follower, "LEADER_FETCH_INTERVAL_S", 3.0):
            observer.start()
            await cluster.until(lambda: observer.is_serving)
            assert counts[leader.node_id, observer.node_id] >= 1
            await cluster.until(lambda: counts[source.node_id, observer.node_id] > 0)

    run_scenario(scenario, BROKERS)


def test_an_excluded_voter_is_tried_again_after_a_while() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        _, observer, source = await start(cluster)
        with patch.object(fetch_sources, "VOTER_RETRY_S", 15.0), counted_fetches() as counts:
            cluster.network.isolate_host(source.host, [observer.host])
            await cluster.pause(12.0)
            log_line = f"{observer.host} info: broker {source.node_id} does not serve the metadata log"
            assert sum(log_line in " ".join(line.split()) for line in cluster.trace.lines) == 1
            cluster.network.rejoin_host(source.host, [observer.host])
            counts.clear()
            await cluster.until(lambda: counts[source.node_id, observer.node_id] > 3)

    run_scenario(scenario, BROKERS)
