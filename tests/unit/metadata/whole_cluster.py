"""Clusters of whole simulated brokers, for tests of the metadata quorum."""

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.image import TOPIC_RESOURCE, MetadataImage
from ottla_broker.metadata.records import MetadataRecord, encode_record
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.metadata.voter_set import ReplicaKey
from ottla_broker.wire.errors import KafkaError
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.processes import SimulatedLoop
from tests.sim.simulation import close_loop, own_garbage
from tests.sim.trace import Trace
from tests.unit.topic_creation import ensure_topic

T = TypeVar("T")

FETCH_TIMEOUT_S = 2.0
SETTINGS = {"offsets.topic.num.partitions": "1", "default.replication.factor": "1"}


class WholeCluster(SimulatedCluster):
    """Brokers on virtual time, observed from outside. Most tests call `start_all` first."""

    async def until(self, condition: Callable[[], T], within_s: float = 30.0) -> float:
        """Waits for a condition. Returns the time that took, in virtual seconds. Fails after
        `within_s`.
        """
        began = self.loop.time()
        while not condition():
            assert self.loop.time() - began < within_s, f"not within {within_s} s\n" + "\n".join(self.trace.lines[-40:])
            await self.pause(0.002)
        return self.loop.time() - began

    async def pause(self, seconds: float) -> None:
        waiter = self.loop.create_future()
        self.loop.call_later(seconds, waiter.set_result, None)
        await waiter

    async def start_all(self) -> SimulatedBroker:
        """Starts all brokers. Returns the leader when the voter set is complete."""
        for node in self:
            if not node.is_running:
                node.start()
        await self.until(lambda: all(node.is_serving for node in self))
        await self.until(lambda: len(self.voters) == (3 if len(self.brokers) >= 3 else 1))
        return self.leader

    @property
    def voters(self) -> set[int]:
        return {broker for broker, _ in self.voter_keys}

    @property
    def voter_keys(self) -> set[ReplicaKey]:
        """The voters that the newest leader has committed; empty without a leader."""
        if not self.leaders:
            return set()
        broker = self.leader.broker
        assert broker is not None
        log = broker.quorum.metadata_log
        return {voter.key for voter in log.voters.at(log.high_watermark)}

    @property
    def leaders(self) -> list[SimulatedBroker]:
        """Brokers that consider themselves the active controller."""
        return [node for node in self if node.broker is not None and node.broker.controller is not None]

    @property
    def leader(self) -> SimulatedBroker:
        """The controller with the newest epoch."""
        return max(self.leaders, key=lambda node: node.broker.quorum.epoch)  # type: ignore[union-attr]

    def others(self, node: SimulatedBroker) -> list[SimulatedBroker]:
        return [other for other in self if other is not node]

    async def wait_for_new_leader(self, after: SimulatedBroker) -> float:
        """Waits until a broker other than `after` leads. Returns the time that took, in seconds."""
        return await self.until(lambda: any(node is not after for node in self.leaders))

    async def create_topic(self, name: str) -> None:
        await self.run_on_controller(lambda controller: ensure_topic(controller, NewTopic(name, 1, 1)))

    async def delete_topic(self, name: str) -> None:
        await self.run_on_controller(lambda controller: controller.delete_topic(name))

    async def set_retention_ms(self, value: int) -> None:
        """Commits one metadata record: the retention of a topic, which need not exist."""
        await self.run_on_controller(
            lambda controller: controller.alter_configs(TOPIC_RESOURCE, "t", {"retention.ms": str(value)})
        )

    async def run_on_controller(self, command: Callable[[Controller], Coroutine[Any, Any, None]]) -> None:
        """Runs a command on the active controller, and again on its successors until it
        succeeds.
        """

        async def succeeds() -> bool:
            node = self.leader
            assert node.process is not None
            assert node.broker is not None
            assert node.broker.controller is not None
            work = node.process.run(command(node.broker.controller))
            await self.until(lambda: work.done() or not node.is_running)
            try:
                work.result()
            except KafkaError:
                return False
            return True

        while not (self.leaders and await succeeds()):
            await self.pause(0.01)

    async def wait_until_equal(self, *topics: str, within_s: float = 30.0, compare_from: int = 0) -> None:
        """Waits until every broker has these topics and all logs are equal from an offset on; −1:
        from the last record on.
        """

        def are_equal() -> bool:
            images = [node.broker.image for node in self if node.broker is not None and hasattr(node.broker, "quorum")]
            return (
                len(images) == len(self.brokers)
                and all(set(topics) <= image.topics.keys() for image in images)
                and len({image.end_offset for image in images}) == 1
                and len({self.read_log(node, compare_from) for node in self}) == 1
                and len({image_text(image) for image in images}) == 1
            )

        await self.until(are_equal, within_s)

    def read_log(self, node: SimulatedBroker, offset: int) -> bytes:
        assert node.broker is not None
        log = node.broker.quorum.metadata_log.partition_log
        start = max(log.start, offset if offset >= 0 else log.high_watermark - 1)
        return bytes(log.read(start, 1 << 24, up_to=log.high_watermark))


def image_text(image: MetadataImage) -> str:
    return "\n".join(sorted(encode_record(record).decode() for record in image.to_records(0)))


def commit(node: SimulatedBroker, records: list[MetadataRecord]) -> Any:
    """Starts a commit on this broker, the controller, and returns its task."""
    assert node.process is not None
    assert node.broker is not None
    return node.process.run(node.broker.quorum.commit(records))


@contextmanager
def simulated_cluster(
    brokers: int, seed: int, settings: Mapping[str, str]
) -> Iterator[tuple[SimulatedLoop, WholeCluster]]:
    """A loop and a cluster whose brokers are not started yet."""
    loop = SimulatedLoop()
    trace = Trace(loop.time, None)
    trace.start_capturing_logs(logging.INFO)
    loop.set_exception_handler(trace.handle_loop_exception)
    with own_garbage():
        try:
            yield loop, WholeCluster(loop, Random(seed), brokers, {**SETTINGS, **settings}, trace)
        finally:
            trace.stop_capturing_logs()
            loop.set_exception_handler(lambda *_: None)
            close_loop(loop)


def run_scenario(
    scenario: Callable[[WholeCluster], Coroutine[Any, Any, None]],
    brokers: int = 3,
    seed: int = 1,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Runs a scenario to its end. Fails if a broker had an unhandled error."""
    with simulated_cluster(brokers, seed, settings or {}) as (loop, cluster):
        loop.run_until_complete(loop.create_task(scenario(cluster)))
        assert not cluster.trace.problems
