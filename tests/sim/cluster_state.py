"""The state of a whole cluster, as only the driver of a run sees it."""

from collections.abc import Iterator

from ottla_broker.broker import Broker
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import METADATA_TOPIC, PartitionRecord
from ottla_broker.metadata.voter_set import ReplicaKey, VoterSet
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.history import TopicPartition


def running_brokers(cluster: SimulatedCluster) -> Iterator[tuple[SimulatedBroker, Broker]]:
    """Brokers with a running or paused process."""
    for node in cluster:
        if node.broker is not None and node.is_running:
            yield node, node.broker


def newest_image(cluster: SimulatedCluster) -> MetadataImage | None:
    """The newest image of all running brokers; None if no broker runs."""
    return max(
        (broker.image for _, broker in running_brokers(cluster)), key=lambda image: image.end_offset, default=None
    )


def partition_records(image: MetadataImage) -> Iterator[tuple[TopicPartition, PartitionRecord]]:
    for name in sorted(image.topics):
        topic = image.topics[name]
        for partition in sorted(topic.partitions):
            yield (name, partition), topic.partitions[partition]


def unhealthy_partitions(image: MetadataImage) -> list[str]:
    """Descriptions of partitions without leader, with an incomplete ISR, or being reassigned."""
    return [
        f"{tp}: leader {state.leader}, ISR {list(state.isr)} of {list(state.replicas)}"
        + (f", adding {list(state.adding)}, removing {list(state.removing)}" if state.adding or state.removing else "")
        for tp, state in partition_records(image)
        if _is_unhealthy(state)
    ]


def _is_unhealthy(state: PartitionRecord) -> bool:
    is_fully_in_sync = sorted(state.isr) == sorted(state.replicas)
    return state.leader < 0 or not is_fully_in_sync or bool(state.adding or state.removing)


def describe_unhealthy_replicas(cluster: SimulatedCluster) -> Iterator[str]:
    """Describes the replicas of unhealthy partitions, for the trace of a failed run."""
    image = newest_image(cluster)
    unhealthy = [tp for tp, state in partition_records(image) if _is_unhealthy(state)] if image else []
    for tp in unhealthy:
        for node, broker in running_brokers(cluster):
            if (hosted := broker.partitions.get(*tp)) is not None:
                log = hosted.log
                yield (
                    f"{tp} on {node.host}: {'leads' if hosted.is_leader else 'follows'} {hosted.registration}, "
                    f"log [{log.start}, {log.end}), "
                    f"high watermark {log.high_watermark}, failed {log.failure}, proposes "
                    f"{hosted.pending_isr_change}, followers "
                    f"{list(hosted.leader.followers) if hosted.is_leader else []}"
                )


def metadata_log(broker: Broker) -> PartitionLog | None:
    return broker.log_dirs[0].logs.get((METADATA_TOPIC, 0)) if broker.log_dirs else None


def active_controllers(cluster: SimulatedCluster) -> Iterator[tuple[SimulatedBroker, Broker]]:
    """Running brokers that act as controller; a former one may not know of its successor yet."""
    return ((node, broker) for node, broker in running_brokers(cluster) if broker.controller is not None)


def controller_broker(cluster: SimulatedCluster) -> SimulatedBroker | None:
    """The active controller of the newest epoch; None while the metadata log has no leader."""
    found = max(active_controllers(cluster), key=lambda one: one[1].quorum.epoch, default=None)
    return None if found is None else found[0]


def committed_voters(cluster: SimulatedCluster) -> frozenset[ReplicaKey]:
    """The voters of the metadata log according to its leader. Empty while there is no leader or a
    record of its log, which may be a newer voter set, is not committed.
    """
    return frozenset(voter.key for voter in committed_voter_set(cluster))


def committed_voter_set(cluster: SimulatedCluster) -> VoterSet:
    """As `committed_voters`, with the voters' addresses."""
    node = controller_broker(cluster)
    if node is None or node.broker is None:
        return ()
    quorum = node.broker.quorum
    log = quorum.metadata_log.partition_log
    if log.high_watermark < log.end or quorum.leader_id != node.node_id:  # the leader may be resigning
        return ()
    return quorum.describe_replica().voters


def has_caught_up(cluster: SimulatedCluster, node: SimulatedBroker) -> bool:
    """True if the broker's current process is in the ISR of each of its partitions, so that it has
    every record acknowledged before its start.
    """
    image, broker = newest_image(cluster), node.broker
    if image is None or broker is None or not node.is_serving or not broker.log_dirs:
        return False
    known = image.brokers.get(node.node_id)
    if known is None or known.fenced or known.epoch != broker.log_dirs[0].broker_epoch:
        return False
    return all(node.node_id in state.isr for _, state in partition_records(image) if node.node_id in state.replicas)
