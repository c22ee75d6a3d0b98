"""A member of a share group that sends its requests itself, so that a test sees each response."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import decode_batch
from tests.brokers import BrokerProcess
from tests.clients.api_session import exchange
from tests.waiting import eventually_async

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP = 32  # type of config resource
GROUP_SOURCE = 8  # source of a config that is set on its group


Acknowledged = tuple[int, int, int, int]
"""Partition, first and last offset, and ACCEPT, RELEASE, REJECT or RENEW."""


@dataclass(frozen=True)
class DeliveredRecord:
    partition: int
    offset: int
    value: bytes
    delivery_count: int


@dataclass
class ShareMember:
    """Reads one topic as a member of `group`. `channels`, `addresses` and `session_epochs` (of
    the next requests in share sessions) are by node id of the broker; −1 is the bootstrap address.
    `assigned` has partitions by topic id, `leaders` node ids by partition.
    """

    group: str
    topic: str
    bootstrap: str
    id: str = field(default_factory=lambda: base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode())
    epoch: int = 0
    assigned: dict[UUID, list[int]] = field(default_factory=dict)
    session_epochs: dict[int, int] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    topic_id: UUID | None = None

    def __post_init__(self) -> None:
        host, _, port = self.bootstrap.partition(":")
        self.addresses.setdefault(-1, (host, int(port)))

    async def send(self, node: int, api: str, version: int, **fields: Any) -> Any:
        """Sends a request; returns the response. Raises OSError if the broker has stopped. `node`
        −1 is the bootstrap address.
        """
        channel = self.channels.get(node)
        if channel is None or not channel.is_open:
            channel = self.channels[node] = await open_channel(*self.addresses[node], "share-member")
        return await exchange(channel, api, version, fields)

    async def find_brokers(self) -> None:
        """Updates `addresses`, `leaders` and `topic_id` from the first broker that responds. Raises
        ConnectionError if none does.
        """
        for node in list(self.addresses):
            try:
                found = await self.send(node, "metadata", 12, topics=[{"name": self.topic}])
                break
            except OSError:
                continue
        else:
            raise ConnectionError("no broker responds")
        self.addresses |= {int(one.node_id): (one.host, int(one.port)) for one in found.brokers}
        [topic] = found.topics
        self.topic_id = topic.topic_id
        self.leaders = {int(one.partition_index): int(one.leader_id) for one in topic.partitions}

    async def find_coordinator(self) -> int:
        found = await self.send(-1, "find_coordinator", 4, key_type=0, coordinator_keys=[self.group])
        return int(found.coordinators[0].node_id)

    async def join(self) -> None:
        """Sends heartbeats until the member is assigned a partition."""

        async def is_assigned() -> bool:
            await self.find_brokers()
            await self.heartbeat()
            return bool(self.assigned)

        await eventually_async(is_assigned)

    async def heartbeat(self, epoch: int | None = None) -> ErrorCode:
        """Sends a heartbeat with `epoch`, by default the member's. Stores epoch and assignment of
        the response.
        """
        coordinator = await self.find_coordinator()
        if coordinator < 0:
            return ErrorCode.coordinator_not_available
        fields: dict[str, Any] = {"group_id": self.group, "member_id": self.id}
        sent_epoch = self.epoch if epoch is None else epoch
        names = [self.topic] if sent_epoch == 0 else None
        found = await self.send(
            coordinator,
            "share_group_heartbeat",
            1,
            **fields,
            member_epoch=sent_epoch,
            subscribed_topic_names=names,
        )
        if found.error_code is ErrorCode.none:
            self.epoch = int(found.member_epoch)
            if found.assignment is not None:
                parts = found.assignment.topic_partitions
                self.assigned = {one.topic_id: [int(at) for at in one.partitions] for one in parts}
        result: ErrorCode = found.error_code
        return result

    async def fetch(
        self,
        node: int,
        *,
        max_records: int = 500,
        max_wait: int = 500,
        acknowledged: Sequence[Acknowledged] = (),
    ) -> tuple[list[DeliveredRecord], dict[int, ErrorCode]]:
        """Sends a ShareFetch with these acknowledgements. Returns the records acquired from the
        assigned partitions that the broker leads, and the errors of fetching and acknowledging by
        partition; an error of the request is at −1.
        """
        epoch = self.session_epochs.get(node, 0)
        mine = [at for parts in self.assigned.values() for at in parts if self.leaders.get(at) == node]
        partitions = build_partitions(mine, acknowledged)
        found = await self.send(
            node,
            "share_fetch",
            2,
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=epoch,
            max_wait=max_wait,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=max_records,
            share_acquire_mode=1,
            topics=[{"topic_id": self.topic_id, "partitions": partitions}] if partitions else [],
        )
        if found.error_code is not ErrorCode.none:
            self.session_epochs.pop(node, None)
            return [], {-1: found.error_code}
        self.session_epochs[node] = epoch + 1
        delivered, errors = [], {}
        for one in (one for topic in found.responses for one in topic.partitions):
            at = int(one.partition_index)
            for code in (one.error_code, ErrorCode(one.acknowledge_error_code)):
                if code is not ErrorCode.none:
                    errors[at] = code
            counts = {
                offset: int(span.delivery_count)
                for span in one.acquired_records
                for offset in range(span.first_offset, span.last_offset + 1)
            }
            data = one.records or b""
            for position, header in iter_batches(data):
                delivered += [
                    DeliveredRecord(at, record.offset, record.value or b"", counts[record.offset])
                    for record in decode_batch(data, header, position)
                    if record.offset in counts
                ]
        return delivered, errors

    async def acknowledge(
        self,
        node: int,
        acknowledged: Sequence[Acknowledged],
        *,
        closes: bool = False,
        renews: bool = False,
    ) -> dict[int, ErrorCode]:
        """Sends a ShareAcknowledge. Returns the error code of each partition, or of the request at
        −1.
        """
        epoch = -1 if closes else self.session_epochs[node]
        partitions = build_partitions([], acknowledged)
        found = await self.send(
            node,
            "share_acknowledge",
            2,
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[{"topic_id": self.topic_id, "partitions": partitions}] if partitions else [],
        )
        if found.error_code is not ErrorCode.none:
            self.session_epochs.pop(node, None)
            return {-1: found.error_code}
        self.session_epochs[node] = epoch + 1
        return {int(one.partition_index): one.error_code for topic in found.responses for one in topic.partitions}

    async def set_config(self, name: str, value: str) -> None:
        """Sets a config of the group."""
        change = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": GROUP, "resource_name": self.group, "configs": [change]}
        found = await self.send(-1, "incremental_alter_configs", 1, resources=[resource], validate_only=False)
        assert found.responses[0].error_code is ErrorCode.none

    async def read_configs(self) -> dict[str, str]:
        """Configs that are set on the group itself."""
        resource = {"resource_type": GROUP, "resource_name": self.group, "configuration_keys": None}
        [result] = (await self.send(-1, "describe_configs", 4, resources=[resource])).results
        assert result.error_code is ErrorCode.none
        return {one.name: one.value for one in result.configs if one.config_source == GROUP_SOURCE}

    def close(self) -> None:
        for channel in self.channels.values():
            channel.close()


def build_partitions(mine: Sequence[int], acknowledged: Sequence[Acknowledged]) -> list[dict[str, Any]]:
    batches: dict[int, list[dict[str, Any]]] = {at: [] for at in mine}
    for at, first, last, kind in acknowledged:
        batches.setdefault(at, []).append({"first_offset": first, "last_offset": last, "acknowledge_types": [kind]})
    return [{"partition_index": at, "acknowledgement_batches": found} for at, found in batches.items()]


def begin_at_earliest(broker: BrokerProcess, group: str) -> None:
    """Has the share group begin at the start of its topics."""

    async def set_config(member: ShareMember) -> None:
        await member.set_config("share.auto.offset.reset", "earliest")

    run_in_session(ShareMember(group, "none", broker.bootstrap), set_config)


def read_group_configs(bootstrap: str, group: str) -> dict[str, str]:
    """Configs that are set on the group itself."""
    found: dict[str, str] = {}

    async def read_configs(member: ShareMember) -> None:
        found.update(await member.read_configs())

    run_in_session(ShareMember(group, "none", bootstrap), read_configs)
    return found


def run_in_session(member: ShareMember, test: Callable[[ShareMember], Awaitable[None]]) -> None:
    """Runs a coroutine function with the member, and closes the member's connections."""

    async def main() -> None:
        try:
            await test(member)
        finally:
            member.close()

    asyncio.run(main())
