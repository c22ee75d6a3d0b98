"""Founding a cluster, joining it, changes of voters and addresses, and isolated brokers."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ottla_broker.metadata import leader_term
from ottla_broker.metadata.voter_set import Voter
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.sim.cluster import SimulatedBroker
from tests.unit.metadata.whole_cluster import WholeCluster, run_scenario


def has_logged(cluster: WholeCluster, text: str) -> Callable[[], bool]:
    return lambda: any(text in line for line in cluster.trace.lines)


def test_an_empty_broker_that_may_not_found_a_cluster_waits_and_logs_which_brokers_it_asks() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        for node in cluster.others(cluster.brokers[1]):
            node.start()
        await cluster.until(
            has_logged(cluster, "broker 2 knows no leader of the metadata log; asking broker-1:9092, broker-3:9092")
        )
        assert not any(node.is_serving for node in cluster)
        cluster.brokers[1].start()
        await cluster.until(lambda: all(node.is_serving for node in cluster))

    run_scenario(scenario)


def test_a_broker_that_may_found_a_cluster_joins_an_existing_one() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        founder = await cluster.start_all()
        await cluster.create_topic("one")
        founder.kill()
        await cluster.wait_for_new_leader(founder)
        founder.wipe()
        founder.may_found = True
        founder.start()
        await cluster.until(lambda: founder.is_serving)
        assert len({node.broker.cluster_id for node in cluster if node.broker is not None}) == 1
        assert has_logged(cluster, "broker 1 does not found a cluster: cluster")()
        await cluster.wait_until_equal("one")

    run_scenario(scenario)


def test_a_founder_waits_for_a_broker_that_does_not_respond_and_then_founds() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        cluster.brokers[2].start()
        await cluster.until(has_logged(cluster, "broker 2 knows no leader"))
        process = cluster.brokers[2].process
        assert process is not None
        process.pause()
        cluster.brokers[1].start()
        duration_s = await cluster.until(lambda: cluster.brokers[1].is_serving)
        assert duration_s > 4
        assert has_logged(cluster, "cannot ask the broker at broker-2:9092 for its cluster id")()

    run_scenario(scenario, brokers=2)


def move_to_another_address(cluster: WholeCluster, node: SimulatedBroker) -> None:
    """Moves the disk to a machine with another address."""
    node.host = f"elsewhere-{node.node_id}"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_brokers_that_all_get_other_addresses_elect_a_leader(seed: int) -> None:
    async def scenario(cluster: WholeCluster) -> None:
        await cluster.start_all()
        await cluster.create_topic("one")
        for node in cluster:
            node.kill()
        for node in cluster:
            move_to_another_address(cluster, node)
        for node in cluster:
            node.start()
        assert await cluster.until(lambda: all(node.is_serving for node in cluster)) < 10
        await cluster.wait_until_equal("one")

        def addresses() -> set[str]:
            broker = cluster.leader.broker
            assert broker is not None
            return {voter.address for voter in broker.quorum.metadata_log.voters.latest}

        await cluster.until(lambda: addresses() == {f"elsewhere-{number}:9092" for number in (1, 2, 3)})

    run_scenario(scenario, seed=seed)


def test_a_voter_is_updated_once_and_must_support_the_finalized_kraft_version() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        assert leader.broker is not None
        quorum = leader.broker.quorum
        history = quorum.metadata_log.voters

        async def update(voter: Voter) -> KafkaError | None:
            assert leader.process is not None
            work = leader.process.run(quorum.update_voter(voter, 5))
            await cluster.until(work.done)
            reason = work.exception()
            assert reason is None or isinstance(reason, KafkaError)
            return reason

        follower = next(voter for voter in history.latest if voter.broker != leader.node_id)
        moved = replace(follower, address="elsewhere:9092", kraft_versions=(0, 2))
        assert await update(moved) is None
        appended_at = history.latest_offset
        assert moved in history.latest
        assert await update(moved) is None
        assert history.latest_offset == appended_at
        refused = await update(replace(moved, kraft_versions=(2, 3)))
        assert refused is not None and refused.code is ErrorCode.invalid_request
        await cluster.until(lambda: follower in history.latest)  # the follower reports its own entry again

    run_scenario(scenario)


def test_a_disk_of_another_cluster_is_refused_with_both_cluster_ids() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        await cluster.start_all()
        foreign = cluster.brokers[3]
        ours = cluster.leader.broker
        assert ours is not None
        foreign.kill()
        path = "/data/meta.properties"
        text = foreign.disk.read_file(path).decode().replace(ours.cluster_id, "AnotherClusterOfTenants")
        foreign.disk.replace_file(path, text.encode())
        foreign.start()
        text = "belongs to cluster AnotherClusterOfTenants, but the broker at"
        await cluster.until(lambda: any(text in line and ours.cluster_id in line for line in cluster.trace.lines))
        assert not foreign.is_serving

    run_scenario(scenario)


def test_a_leader_that_hears_no_majority_resigns() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        old = await cluster.start_all()
        others = [node.host for node in cluster.others(old)]
        cluster.network.isolate_host(old.host, others)
        assert old.broker is not None
        quorum = old.broker.quorum
        await cluster.until(lambda: not quorum.hears_majority(2.0))
        assert await cluster.until(lambda: old not in cluster.leaders) < 1.1
        assert quorum.leader_id == -1

    run_scenario(scenario)


def test_a_follower_that_cannot_reach_the_leader_starts_no_election() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        assert leader.broker is not None
        epoch = leader.broker.quorum.epoch
        isolated = cluster.others(leader)[0]
        cluster.network.isolate_host(isolated.host, [leader.host])
        await cluster.pause(10)
        assert cluster.leaders == [leader] and leader.broker.quorum.epoch == epoch
        cluster.network.rejoin_host(isolated.host, [leader.host])
        await cluster.create_topic("one")
        await cluster.wait_until_equal("one")
        assert leader.broker.quorum.epoch == epoch

    run_scenario(scenario)


def test_a_lost_voter_is_replaced_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_term, "VOTER_LOSS_TIMEOUT_S", 5.0)

    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        lost = next(node for node in cluster.others(leader) if node.node_id in cluster.voters)
        lost.kill()
        left = set(cluster.brokers) - {lost.node_id}
        await cluster.until(lambda: cluster.voters == left)
        leader.kill()
        await cluster.wait_for_new_leader(leader)
        await cluster.create_topic("one")

    run_scenario(scenario, brokers=4)
