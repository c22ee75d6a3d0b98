"""The metadata quorum on whole brokers: committed records survive every change of leader, and
records that were not committed are never applied.
"""

import pytest

from ottla_broker.metadata.records import ConfigRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.metadata.whole_cluster import FETCH_TIMEOUT_S, WholeCluster, commit, run_scenario

SEEDS = (1, 2, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_leader_is_replaced_at_once(seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        for name in ("one", "two", "three"):
            await cluster.create_topic(name)
            leader.kill()
            assert await cluster.wait_for_new_leader(leader) < 0.4
            assert len(cluster.leaders) == 1
            leader.start()
            await cluster.until(lambda: all(node.is_serving for node in cluster))
            leader = cluster.leader
        await cluster.create_topic("four")
        await cluster.wait_until_equal("one", "two", "three", "four")

    run_scenario(scenario, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_paused_leader_is_replaced_at_the_fetch_timeout(seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        assert leader.process is not None
        leader.process.pause()
        duration_s = await cluster.wait_for_new_leader(leader)
        assert FETCH_TIMEOUT_S * 0.8 < duration_s < 2.5
        await cluster.create_topic("made-meanwhile")
        await cluster.pause(2.0)
        leader.process.resume()
        await cluster.until(lambda: leader not in cluster.leaders)
        await cluster.wait_until_equal("made-meanwhile")

    run_scenario(scenario, seed=seed)


def test_a_leader_that_shuts_down_is_replaced_before_its_process_ends() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        await cluster.create_topic("one")
        assert await leader.stop()
        assert cluster.leaders  # the successor is elected before the stop ends
        assert cluster.leader is not leader
        leader.start()
        await cluster.until(lambda: leader.is_serving)
        await cluster.wait_until_equal("one")

    run_scenario(scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_that_an_isolated_leader_could_not_commit_are_applied_nowhere(seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        broker = leader.broker
        assert broker is not None
        others = [node.host for node in cluster.others(leader)]
        cluster.network.isolate_host(leader.host, others)
        change = ConfigRecord(2, "nothing", "retention.ms", "1")
        commits = [commit(leader, [change]) for _ in range(3)]
        await cluster.wait_for_new_leader(leader)
        await cluster.create_topic("one")
        assert all(one.exception() is not None for one in commits if one.done())
        cluster.network.rejoin_host(leader.host, others)
        await cluster.until(lambda: all(one.done() for one in commits))
        for one in commits:
            reason = one.exception()
            assert isinstance(reason, KafkaError)
            assert reason.code is ErrorCode.not_controller
        await cluster.wait_until_equal("one")
        assert all(node.broker is not None and not node.broker.image.configs for node in cluster)

    run_scenario(scenario, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_whose_packets_are_lost_logs_which_voters_do_not_answer(seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        lost, other = cluster.others(leader)
        cluster.network.isolate_host(lost.host, [leader.host, other.host])
        await cluster.pause(30)
        logged = [it for it in cluster.trace.lines if "no majority of the voters of the metadata log answers" in it]
        assert logged
        assert all(f" {lost.host} " in it and it.count("does not answer") == 2 for it in logged)

    run_scenario(scenario, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_voter_that_was_cut_off_hears_the_leader_before_it_is_a_candidate_again(seed: int) -> None:
    """Otherwise it votes for any other broker that the leader's packets do not reach."""

    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        lost, other = cluster.others(leader)
        cluster.network.isolate_host(lost.host, [leader.host, other.host])
        await cluster.pause(FETCH_TIMEOUT_S * 1.2)
        cluster.network.rejoin_host(lost.host, [leader.host, other.host])

        def hears_leader() -> bool:
            assert lost.broker is not None
            return lost.broker.quorum.describe_replica().leader_id == leader.node_id

        assert await cluster.until(hears_leader) < 1.0
        assert cluster.leader is leader

    # The broker is not fenced meanwhile, so there are no records to fetch.
    settings = {"controller.quorum.election.backoff.max.ms": "200", "broker.session.timeout.ms": "9000"}
    run_scenario(scenario, seed=seed, settings=settings)


@pytest.mark.parametrize("seed", SEEDS)
def test_committed_records_survive_a_power_failure_of_all_brokers(seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        await cluster.start_all()
        for number in range(10):
            await cluster.create_topic(f"topic-{number}")
        for node in cluster:
            node.lose_power()
        for node in cluster:
            node.power_on()
        await cluster.start_all()
        await cluster.wait_until_equal(*(f"topic-{number}" for number in range(10)))

    run_scenario(scenario, seed=seed)


def test_a_wiped_broker_returns_as_another_voter() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        await cluster.create_topic("one")
        before = cluster.voter_keys
        leader.kill()
        leader.wipe()
        leader.start()
        await cluster.until(lambda: all(node.is_serving for node in cluster))
        await cluster.until(lambda: len(cluster.voter_keys - before) == 1 and len(cluster.voter_keys) == 3)
        await cluster.wait_until_equal("one")

    run_scenario(scenario)


def test_no_broker_names_a_leader_after_a_majority_has_lost_its_disks() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        _, other = cluster.others(leader)
        for node in (leader, other):
            node.kill()
            node.wipe()
            node.start()

        def named_leaders() -> list[int]:
            return [node.broker.quorum.leader_id for node in cluster if node.broker is not None]

        await cluster.until(lambda: named_leaders() == [-1, -1, -1], within_s=10)
        for _ in range(300):
            assert named_leaders() == [-1, -1, -1]
            await cluster.pause(0.01)

    run_scenario(scenario)


def test_five_voters_tolerate_the_loss_of_two() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        for node in cluster:
            node.start()
        await cluster.until(lambda: len(cluster.voters) == 5)
        await cluster.until(lambda: all(node.is_serving for node in cluster))
        for name in ("one", "two"):
            leader = cluster.leader
            leader.kill()
            await cluster.wait_for_new_leader(leader)
            await cluster.create_topic(name)

    run_scenario(scenario, brokers=5, settings={"controller.quorum.voter.count": "5"})


def test_brokers_that_are_all_restarted_at_once_elect_a_leader() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        await cluster.start_all()
        await cluster.create_topic("one")
        for node in cluster:
            node.kill()
        await cluster.pause(1.0)
        for node in cluster:
            node.start()
        assert await cluster.until(lambda: all(node.is_serving for node in cluster)) < 2.0
        await cluster.wait_until_equal("one")

    run_scenario(scenario)


def test_a_leader_whose_disk_is_full_resigns_and_keeps_running() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        await cluster.create_topic("one")
        leader.disk.full = True
        with pytest.raises(KafkaError) as refused:
            await commit(leader, [ConfigRecord(4, "", "log.cleaner.backoff.ms", "17000")])
        assert refused.value.code is ErrorCode.kafka_storage_error
        assert await cluster.wait_for_new_leader(leader) < 0.4
        await cluster.create_topic("two")
        leader.disk.full = False
        await cluster.wait_until_equal("one", "two")
        assert leader.is_running

    run_scenario(scenario)


def test_the_only_broker_reports_its_full_disk_and_continues_when_there_is_space() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        leader.disk.full = True
        with pytest.raises(KafkaError) as refused:
            await commit(leader, [ConfigRecord(4, "", "log.cleaner.backoff.ms", "17000")])
        assert refused.value.code is ErrorCode.kafka_storage_error
        assert cluster.leaders == [leader]
        leader.disk.full = False
        await cluster.create_topic("one")
        await cluster.wait_until_equal("one")

    run_scenario(scenario, brokers=1)
