"""Folders of partitions that were assigned to other brokers while this one was down."""

from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.replication_control import PartitionReassignment
from ottla_broker.metadata.topic_plans import NewTopic
from tests.sim.cluster import FOLDER
from tests.unit.metadata.whole_cluster import WholeCluster, run_scenario
from tests.unit.topic_creation import ensure_topic


def test_a_replica_that_was_reassigned_while_its_broker_was_down_becomes_stray() -> None:
    async def scenario(cluster: WholeCluster) -> None:
        leader = await cluster.start_all()
        gone, other = cluster.others(leader)
        before, after = [leader.node_id, gone.node_id], [leader.node_id, other.node_id]

        async def create(controller: Controller) -> None:
            await ensure_topic(controller, NewTopic("t", -1, -1, assignment={0: before}))

        async def reassign(controller: Controller) -> None:
            (outcome,) = await controller.replication_control.reassign_partitions(
                [PartitionReassignment("t", 0, after)]
            )
            assert outcome is None

        def replicas() -> list[int]:
            return list(leader.broker.image.topics["t"].partitions[0].replicas)  # type: ignore[union-attr]

        await cluster.run_on_controller(create)
        await cluster.until(lambda: "t-0" in gone.disk.list(FOLDER))
        await gone.stop()
        await cluster.run_on_controller(reassign)
        await cluster.until(lambda: replicas() == after)
        gone.start()
        await cluster.until(lambda: gone.is_serving)
        (folder,) = (it for it in gone.disk.list(FOLDER) if it.startswith("t-0"))
        assert folder.endswith("-stray")
        assert "t-0" in other.disk.list(FOLDER)

    run_scenario(scenario)
