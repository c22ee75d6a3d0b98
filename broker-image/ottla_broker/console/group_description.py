"""Groups of every protocol in one form, from the responses that describe them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ottla_broker.console.write_rate import estimate_lag_s
from ottla_broker.coordination.consumer_protocol import read_assignment
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.wire.message_reader import MalformedMessage

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of classic groups whose members consume topics."""

AssignedPartitions = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions by topic; in streams groups, partitions by the tasks' kind and subtopology."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list. `type`: CLASSIC, CONSUMER, SHARE or STREAMS. `protocol`: its protocol
    type, such as "consumer" or "connect". Both words are those of `kafka-groups.sh`. `coordinator`:
    a broker's id.
    """

    name: str
    type: str
    state: str
    protocol: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """`client`: the client id. `instance`: the instance id of a static member, else empty. `epoch`:
    the member epoch; −1 with the classic protocol.
    """

    id: str
    client: str
    host: str
    instance: str
    epoch: int
    assignment: AssignedPartitions


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`assignor`: the name of the assignor, as the group reports it; a fixed text for streams
    groups. `epoch`: the group epoch; −1 with the classic protocol.
    """

    state: str
    assignor: str
    epoch: int
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """`committed`: the next offset that the group reads. `member`: client id of the member to which
    the partition is assigned, or empty. `written`: number of offsets that were written in the last
    RATE_WINDOW_S. −1: unknown.
    """

    topic: str
    partition: int
    committed: int
    end: int
    member: str = ""
    written: int = -1

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed) if min(self.committed, self.end) >= 0 else -1

    @property
    def lag_s(self) -> float:
        """An estimate; −1: unknown."""
        return estimate_lag_s(self.lag, self.written)


def make_member(member: Any, instance: str | None, epoch: int, assignment: AssignedPartitions) -> MemberDescription:
    """A member as the responses of all protocols describe it."""
    host = member.client_host.removeprefix("/")
    return MemberDescription(member.member_id, member.client_id, host, instance or "", epoch, assignment)


def describe_classic(group: Any) -> GroupDescription:
    consumes = group.protocol_type == CONSUMER_PROTOCOL
    members = tuple(
        make_member(one, one.group_instance_id, -1, read_classic_assignment(one.member_assignment) if consumes else ())
        for one in group.members
    )
    return GroupDescription(group.group_state, group.protocol_data, -1, members)


def read_classic_assignment(data: bytes) -> AssignedPartitions:
    """Empty if the bytes are not an assignment: members may send any."""
    try:
        return tuple((one.topic, tuple(one.partitions)) for one in read_assignment(data).assigned)
    except MalformedMessage:
        return ()


def describe_modern(group: Any) -> GroupDescription:
    """A consumer or share group: Kafka's ModernGroup."""
    members = tuple(
        make_member(
            one,
            getattr(one, "instance_id", None),
            int(one.member_epoch),
            tuple((str(it.topic_name), tuple(map(int, it.partitions))) for it in one.assignment.topic_partitions),
        )
        for one in group.members
    )
    return GroupDescription(group.group_state, group.assignor_name, int(group.group_epoch), members)


def describe_streams(group: Any) -> GroupDescription:
    members = tuple(
        make_member(
            one,
            one.instance_id,
            int(one.member_epoch),
            tuple(
                (f"{kind} task {task.subtopology_id}", tuple(map(int, task.partitions)))
                for kind, tasks in (
                    ("active", one.assignment.active_tasks),
                    ("standby", one.assignment.standby_tasks),
                    ("warm-up", one.assignment.warmup_tasks),
                )
                for task in tasks
            ),
        )
        for one in group.members
    )
    return GroupDescription(group.group_state, "tasks of the topology", int(group.group_epoch), members)


def find_owners(members: Iterable[MemberDescription]) -> dict[TopicPartition, str]:
    """The client id of the member to which each partition is assigned."""
    return {
        (topic, partition): member.client
        for member in members
        for topic, partitions in member.assignment
        for partition in partitions
    }


def total_lag(partitions: Iterable[PartitionLag]) -> int:
    """The sum of the lags that are known; −1 if none is."""
    known = [one.lag for one in partitions if one.lag >= 0]
    return sum(known) if known else -1


def largest_lag_s(partitions: Iterable[PartitionLag]) -> float:
    """−1 if the lag of no partition is known."""
    return max((one.lag_s for one in partitions), default=-1.0)


def lag_by_topic(partitions: Iterable[PartitionLag]) -> dict[str, int]:
    """The lag of each topic: the sum over its partitions whose lag is known. Topics without such a
    partition are left out.
    """
    lags: dict[str, int] = {}
    for one in partitions:
        if one.lag >= 0:
            lags[one.topic] = lags.get(one.topic, 0) + one.lag
    return lags
