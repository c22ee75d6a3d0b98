"""Whole brokers follow and succeed one another: whatever becomes of a leader, what it committed stays, and what it did not commit was never true."""

import pytest

from ottla_broker.metadata.records import ConfigRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.metadata.whole_cluster import LEASE_S, WholeCluster, commit, played

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
def test_a_leader_that_is_silent_is_followed_when_its_lease_is_over(seed: int) -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        assert leader.process is not None
        leader.process.pause()
        took_s = await cluster.new_leader(leader)
        assert LEASE_S * 0.6 < took_s < LEASE_S * 1.3
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


def test_without_the_register_everything_goes_on_but_a_change_of_leader() -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        cluster.register.make_unavailable()
        await cluster.pause(LEASE_S * 3)
        assert cluster.leaders == [leader]
        await cluster.make_topic("one")
        follower = cluster.others(leader)[0]
        follower.kill()
        await cluster.make_topic("two")
        follower.start()  # from what it remembers of the register
        await cluster.until(lambda: follower.is_serving)
        await cluster.all_agree("one", "two")
        leader.kill()
        await cluster.pause(LEASE_S * 3)
        assert not cluster.leaders
        cluster.register.make_available()
        await cluster.new_leader(leader, 10)
        leader.start()
        await cluster.until(lambda: all(node.is_serving for node in cluster))
        await cluster.make_topic("three")
        await cluster.all_agree("one", "two", "three")

    played(scene)


def test_a_leader_that_comes_back_while_the_register_is_away_is_followed_again() -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        assert leader.process is not None
        cluster.register.make_unavailable()
        leader.process.pause()
        await cluster.pause(LEASE_S * 3)
        assert cluster.leaders == [leader]
        leader.process.resume()
        await cluster.make_topic("one")
        await cluster.all_agree("one", within_s=5)
        assert cluster.leaders == [leader]

    played(scene)


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
        for name in ("one", "two"):
            leader = cluster.leader
            leader.kill()
            await cluster.new_leader(leader)
            await cluster.make_topic(name)

    played(scene, brokers=5)


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


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_register_that_is_lost_is_written_anew_by_the_leader(brokers: int) -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        before = cluster.register.value
        assert before is not None
        cluster.register.remove()
        await cluster.until(lambda: cluster.register.value is not None)
        after = cluster.register.value
        assert after is not None
        assert (after.cluster_id, after.epoch, after.leader) == (before.cluster_id, before.epoch, leader.node_id)
        assert {member.key for member in after.isr} == {member.key for member in before.isr}
        await cluster.make_topic("one")
        leader.kill()
        leader.start()
        await cluster.until(lambda: leader.is_serving)
        await cluster.all_agree("one")

    played(scene, brokers=brokers)


def test_a_broker_that_finds_the_register_lost_does_not_begin_a_cluster_of_its_own() -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        for node in cluster:
            node.kill()
        cluster.register.remove()
        leader.start()
        await cluster.until(lambda: any("restore the register" in line for line in cluster.trace.lines))
        assert cluster.register.value is None

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


@pytest.mark.parametrize("seed", SEEDS)
def test_rule_6_a_controller_that_neither_its_successor_nor_the_register_reaches_hears_of_it_from_others(
    seed: int,
) -> None:
    async def scene(cluster: WholeCluster) -> None:
        old = await cluster.all_up()
        new, other = cluster.others(old)
        cluster.register.cut(old.host)
        cluster.network.isolate_host(old.host, [new.host])
        await cluster.until(lambda: new in cluster.leaders)

        def is_fenced() -> bool:
            assert new.broker is not None
            return new.broker.image.brokers[old.node_id].fenced

        await cluster.until(is_fenced)
        assert old.broker is not None
        assert not old.broker.lifecycle.is_in_session, "others lead what it led"
        assert other.broker is not None
        assert other.broker.lifecycle.is_in_session

    played(scene, seed=seed)
