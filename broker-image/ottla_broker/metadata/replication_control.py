"""The controller's part for partitions: ISR changes, elections, reassignments.

Each request is one commit, whatever the number of its partitions. An error for one partition does
not affect the others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace as replace_fields

from ottla_broker.log.file_names import TopicPartition
from ottla_broker.metadata import election, reassignment
from ottla_broker.metadata.broker_plans import election_candidates
from ottla_broker.metadata.election import ElectionCandidates, TopicElectionRules
from ottla_broker.metadata.image import TopicImage
from ottla_broker.metadata.isr_changes import IsrChangeRequest, apply_isr_change
from ottla_broker.metadata.metadata_writer import Decision, MetadataWriter
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.metadata.replica_placer import DirectoryAssigner
from ottla_broker.wire.errors import ErrorCode, KafkaError

Outcome = KafkaError | None
"""The error of a request for one partition; None if it was executed."""
R = TypeVar("R")


class PartitionReassignment(msgspec.Struct, frozen=True):
    """A request of AlterPartitionReassignments. `replicas` None: cancel the ongoing
    reassignment.
    """

    topic: str
    partition: int
    replicas: Sequence[int] | None


class DirectoryAssignment(msgspec.Struct, frozen=True):
    """A request of AssignReplicasToDirs: the log directory of the sender's replica."""

    topic_id: UUID
    partition: int
    directory: UUID


class ReplicationControl:
    """Methods raise KafkaError, NOT_CONTROLLER when another broker was elected meanwhile."""

    def __init__(self, writer: MetadataWriter) -> None:
        self._writer = writer
        self._image = writer.image

    async def alter_partitions(
        self, leader: int, requests: Sequence[IsrChangeRequest]
    ) -> list[PartitionRecord | KafkaError]:
        """Changes ISRs at the request of broker `leader`. Returns the new states or errors, in the
        order of the requests. The errors are UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, those of
        `isr_changes`, and NEW_LEADER_ELECTED when the change was made and completed a reassignment
        with another leader."""

        def plan() -> Decision[list[PartitionRecord | KafkaError]]:
            candidates, rules_of = election_candidates(self._image), self._writer.topic_rules()

            def change_isr(request: IsrChangeRequest) -> PartitionRecord:
                old, rules = self._partition_by_id(request.topic, request.partition)[1], rules_of(request.topic)
                return apply_isr_change(old, request, leader, self._image.brokers, candidates, rules)

            results = _plan_each(requests, change_isr)
            return _states(results), [_leader_result(result, leader) for result in results]

        return await self._writer.execute(plan)

    async def elect_preferred_leaders(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, Outcome]:
        """Elects the preferred leaders of these partitions. `partitions` None: of every partition
        that its preferred leader does not lead. The outcomes have UNKNOWN_TOPIC_OR_PARTITION,
        PREFERRED_LEADER_NOT_AVAILABLE or ELECTION_NOT_NEEDED."""

        def elect(state: PartitionRecord, candidates: ElectionCandidates, rules: TopicElectionRules) -> PartitionRecord:
            preferred = state.replicas[0]
            new = election.elect_preferred_leader(state, candidates)
            if new is None and state.leader == preferred:
                raise KafkaError(ErrorCode.election_not_needed, f"broker {preferred} is already the leader")
            if new is None:
                reason = (
                    "not in sync"
                    if preferred not in state.isr
                    else "fenced, shutting down or without its log directory"
                )
                raise KafkaError(
                    ErrorCode.preferred_leader_not_available, f"the preferred leader, broker {preferred}, is {reason}"
                )
            return new

        return await self._elect(partitions, elect)

    async def elect_unclean_leaders(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, Outcome]:
        """Elects leaders for those of these partitions that have none, uncleanly if need be.
        `partitions` None: for every partition without a leader. The outcomes have
        UNKNOWN_TOPIC_OR_PARTITION, ELIGIBLE_LEADERS_NOT_AVAILABLE or ELECTION_NOT_NEEDED."""

        def elect(state: PartitionRecord, candidates: ElectionCandidates, rules: TopicElectionRules) -> PartitionRecord:
            if state.leader != NO_LEADER:
                raise KafkaError(ErrorCode.election_not_needed, f"broker {state.leader} is the leader")
            new = election.elect_unclean_leader(state, candidates, rules)
            if new is None:
                raise KafkaError(
                    ErrorCode.eligible_leaders_not_available,
                    "every replica is fenced, shutting down or without its log directory",
                )
            return new

        return await self._elect(partitions, elect)

    async def reassign_partitions(
        self, requests: Sequence[PartitionReassignment], *, same_factor: bool = False
    ) -> list[Outcome]:
        """Begins, replaces or cancels reassignments. Returns the outcomes in the order of the
        requests: None, UNKNOWN_TOPIC_OR_PARTITION or an error of `reassignment`. `same_factor`: the
        replication factor must not change."""

        def plan() -> Decision[list[Outcome]]:
            candidates, rules_of = election_candidates(self._image), self._writer.topic_rules()
            directories = DirectoryAssigner(self._image.brokers, self._image.partition_index)

            def reassign(request: PartitionReassignment) -> PartitionRecord | None:
                topic, old = self._existing_partition(request.topic, request.partition)
                rules = rules_of(topic.id)
                if request.replicas is None:
                    return reassignment.cancel_reassignment(old, candidates, rules)
                factor = len(reassignment.original_replicas(old)) if same_factor else None
                reassignment.validate_targets(request.replicas, self._image.brokers, factor)
                assigned = directories.assign_directories(request.replicas)
                return reassignment.begin_reassignment(old, request.replicas, assigned, candidates, rules)

            results = _plan_each(requests, reassign)
            return _states(results), [result if isinstance(result, KafkaError) else None for result in results]

        return await self._writer.execute(plan)

    async def assign_directories(self, broker: int, requests: Sequence[DirectoryAssignment]) -> list[Outcome]:
        """Records the directories of a broker's replicas. Returns the outcomes in the order of the
        requests: None, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER."""

        def assign(request: DirectoryAssignment) -> PartitionRecord | None:
            topic, old = self._partition_by_id(request.topic_id, request.partition)
            if broker not in old.replicas:
                reason = f"broker {broker} has no replica of {topic.name}-{request.partition}"
                raise KafkaError(ErrorCode.not_leader_or_follower, reason)
            directories = election.directories_with(old, broker, request.directory)
            return election.with_next_epochs(old, replace_fields(old, directories=directories))

        def plan() -> Decision[list[Outcome]]:
            results = _plan_each(requests, assign)
            return _states(results), [result if isinstance(result, KafkaError) else None for result in results]

        return await self._writer.execute(plan)

    def ongoing_reassignments(self) -> Iterator[tuple[TopicImage, PartitionRecord]]:
        """The partitions that are reassigned, each with its topic."""
        for state in self._image.find_partitions(self._image.partition_index.reassigning):
            yield self._image.topics[self._image.topic_names[state.topic]], state

    async def clear_unneeded_eligible_replicas(self) -> None:
        """Clears eligible replicas where the ISR is large enough by this controller's settings,
        which may differ from its predecessor's. A leader with eligible replicas does not advance
        the high watermark.
        """

        def plan() -> list[PartitionRecord]:
            rules_of = self._writer.topic_rules()
            changed = (
                election.without_eligible_replicas(state, rules_of(state.topic))
                for state in self._image.find_partitions(self._image.partition_index.with_eligible_replicas)
            )
            return [state for state in changed if state is not None]

        await self._writer.apply_plan(plan)

    async def restore_preferred_leaders(self) -> int:
        """Elects the preferred leader of every partition where it is available. Returns the number
        of changed partitions.
        """
        outcomes = await self.elect_preferred_leaders(None)
        return sum(outcome is None for outcome in outcomes.values())

    async def _elect(
        self,
        partitions: Iterable[TopicPartition] | None,
        elect: Callable[[PartitionRecord, ElectionCandidates, TopicElectionRules], PartitionRecord],
    ) -> dict[TopicPartition, Outcome]:
        """`elect` returns a partition's next state or raises the error for it. Without
        `partitions`, those that need no election are left out of the outcomes.
        """

        def plan() -> Decision[dict[TopicPartition, Outcome]]:
            candidates, rules_of = election_candidates(self._image), self._writer.topic_rules()

            def elect_one(key: TopicPartition) -> PartitionRecord:
                topic, state = self._existing_partition(*key)
                return elect(state, candidates, rules_of(topic.id))

            keys = self._partitions_to_elect() if partitions is None else list(partitions)
            results = _plan_each(keys, elect_one)
            outcomes = {
                key: result if isinstance(result, KafkaError) else None
                for key, result in zip(keys, results, strict=True)
                if partitions is not None or not _is_election_not_needed(result)
            }
            return _states(results), outcomes

        return await self._writer.execute(plan)

    def _partitions_to_elect(self) -> list[TopicPartition]:
        """Those without a leader, and those that another replica than the preferred one leads."""
        keys = self._image.partition_index.not_led_by_preferred
        return [(self._image.topic_names[topic], partition) for topic, partition in keys]

    def _existing_partition(self, name: str, partition: int) -> tuple[TopicImage, PartitionRecord]:
        """Raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._image.topics.get(name)
        state = None if topic is None else topic.partitions.get(partition)
        if topic is None or state is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no partition {name}-{partition}")
        return topic, state

    def _partition_by_id(self, topic_id: UUID, partition: int) -> tuple[TopicImage, PartitionRecord]:
        """Raises UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic_id}")
        return self._existing_partition(topic.name, partition)


def _plan_each(
    requests: Iterable[R], plan_one: Callable[[R], PartitionRecord | None]
) -> list[PartitionRecord | KafkaError | None]:
    """The partition's next state for each request: None if nothing changes, or the error."""
    results: list[PartitionRecord | KafkaError | None] = []
    for request in requests:
        try:
            results.append(plan_one(request))
        except KafkaError as reason:
            results.append(reason)
    return results


def _states(results: Iterable[PartitionRecord | KafkaError | None]) -> list[PartitionRecord]:
    return [result for result in results if isinstance(result, PartitionRecord)]


def _leader_result(result: PartitionRecord | KafkaError | None, leader: int) -> PartitionRecord | KafkaError:
    assert result is not None
    if isinstance(result, KafkaError) or result.leader == leader:
        return result
    return KafkaError(
        ErrorCode.new_leader_elected, f"the reassignment is complete, and broker {result.leader} is the leader"
    )


def _is_election_not_needed(result: PartitionRecord | KafkaError | None) -> bool:
    return isinstance(result, KafkaError) and result.code is ErrorCode.election_not_needed
