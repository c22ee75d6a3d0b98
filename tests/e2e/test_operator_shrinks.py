"""Fewer brokers, on a kubelet that takes its time to delete pods, as Kubernetes does."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from kio.schema.create_topics.v7.request import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i16, i32

from ottla_operator.kafka import topics
from ottla_operator.kube.status_writer import now_text
from tests.e2e.process_kubelet import ProcessKubelet
from tests.e2e.test_operator import connect_to_brokers

STORAGE = {"size": "1Gi"}


@dataclass
class SlowKubelet(ProcessKubelet):
    """A kubelet that deletes pods as Kubernetes does: they are terminating until their process has exited."""

    terminating: dict[str, "asyncio.Task[int]"] = field(default_factory=dict)

    async def kubelet(self) -> None:
        sets = list(self.api.of("StatefulSet").values())
        wanted = {f"demo-{n}" for it in sets for n in range(1, 1 + it["spec"]["replicas"])}
        for name, pod in self.api.of("Pod").items():
            if name not in wanted and name in self._containers:
                pod["metadata"]["deletionTimestamp"] = now_text()
                process = self._containers.pop(name).process
                process.terminate()
                self.terminating[name] = asyncio.create_task(process.wait())
        self.terminating = {name: it for name, it in self.terminating.items() if not it.done()}
        leaving = {name: self.api.objects.pop(("Pod", "events", name)) for name in self.terminating}
        await super().sync_pods()
        for name, pod in leaving.items():
            self.api.objects["Pod", "events", name] = pod


def test_all_but_one_are_let_go_and_the_metadata_log_takes_records(tmp_path: Path) -> None:
    async def main() -> None:
        world = SlowKubelet(tmp_path)
        world.api.cluster({"replicas": 3, "storage": STORAGE})
        try:
            await world.wait_until_ready()
            world.edit_spec("Cluster", "demo", replicas=1)
            await world.wait_until(lambda: set(world.api.of("Pod")) == {"demo-1"})
            world.put_topic("flights")
            await world.wait_until_ready("Topic", "flights")
            await world.wait_until_ready()
        finally:
            await world.stop()

    asyncio.run(main())


def test_what_a_broker_is_given_while_it_is_let_go_is_moved_off_it(tmp_path: Path) -> None:
    async def main() -> None:
        world = SlowKubelet(tmp_path)
        world.api.cluster({"replicas": 3, "storage": STORAGE})
        try:
            await world.wait_until_ready()
            world.edit_spec("Cluster", "demo", replicas=2)
            await world.wait_until(lambda: world.api.stateful_set["spec"]["replicas"] == 2)
            await on_broker_three(world)  # it has not been stopped yet
            async with connect_to_brokers(world) as link:
                assert (await topics.describe_topics(link, ["late"]))["late"].partitions[0].replicas == (3, 1)
            await world.wait_until(lambda: "demo-3" not in world.api.of("Pod"))
            await world.wait_until(lambda: any("it got replicas while" in it for it in world.events))
            await world.wait_until(lambda: set(world.api.of("Pod")) == {"demo-1", "demo-2"})
            await world.wait_until_ready()
            async with connect_to_brokers(world) as link:
                late = (await topics.describe_topics(link, ["late"]))["late"]
            assert set(late.partitions[0].replicas) == set(late.partitions[0].isr) == {1, 2}
        finally:
            await world.stop()

    async def on_broker_three(world: ProcessKubelet) -> None:
        placed = CreatableReplicaAssignment(partition_index=i32(0), broker_ids=(BrokerId(3), BrokerId(1)))
        late = CreatableTopic(
            name=TopicName("late"),
            num_partitions=i32(-1),
            replication_factor=i16(-1),
            assignments=(placed,),
            configs=(),
        )
        async with connect_to_brokers(world) as link:
            await link.send_to_controller(CreateTopicsRequest(topics=(late,)))

    asyncio.run(main())
