"""The rate at which the members of a share group get and acknowledge records.

Every member has its own connection. It fetches, and acknowledges with its next ShareFetch what the
last one delivered, as Kafka's share consumer does.
"""

import asyncio
import base64
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.share_fetch.v2.request import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from bench.rebalances import wait_for_coordinator
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode
from tests.brokers import BrokerProcess

HOST: Final = "127.0.0.1"
JOINING_EPOCH, LEAVING_EPOCH = 0, -1
MAX_WAIT: Final = i32Timedelta.parse(timedelta(milliseconds=500))
MAX_BYTES: Final = i32(50 << 20)
RECORD_LIMIT: Final = i8(1)  # a share_acquire_mode
ACCEPT: Final = i8(1)
GROUP_RESOURCE: Final = 32
CLOSING_EPOCH: Final = -1
JOINED_WITHIN_S: Final = 30.0
DONE_WITHIN_S: Final = 120.0
PAUSE_S: Final = 0.05

Spans = Sequence[tuple[int, int]]
"""First and last offset of each span."""


@dataclass(frozen=True)
class ShareResult:
    acknowledged_per_s: float
    cpu_us: float
    """Processor time of the broker for one acknowledged record."""


def new_member_id() -> str:
    """A random id, as clients choose their own in the consumer and share protocols."""
    return base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()


def check_response(code: ErrorCode, what: str) -> None:
    """Raises RuntimeError: a member of a healthy group gets no errors."""
    if code is not ErrorCode.none:
        raise RuntimeError(f"{what}: {code.name}")


@dataclass(eq=False)
class ShareMember:
    """A member of a share group. `max_records`: limit of one ShareFetch. `to_acknowledge`: the
    records of the last response, by partition.
    """

    channel: Channel
    group: str
    topic: str
    topic_id: UUID
    max_records: int
    id: str = field(default_factory=new_member_id)
    epoch: int = 0
    assigned: tuple[int, ...] = ()
    session_epoch: int = 0
    to_acknowledge: Mapping[int, Spans] = field(default_factory=dict)

    async def join(self) -> None:
        """Returns when the member is assigned partitions."""
        while not self.assigned:
            await self._heartbeat(self.epoch)
            if not self.assigned:
                await asyncio.sleep(PAUSE_S)

    async def _heartbeat(self, epoch: int) -> None:
        names = (TopicName(self.topic),) if epoch == JOINING_EPOCH else None
        response = await self.channel.send(
            ShareGroupHeartbeatRequest(
                group_id=GroupId(self.group), member_id=self.id, member_epoch=i32(epoch), subscribed_topic_names=names
            )
        )
        check_response(response.error_code, "ShareGroupHeartbeat")
        self.epoch = int(response.member_epoch)
        if response.assignment is not None:
            self.assigned = tuple(int(at) for one in response.assignment.topic_partitions for at in one.partitions)

    async def fetch(self) -> int:
        """Acknowledges the records of the last call, and gets more. Returns the number of
        acknowledged records.
        """
        acknowledged, self.to_acknowledge = self.to_acknowledge, {}
        response = await self.channel.send(self._build_fetch(acknowledged))
        check_response(response.error_code, "ShareFetch")
        self.session_epoch += 1
        acquired: dict[int, Spans] = {}
        for one in (one for topic in response.responses for one in topic.partitions):
            check_response(one.error_code, f"partition {one.partition_index}")
            check_response(ErrorCode(one.acknowledge_error_code), f"acknowledgement, partition {one.partition_index}")
            if one.acquired_records:
                acquired[int(one.partition_index)] = [
                    (int(span.first_offset), int(span.last_offset)) for span in one.acquired_records
                ]
        self.to_acknowledge = acquired
        return sum(last - first + 1 for spans in acknowledged.values() for first, last in spans)

    def _build_fetch(self, acknowledged: Mapping[int, Spans]) -> ShareFetchRequest:
        named = self.assigned if self.session_epoch == 0 else tuple(acknowledged)
        partitions = tuple(
            FetchPartition(
                partition_index=i32(at),
                acknowledgement_batches=tuple(
                    AcknowledgementBatch(first_offset=i64(first), last_offset=i64(last), acknowledge_types=(ACCEPT,))
                    for first, last in acknowledged.get(at, ())
                ),
            )
            for at in named
        )
        return ShareFetchRequest(
            group_id=GroupId(self.group),
            member_id=self.id,
            share_session_epoch=i32(self.session_epoch),
            max_wait=MAX_WAIT,
            min_bytes=i32(1),
            max_bytes=MAX_BYTES,
            max_records=i32(self.max_records),
            batch_size=i32(self.max_records),
            share_acquire_mode=RECORD_LIMIT,
            topics=(FetchTopic(topic_id=self.topic_id, partitions=partitions),) if partitions else (),
            forgotten_topics_data=(),
        )

    async def leave(self) -> None:
        """Closes the session, which releases what was not acknowledged, and leaves the group."""
        self.session_epoch, self.to_acknowledge = CLOSING_EPOCH, {}
        await self.fetch()
        await self._heartbeat(LEAVING_EPOCH)
        self.channel.close()


async def measure_acknowledgements(
    broker: BrokerProcess, topic: str, *, members: int, max_records: int, records: int
) -> ShareResult:
    """The members of a new share group acknowledge at least `records` records of the topic,
    beginning with the oldest.
    """
    group = f"{topic}-{max_records}-{records}"
    await wait_for_coordinator(broker, group)
    async with Client.connect(broker.bootstrap) as client:
        await begin_at_earliest(client, group)
        topic_id = await find_topic_id(client, topic)
    channels = [await open_channel(HOST, broker.port, "bench") for _ in range(members)]
    group_members = [ShareMember(channel, group, topic, topic_id, max_records) for channel in channels]
    async with asyncio.timeout(JOINED_WITHIN_S):
        for member in group_members:
            await member.join()
    count = 0

    async def work(member: ShareMember) -> None:
        nonlocal count
        while count < records:
            acknowledged = await member.fetch()
            count += acknowledged

    cpu_s, began = broker.cpu_s(), time.perf_counter()
    async with asyncio.timeout(DONE_WITHIN_S), asyncio.TaskGroup() as tasks:
        for member in group_members:
            tasks.create_task(work(member))
    took_s, cpu_s = time.perf_counter() - began, broker.cpu_s() - cpu_s
    for member in group_members:
        await member.leave()
    return ShareResult(count / took_s, cpu_s * 1e6 / count)


async def begin_at_earliest(client: Client, group: str) -> None:
    """Has the group begin with the oldest record."""
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=i8(0), value="earliest")
    resource = AlterConfigsResource(resource_type=i8(GROUP_RESOURCE), resource_name=group, configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (result,) = (await client.send(request)).responses
    raise_for_error(result.error_code, f"config of group {group}: {result.error_message}")


async def find_topic_id(client: Client, topic: str) -> UUID:
    named: Any = MetadataRequestTopic(topic_id=None, name=TopicName(topic))
    request = MetadataRequest(
        topics=(named,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    (found,) = (await client.send(request)).topics
    raise_for_error(found.error_code, f"topic {topic}")
    topic_id: UUID = found.topic_id
    return topic_id
