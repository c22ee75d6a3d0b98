"""Fewer brokers, on a kubelet that lets pods go in its own time, as Kubernetes does."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.kubelet import World

STORAGE = {"size": "1Gi"}


@dataclass
class Patient(World):
    """A kubelet that lets pods go as Kubernetes does: they are there, leaving, until their process has ended."""

    stopping: dict[str, "asyncio.Task[int]"] = field(default_factory=dict)

    async def kubelet(self) -> None:
        sets = list(self.api.of("StatefulSet").values())
        wanted = {f"demo-{n}" for it in sets for n in range(1, 1 + it["spec"]["replicas"])}
        for name, pod in self.api.of("Pod").items():
            if name not in wanted and name in self._containers:
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                process = self._containers.pop(name).process
                process.terminate()
                self.stopping[name] = asyncio.create_task(process.wait())
        self.stopping = {name: it for name, it in self.stopping.items() if not it.done()}
        leaving = {name: self.api.objects.pop(("Pod", "events", name)) for name in self.stopping}
        await super().kubelet()
        for name, pod in leaving.items():
            self.api.objects["Pod", "events", name] = pod


def test_all_but_one_are_let_go_and_the_metadata_log_takes_records(tmp_path: Path) -> None:
    async def main() -> None:
        world = Patient(tmp_path)
        world.api.cluster({"replicas": 3, "storage": STORAGE})
        try:
            await world.current()
            world.edit("Cluster", "demo", replicas=1)
            await world.until(lambda: set(world.api.of("Pod")) == {"demo-1"})
            world.topic("flights")
            await world.current("Topic", "flights")
            await world.current()
        finally:
            await world.stop()

    asyncio.run(main())
