"""The controller's part that deals with replicas: ISR changes, elections, reassignments. Each request is one commit, however many partitions it
names; what is refused of it stops nothing else."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ottla_broker.metadata import election, reassignment
from ottla_broker.metadata.broker_plans import election_candidates
from ottla_broker.metadata.election import ElectionCandidates, TopicElectionRules
from ottla_broker.metadata.image import TopicImage
from ottla_broker.metadata.isr_changes import IsrChangeRequest, apply_isr_change
from ottla_broker.metadata.metadata_writer import Decision, MetadataWriter
from ottla_broker.metadata.placed import DirectoryAssigner
from ottla_broker.metadata.records import NO_LEADER, MetadataRecord, PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError

TopicPartition = tuple[str, int]
Outcome = KafkaError | None


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A wish of AlterPartitionReassignments. `replicas` None: cancel what is under way."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ReplicationControl:
    def __init__(self, turn: MetadataWriter) -> None:
        self._writer = turn
        self._image = turn.image

    async def alter_partitions(
        self, leader: int, proposals: Sequence[IsrChangeRequest]
    ) -> list[PartitionRecord | KafkaError]:
        """The states that came of it, in the order of the proposals: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NEW_LEADER_ELECTED
        (it was done, and with it a move ended in which the leader had no part), and those of `isr_changes`."""

        def plan() -> Decision[list[PartitionRecord | KafkaError]]:
            voters, rules_of = election_candidates(self._image), self._writer.topic_rules()
            records: list[MetadataRecord] = []
            answers: list[PartitionRecord | KafkaError] = []
            for proposal in proposals:
                try:
                    old = self._partition_of(proposal)
                    rules = rules_of(proposal.topic)
                    new = apply_isr_change(old, proposal, leader, self._image.brokers, voters, rules)
                except KafkaError as reason:
                    answers.append(reason)
                    continue
                records.append(new)
                if new.leader == leader:
                    answers.append(new)
                else:
                    answers.append(
                        KafkaError(ErrorCode.new_leader_elected, f"the move ended, and broker {new.leader} leads")
                    )
            return records, answers

        return await self._writer.execute(plan)

    async def elect_preferred_leaders(self, wanted: Iterable[TopicPartition] | None) -> dict[TopicPartition, Outcome]:
        """None: every partition that is not led by its first replica and can be. UNKNOWN_TOPIC_OR_PARTITION,
        PREFERRED_LEADER_NOT_AVAILABLE, ELECTION_NOT_NEEDED."""

        def one(state: PartitionRecord, voters: ElectionCandidates, rules: TopicElectionRules) -> PartitionRecord:
            new = election.elect_preferred_leader(state, voters)
            if new is None and state.leader == state.replicas[0]:
                raise KafkaError(ErrorCode.election_not_needed, f"broker {state.leader} is the leader already")
            if new is None:
                why = "is not in sync" if state.replicas[0] not in state.isr else "is not to be had"
                raise KafkaError(
                    ErrorCode.preferred_leader_not_available, f"the first replica, broker {state.replicas[0]}, {why}"
                )
            return new

        return await self._elect(wanted, one)

    async def elect_unclean_leaders(self, wanted: Iterable[TopicPartition] | None) -> dict[TopicPartition, Outcome]:
        """For partitions without a leader. UNKNOWN_TOPIC_OR_PARTITION, ELIGIBLE_LEADERS_NOT_AVAILABLE, ELECTION_NOT_NEEDED."""

        def one(state: PartitionRecord, voters: ElectionCandidates, rules: TopicElectionRules) -> PartitionRecord:
            if state.leader != NO_LEADER:
                raise KafkaError(ErrorCode.election_not_needed, f"broker {state.leader} leads")
            new = election.elect_unclean_leader(state, voters, rules)
            if new is None:
                raise KafkaError(ErrorCode.eligible_leaders_not_available, "none of its replicas lives")
            return new

        return await self._elect(wanted, one)

    async def reassign_partitions(
        self, moves: Sequence[PartitionReassignment], *, same_factor: bool = False
    ) -> list[Outcome]:
        """What came of each wish, in their order. `same_factor`: the number of replicas must not change. UNKNOWN_TOPIC_OR_PARTITION,
        and the codes of `reassignment`."""

        def plan() -> Decision[list[Outcome]]:
            voters, rules_of = election_candidates(self._image), self._writer.topic_rules()
            directories = DirectoryAssigner(self._image.brokers, self._image.replica_index)
            records: list[MetadataRecord] = []
            outcomes: list[Outcome] = []
            for move in moves:
                try:
                    topic, old = self._existing_partition(move.topic, move.partition)
                    rules = rules_of(topic.id)
                    if move.replicas is None:
                        new = reassignment.cancel_reassignment(old, voters, rules)
                    else:
                        current = len(reassignment.original_replicas(old)) if same_factor else None
                        reassignment.validate_targets(move.replicas, self._image.brokers, current)
                        places = directories.assign_directories(move.replicas)
                        new = reassignment.begin_reassignment(old, move.replicas, places, voters, rules)
                except KafkaError as reason:
                    outcomes.append(reason)
                    continue
                if new is not None:
                    records.append(new)
                outcomes.append(None)
            return records, outcomes

        return await self._writer.execute(plan)

    def ongoing_reassignments(self) -> Iterator[tuple[TopicImage, PartitionRecord]]:
        """Partitions whose reassignment is under way."""
        for topic in self._image.topics.values():
            for state in topic.partitions.values():
                if reassignment.is_reassigning(state):
                    yield topic, state

    async def clear_unneeded_eligible_replicas(self) -> None:
        """Where the ISR is large enough by this controller's settings, which may be others than its predecessor's: while somebody is eligible, a
        leader's high watermark stands still."""

        def plan() -> list[PartitionRecord]:
            rules_of = self._writer.topic_rules()
            changed = (
                election.without_eligible_replicas(state, rules_of(topic.id))
                for topic in self._image.topics.values()
                for state in topic.partitions.values()
                if state.eligible or state.last_known
            )
            return [state for state in changed if state is not None]

        await self._writer.apply_plan(plan)

    async def restore_preferred_leaders(self) -> int:
        """Gives leadership back to first replicas wherever they are in sync and live; how many partitions that changed."""
        outcomes = await self.elect_preferred_leaders(None)
        return sum(outcome is None for outcome in outcomes.values())

    async def _elect(
        self,
        wanted: Iterable[TopicPartition] | None,
        one: Callable[[PartitionRecord, ElectionCandidates, TopicElectionRules], PartitionRecord],
    ) -> dict[TopicPartition, Outcome]:
        def plan() -> Decision[dict[TopicPartition, Outcome]]:
            voters, rules_of = election_candidates(self._image), self._writer.topic_rules()
            records: list[MetadataRecord] = []
            outcomes: dict[TopicPartition, Outcome] = {}
            for name, partition in self._all_partitions() if wanted is None else wanted:
                try:
                    topic, state = self._existing_partition(name, partition)
                    records.append(one(state, voters, rules_of(topic.id)))
                    outcomes[name, partition] = None
                except KafkaError as reason:
                    if wanted is not None or reason.code is not ErrorCode.election_not_needed:
                        outcomes[name, partition] = reason
            return records, outcomes

        return await self._writer.execute(plan)

    def _all_partitions(self) -> list[TopicPartition]:
        return [(topic.name, partition) for topic in self._image.topics.values() for partition in topic.partitions]

    def _existing_partition(self, name: str, partition: int) -> tuple[TopicImage, PartitionRecord]:
        topic = self._image.topics.get(name)
        state = None if topic is None else topic.partitions.get(partition)
        if topic is None or state is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no {name}-{partition}")
        return topic, state

    def _partition_of(self, proposal: IsrChangeRequest) -> PartitionRecord:
        topic = self._image.topic_by_id(proposal.topic)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with id {proposal.topic}")
        return self._existing_partition(topic.name, proposal.partition)[1]
