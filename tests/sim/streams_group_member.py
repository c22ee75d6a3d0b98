"""A member of a streams group (KIP-1071): one thread of an application with one stateful
subtopology. It checks that no task is active at two members, and that one process, which keeps the
state of a task in one folder, has at most one copy of it.

Active and standby tasks are given up as partitions of a consumer group are: after a while, because
the thread closes their state first. Active ones are also read and committed in the same way.
"""

import asyncio
from random import Random
from typing import Any

from kio.schema.streams_group_heartbeat.v0.request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i16, i32

from ottla_broker.wire.client import Client
from ottla_broker.wire.partition_requests import to_timedelta_field
from tests.sim.client import Workload
from tests.sim.consumer_group_member import (
    JOIN,
    LEAVE,
    REBALANCE_S,
    REVOCATION_S,
    ConsumerGroupMember,
)
from tests.sim.history import TopicPartition
from tests.sim.processes import SimulatedProcess

SUBTOPOLOGY = "0"
THREADS = 2  # of a process: two members share its folder


class StreamsGroupMember(ConsumerGroupMember):
    """`number`: the number of the member in its group."""

    def __init__(
        self,
        workload: Workload,
        process: SimulatedProcess,
        random: Random,
        group: str,
        topic: str,
        rack: str,
        number: int,
    ) -> None:
        super().__init__(workload, process, random, group, topic, rack)
        self._process_id = f"process-{number // THREADS}"
        self._standby: set[TopicPartition] = set()
        self._assigned_standby: set[TopicPartition] = set()

    @property
    def _process_key(self) -> str:
        """The key in `History.owners`, in place of a group, of the copies of tasks in this process.
        Owners of active tasks are recorded under the group itself.
        """
        return f"{self._group} in {self._process_id}"

    def _read_assignment(self, response: Any) -> set[TopicPartition] | None:
        if response.active_tasks is None:
            return None
        self._assigned_standby = self._tasks(response.standby_tasks)
        return self._tasks(response.active_tasks)

    async def _revoke(self, surplus: set[TopicPartition]) -> None:
        closed = self._standby - self._assigned_standby
        if surplus or closed:
            await asyncio.sleep(self.random.uniform(0, REVOCATION_S))
        self._give_up_copies(closed)
        self._count("standby tasks assigned", len(self._assigned_standby - self._standby))
        self._standby = self._assigned_standby
        self._give_up(surplus)

    def _tasks(self, found: tuple[Any, ...]) -> set[TopicPartition]:
        return {(self._topic, int(partition)) for tasks in found for partition in tasks.partitions}

    def _record_owners(self, owned: set[TopicPartition], until_s: float) -> None:
        self._count("active tasks assigned", len(owned - self._owned.keys()))
        super()._record_owners(owned, until_s)
        for task in owned | self._standby:
            self.workload.history.record_owner(self._process_key, task, self._id, self.loop.time(), until_s)

    def _count(self, what: str, number: int) -> None:
        self.workload.counts[what] = self.workload.counts.get(what, 0) + number

    def _give_up(self, partitions: Any) -> None:
        self._give_up_copies(given_up := list(partitions))
        super()._give_up(given_up)

    def _give_up_copies(self, tasks: Any) -> None:
        for task in tasks:
            self.workload.history.remove_owner(self._process_key, task, self._id)

    def _give_up_all(self, member: str) -> None:
        self._give_up_copies(self._standby)
        self._standby = set()
        super()._give_up_all(member)

    async def _send_heartbeat(self, client: Client) -> Any:
        is_joining = self._epoch == JOIN
        if self._epoch in (JOIN, LEAVE):
            self._give_up_copies(self._standby)
            self._standby = set()
        is_full = self._is_full or is_joining
        request = StreamsGroupHeartbeatRequest(
            group_id=GroupId(self._group),
            member_id=self._id,
            member_epoch=i32(self._epoch),
            endpoint_information_epoch=i32(0),
            rebalance_timeout=to_timedelta_field(REBALANCE_S if is_full else -0.001),
            topology=self._topology() if is_joining else None,
            active_tasks=_task_ids(self._owned) if is_full else None,
            standby_tasks=_task_ids(self._standby) if is_full else None,
            warmup_tasks=() if is_full else None,
            process_id=self._process_id if is_full else None,
            client_tags=() if is_full else None,
            task_offsets=None,
            task_end_offsets=None,
        )
        return await self._send_to_group_coordinator(client, request)

    def _topology(self) -> Topology:
        changelog = TopicInfo(
            name=TopicName(f"{self._group}-counts-changelog"),
            partitions=i32(0),
            replication_factor=i16(0),
            topic_configs=(),
        )
        subtopology = Subtopology(
            subtopology_id=SUBTOPOLOGY,
            source_topics=(TopicName(self._topic),),
            source_topic_regex=(),
            state_changelog_topics=(changelog,),
            repartition_sink_topics=(),
            repartition_source_topics=(),
            copartition_groups=(),
        )
        return Topology(epoch=i32(0), subtopologies=(subtopology,))


def _task_ids(tasks: Any) -> tuple[TaskIds, ...]:
    partitions = tuple(i32(partition) for _, partition in sorted(tasks))
    return (TaskIds(subtopology_id=SUBTOPOLOGY, partitions=partitions),) if partitions else ()
