"""How brokers found a cluster, join it, and find each other again when disks have moved."""

from collections.abc import Callable

import pytest

from ottla_broker.metadata import leader_term
from tests.sim.cluster import SimulatedBroker
from tests.unit.metadata.whole_cluster import WholeCluster, played


def has_line(cluster: WholeCluster, text: str) -> Callable[[], bool]:
    return lambda: any(text in line for line in cluster.trace.lines)


def test_an_empty_broker_without_a_cluster_waits_and_says_whom_it_asks() -> None:
    async def scene(cluster: WholeCluster) -> None:
        for node in cluster.others(cluster.brokers[1]):
            node.start()
        await cluster.until(
            has_line(cluster, "broker 2 knows no leader of the metadata log; asking broker-1:9092, broker-3:9092")
        )
        assert not any(node.is_serving for node in cluster)
        cluster.brokers[1].start()
        await cluster.until(lambda: all(node.is_serving for node in cluster))

    played(scene)


def test_a_broker_that_may_found_a_cluster_joins_the_one_that_there_is() -> None:
    async def scene(cluster: WholeCluster) -> None:
        founder = await cluster.all_up()
        await cluster.make_topic("one")
        founder.kill()
        await cluster.new_leader(founder)
        founder.wipe()
        founder.founds = True
        founder.start()
        await cluster.until(lambda: founder.is_serving)
        assert len({node.broker.cluster_id for node in cluster if node.broker is not None}) == 1
        assert has_line(cluster, "broker 1 founds no cluster: there is cluster")()
        await cluster.all_agree("one")

    played(scene)


def test_a_founder_waits_a_moment_for_a_broker_that_does_not_answer() -> None:
    async def scene(cluster: WholeCluster) -> None:
        cluster.brokers[2].start()
        await cluster.until(has_line(cluster, "broker 2 knows no leader"))
        process = cluster.brokers[2].process
        assert process is not None
        process.pause()
        cluster.brokers[1].start()
        took_s = await cluster.until(lambda: cluster.brokers[1].is_serving)
        assert took_s > 4
        assert has_line(cluster, "broker-2:9092 did not say whether it has a cluster")()

    played(scene, brokers=2)


def move(cluster: WholeCluster, node: SimulatedBroker) -> None:
    """The disk goes to a machine with another address."""
    node.host = f"elsewhere-{node.node_id}"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_disks_that_all_move_to_other_addresses_elect_by_themselves(seed: int) -> None:
    async def scene(cluster: WholeCluster) -> None:
        await cluster.all_up()
        await cluster.make_topic("one")
        for node in cluster:
            node.kill()
        for node in cluster:
            move(cluster, node)
        for node in cluster:
            node.start()
        assert await cluster.until(lambda: all(node.is_serving for node in cluster)) < 10
        await cluster.all_agree("one")

        def addresses() -> set[str]:
            broker = cluster.leader.broker
            assert broker is not None
            return {voter.address for voter in broker.quorum.metadata_log.voters.latest}

        await cluster.until(lambda: addresses() == {f"elsewhere-{number}:9092" for number in (1, 2, 3)})

    played(scene, seed=seed)


def test_a_disk_of_another_cluster_is_refused_by_name() -> None:
    async def scene(cluster: WholeCluster) -> None:
        await cluster.all_up()
        stranger = cluster.brokers[3]
        ours = cluster.leader.broker
        assert ours is not None
        stranger.kill()
        path = "/data/meta.properties"
        text = stranger.disk.read_file(path).decode().replace(ours.cluster_id, "AnotherClusterOfTenants")
        stranger.disk.replace_file(path, text.encode())
        stranger.start()
        said = "belongs to cluster AnotherClusterOfTenants, but the broker at"
        await cluster.until(lambda: any(said in line and ours.cluster_id in line for line in cluster.trace.lines))
        assert not stranger.is_serving

    played(scene)


def test_a_leader_that_hears_no_majority_resigns() -> None:
    async def scene(cluster: WholeCluster) -> None:
        old = await cluster.all_up()
        others = [node.host for node in cluster.others(old)]
        cluster.network.isolate_host(old.host, others)
        assert old.broker is not None
        quorum = old.broker.quorum
        await cluster.until(lambda: not quorum.hears_majority(2.0))
        assert await cluster.until(lambda: old not in cluster.leaders) < 1.1
        assert quorum.leader_id == -1

    played(scene)


def test_a_follower_that_hears_nothing_of_the_leader_does_not_disturb_the_others() -> None:
    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        assert leader.broker is not None
        epoch = leader.broker.quorum.epoch
        deaf = cluster.others(leader)[0]
        cluster.network.isolate_host(deaf.host, [leader.host])
        await cluster.pause(10)
        assert cluster.leaders == [leader] and leader.broker.quorum.epoch == epoch
        cluster.network.rejoin_host(deaf.host, [leader.host])
        await cluster.make_topic("one")
        await cluster.all_agree("one")
        assert leader.broker.quorum.epoch == epoch

    played(scene)


def test_a_voter_that_is_gone_for_long_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_term, "VOTER_LOSS_TIMEOUT_S", 5.0)

    async def scene(cluster: WholeCluster) -> None:
        leader = await cluster.all_up()
        gone = next(node for node in cluster.others(leader) if node.node_id in cluster.members)
        gone.kill()
        left = set(cluster.brokers) - {gone.node_id}
        await cluster.until(lambda: cluster.members == left)
        leader.kill()
        await cluster.new_leader(leader)
        await cluster.make_topic("one")

    played(scene, brokers=4)
