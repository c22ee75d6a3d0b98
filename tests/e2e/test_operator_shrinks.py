"""A smaller number of replicas, with a kubelet that deletes pods slowly, as Kubernetes does."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from kio.schema.create_topics.v7.request import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i16, i32

from ottla_operator.kafka import topics
from ottla_operator.kube.status_writer import now_text
from tests.e2e.process_kubelet import ProcessKubelet, connect_to_brokers, run_with_cluster


@dataclass
class SlowKubelet(ProcessKubelet):
    """A kubelet that deletes pods as Kubernetes does: they are terminating until their process has
    exited.
    """

    terminating: dict[str, "asyncio.Task[int]"] = field(default_factory=dict)

    async def sync_pods(self) -> None:
        sets = list(self.api.of("StatefulSet").values())
        wanted = {f"demo-{n}" for it in sets for n in range(1, 1 + it["spec"]["replicas"])}
        for name, pod in self.api.of("Pod").items():
            if name not in wanted and name in self._containers:
                pod["metadata"]["deletionTimestamp"] = now_text()
                process = self._containers.pop(name).process
                process.terminate()
                self.terminating[name] = asyncio.create_task(process.wait())
        self.terminating = {name: it for name, it in self.terminating.items() if not it.done()}
        terminating = {name: self.api.objects.pop(("Pod", "events", name)) for name in self.terminating}
        await super().sync_pods()
        for name, pod in terminating.items():
            self.api.objects["Pod", "events", name] = pod


def test_three_brokers_are_reduced_to_one_that_still_creates_topics(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.edit_spec("Cluster", "demo", replicas=1)
        await kubelet.wait_until(lambda: set(kubelet.api.of("Pod")) == {"demo-1"})
        kubelet.put_topic("flights")
        await kubelet.wait_until_ready("Topic", "flights")
        await kubelet.wait_until_ready()

    run_with_cluster(tmp_path, 3, scenario, kubelet_class=SlowKubelet)


def test_replicas_that_a_broker_gets_while_it_is_removed_are_moved_off(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.edit_spec("Cluster", "demo", replicas=2)
        await kubelet.wait_until(lambda: kubelet.api.stateful_set["spec"]["replicas"] == 2)
        await create_topic_on_broker_3(kubelet)  # the broker has not been stopped yet
        async with connect_to_brokers(kubelet) as client:
            assert (await topics.describe_topics(client, ["late"]))["late"].partitions[0].replicas == (3, 1)
        await kubelet.wait_until(lambda: "demo-3" not in kubelet.api.of("Pod"))
        await kubelet.wait_until(lambda: any("it got replicas while" in it for it in kubelet.events))
        await kubelet.wait_until(lambda: set(kubelet.api.of("Pod")) == {"demo-1", "demo-2"})
        await kubelet.wait_until_ready()
        async with connect_to_brokers(kubelet) as client:
            late = (await topics.describe_topics(client, ["late"]))["late"]
        assert set(late.partitions[0].replicas) == set(late.partitions[0].isr) == {1, 2}

    async def create_topic_on_broker_3(kubelet: ProcessKubelet) -> None:
        assignment = CreatableReplicaAssignment(partition_index=i32(0), broker_ids=(BrokerId(3), BrokerId(1)))
        late = CreatableTopic(
            name=TopicName("late"),
            num_partitions=i32(-1),
            replication_factor=i16(-1),
            assignments=(assignment,),
            configs=(),
        )
        async with connect_to_brokers(kubelet) as client:
            await client.send_to_controller(CreateTopicsRequest(topics=(late,)))

    run_with_cluster(tmp_path, 3, scenario, kubelet_class=SlowKubelet)
