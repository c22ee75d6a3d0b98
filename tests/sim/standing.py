"""How a cluster stands, seen from outside by whoever directs the run: what no client could know at once, and no broker either."""

from collections.abc import Iterator

from ottla_broker.broker import Broker
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import METADATA_TOPIC, PartitionRecord
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.history import Place


def running(cluster: SimulatedCluster) -> Iterator[tuple[SimulatedBroker, Broker]]:
    """Those whose process lives, stopped ones too."""
    for node in cluster:
        if node.broker is not None and node.is_running:
            yield node, node.broker


def newest_image(cluster: SimulatedCluster) -> MetadataImage | None:
    """Of all that living brokers know to be committed, the most; None when none lives."""
    return max((broker.image for _, broker in running(cluster)), key=lambda image: image.end_offset, default=None)


def partitions(image: MetadataImage) -> Iterator[tuple[Place, PartitionRecord]]:
    for name in sorted(image.topics):
        topic = image.topics[name]
        for partition in sorted(topic.partitions):
            yield (name, partition), topic.partitions[partition]


def unwell(image: MetadataImage) -> list[str]:
    """Partitions that are not as they should be when nothing is wrong, in words."""
    return [
        f"{place}: leader {state.leader}, ISR {list(state.isr)} of {list(state.replicas)}"
        + (f", adding {list(state.adding)}, removing {list(state.removing)}" if state.adding or state.removing else "")
        for place, state in partitions(image)
        if _is_ill(state)
    ]


def _is_ill(state: PartitionRecord) -> bool:
    whole = sorted(state.isr) == sorted(state.replicas)
    return state.leader < 0 or not whole or bool(state.adding or state.removing)


def views(cluster: SimulatedCluster) -> Iterator[str]:
    """What each replica's broker thinks of partitions that are not well, for people."""
    image = newest_image(cluster)
    ill = [place for place, state in partitions(image) if _is_ill(state)] if image else []
    for place in ill:
        for node, broker in running(cluster):
            if (hosted := broker.partitions.get(*place)) is not None:
                log = hosted.log
                yield (
                    f"{place} on {node.host}: {'leads' if hosted.is_leader else 'follows'} {hosted.registration}, log [{log.start}, {log.end}), "
                    f"high watermark {log.high_watermark}, failed {log.failure}, proposes {hosted.pending_isr_change}, followers {list(hosted.followers)}"
                )


def metadata_log(broker: Broker) -> PartitionLog | None:
    return broker.log_dirs[0].logs.get((METADATA_TOPIC, 0)) if broker.log_dirs else None


def metadata_leader(cluster: SimulatedCluster) -> SimulatedBroker | None:
    """Whom the register names."""
    value = cluster.register.value
    return None if value is None else cluster.brokers.get(value.leader)


def caught_up(cluster: SimulatedCluster, node: SimulatedBroker) -> bool:
    """Whether its present life has been in the ISR of everything that it should have: it has all that was acknowledged before this life."""
    image, broker = newest_image(cluster), node.broker
    if image is None or broker is None or not node.is_serving or not broker.log_dirs:
        return False
    known = image.brokers.get(node.node_id)
    if known is None or known.fenced or known.epoch != broker.log_dirs[0].broker_epoch:
        return False
    return all(node.node_id in state.isr for _, state in partitions(image) if node.node_id in state.replicas)
