"""Whole brokers follow and succeed one another: whatever becomes of a leader, what it committed
stays, and what it did not commit was never true.
"""

import pytest

from ottla_broker.metadata.records import ConfigRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.metadata.whole_cluster import FETCH_TIMEOUT_S, WholeCluster, commit, played

SEEDS = (1, 2, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_is_gone_is_followed_at_once(seed: int) -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        for name in ("one", "two", "three"):
            await cluster.make_topic(name)
            leader.kill()
            assert await cluster.new_leader(leader) < 0.4
            assert len(cluster.leaders) == 1
            leader.start()
            await cluster.until(lambda: all(node.is_serving for node in cluster))
            leader = cluster.leader
        await cluster.make_topic("four")
        await cluster.all_agree("one", "two", "three", "four")

    played(scene, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_is_silent_is_followed_at_the_fetch_timeout(seed: int) -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        assert leader.process is not None
        leader.process.pause()
        took_s = await cluster.new_leader(leader)
        assert FETCH_TIMEOUT_S * 0.8 < took_s < 2.5
        await cluster.make_topic("made-meanwhile")
        await cluster.pause(2.0)
        leader.process.resume()
        await cluster.until(lambda: leader not in cluster.leaders)
        await cluster.all_agree("made-meanwhile")

    played(scene, seed=seed)


def test_a_leader_that_stops_is_succeeded_before_it_is_gone() -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        await cluster.make_topic("one")
        assert await leader.stop()
        assert cluster.leaders  # nobody had to wait
        assert cluster.leader is not leader
        leader.start()
        await cluster.until(lambda: leader.is_serving)
        await cluster.all_agree("one")

    played(scene)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_cut_off_leader_could_not_commit_was_never_true(seed: int) -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        broker = leader.broker
        assert broker is not None
        others = [node.host for node in cluster.others(leader)]
        cluster.network.isolate_host(leader.host, others)
        wish = ConfigRecord(2, "nothing", "retention.ms", "1")
        commits = [commit(leader, [wish]) for _ in range(3)]
        await cluster.new_leader(leader)
        await cluster.make_topic("one")
        assert not any(one.done() for one in commits) or all(one.exception() is not None for one in commits)
        cluster.network.rejoin_host(leader.host, others)
        await cluster.until(lambda: all(one.done() for one in commits))
        for one in commits:
            reason = one.exception()
            assert isinstance(reason, KafkaError)
            assert reason.code is ErrorCode.not_controller
        await cluster.all_agree("one")
        assert all(node.broker is not None and not node.broker.image.configs for node in cluster)

    played(scene, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_committed_survives_a_loss_of_all_power(seed: int) -> None:
    async def scene(cluster: WholeCluster) -> None:
        await cluster.all_up()
        for number in range(10):
            await cluster.make_topic(f"topic-{number}")
        for node in cluster:
            node.lose_power()
        for node in cluster:
            node.power_on()
        await cluster.all_up()
        await cluster.all_agree(*(f"topic-{number}" for number in range(10)))

    played(scene, seed=seed)


def test_a_wiped_broker_comes_back_as_another_member() -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        await cluster.make_topic("one")
        before = cluster.member_keys
        leader.kill()
        leader.wipe()
        leader.start()
        await cluster.until(lambda: all(node.is_serving for node in cluster))
        await cluster.until(lambda: len(cluster.member_keys - before) == 1 and len(cluster.member_keys) == 3)
        await cluster.all_agree("one")

    played(scene)


def test_five_brokers_bear_the_loss_of_two() -> None:
    async def scene(cluster: WholeCluster) -> None:
        for node in cluster:
            node.start()
        await cluster.until(lambda: len(cluster.members) == 5)
        await cluster.until(lambda: all(node.is_serving for node in cluster))
        for name in ("one", "two"):
            leader = cluster.leader
            leader.kill()
            await cluster.new_leader(leader)
            await cluster.make_topic(name)

    played(scene, brokers=5, settings={"controller.quorum.voter.count": "5"})


def test_all_restarted_at_once_find_a_leader_again() -> None:
    async def scene(cluster: WholeCluster) -> None:
        await cluster.all_up()
        await cluster.make_topic("one")
        for node in cluster:
            node.kill()
        await cluster.pause(1.0)
        for node in cluster:
            node.start()
        assert await cluster.until(lambda: all(node.is_serving for node in cluster)) < 2.0
        await cluster.all_agree("one")

    played(scene)


def test_a_leader_whose_disk_is_full_leaves_the_lead_to_others_and_stays() -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        await cluster.make_topic("one")
        leader.disk.full = True
        with pytest.raises(KafkaError) as refused:
            await commit(leader, [ConfigRecord(4, "", "log.cleaner.backoff.ms", "17000")])
        assert refused.value.code is ErrorCode.kafka_storage_error
        assert await cluster.new_leader(leader) < 0.4
        await cluster.make_topic("two")
        leader.disk.full = False
        await cluster.all_agree("one", "two")
        assert leader.is_running

    played(scene)


def test_the_only_broker_says_that_its_disk_is_full_and_goes_on_when_it_is_not() -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        leader.disk.full = True
        with pytest.raises(KafkaError) as refused:
            await commit(leader, [ConfigRecord(4, "", "log.cleaner.backoff.ms", "17000")])
        assert refused.value.code is ErrorCode.kafka_storage_error
        assert cluster.leaders == [leader]
        leader.disk.full = False
        await cluster.make_topic("one")
        await cluster.all_agree("one")

    played(scene, brokers=1)
