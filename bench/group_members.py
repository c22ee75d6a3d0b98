"""Light members of consumer groups: many in one process, each with its own connection, without
records. They speak either protocol, and both sides of a benchmark are measured with the same ones.
"""

import asyncio
import base64
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Protocol

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from ottla_broker.coordination.consumer_protocol import encode_assignment, read_assignment
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.codec import read_response, write_request
from ottla_broker.wire.errors import ErrorCode

HOST: Final = "127.0.0.1"
SESSION_TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=45))
REBALANCE_TIMEOUT: Final = i32Timedelta.parse(timedelta(minutes=5))
JOINING_EPOCH, LEAVING_EPOCH = 0, -1
NO_GENERATION: Final = -1
RETRY_PAUSE_S: Final = 0.1
INT32: Final = struct.Struct(">i")
CORRELATION_ID_AT: Final = 8
ERROR_CODE: Final = slice(9, 11)  # after the correlation id, tagged fields and the throttle time
NO_ERROR: Final = b"\0\0"
EPOCH_AT, ASSIGNMENT_AT, NULL = -10, -2, 0xFF  # from the end of a response without an assignment
REJOIN: Final = frozenset({ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation})


def new_member_id() -> str:
    """A random id as clients of the newer protocols choose theirs."""
    return base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()


class Member(Protocol):
    """`generation`: or member epoch. `owned`: the number of its partitions."""

    generation: int
    owned: int

    async def join(self) -> None: ...

    async def heartbeat(self) -> None:
        """Sends one heartbeat, and does what its response asks for."""
        ...

    async def leave(self) -> None: ...

    def close(self) -> None: ...


@dataclass(eq=False)
class ConsumerMember:
    """`owned`: the number of its partitions, all of one topic."""

    channel: Channel
    group: str
    topic: str
    id: str = field(default_factory=new_member_id)
    generation: int = NO_GENERATION
    owned: int = 0
    _unreported: tuple[TopicPartitions, ...] | None = None
    _unchanged: "RepeatedRequest | None" = None

    async def join(self) -> None:
        while self.generation == NO_GENERATION:
            await self._send(
                JOINING_EPOCH,
                rebalance_timeout=REBALANCE_TIMEOUT,
                subscribed_topic_names=(TopicName(self.topic),),
                topic_partitions=(),
            )

    async def heartbeat(self) -> None:
        if self._unreported is None:
            await self._send_unchanged()
        else:
            reported, self._unreported = self._unreported, None
            await self._send(self.generation, topic_partitions=reported)

    async def _send_unchanged(self) -> None:
        """Members of a settled group send nothing else: encoding and decoding each would measure
        this process more than the broker."""
        if self._unchanged is None:
            request = self._request(0, topic_partitions=None)
            self._unchanged = RepeatedRequest(self.channel, request, "member_epoch")
        response = await self._unchanged.send(self.generation)
        epoch = unchanged_epoch_of(response)
        if epoch is None:
            self._handle(self._unchanged.decode(response), self.generation)
        else:
            self.generation = epoch

    async def leave(self) -> None:
        await self._send(LEAVING_EPOCH, topic_partitions=None)
        self.generation, self.owned = NO_GENERATION, 0

    def _request(self, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self.group), member_id=self.id, member_epoch=i32(epoch), **fields
        )

    async def _send(self, epoch: int, **fields: Any) -> None:
        response = await self.channel.send(self._request(epoch, **fields))
        if response.error_code is ErrorCode.not_coordinator:
            await asyncio.sleep(RETRY_PAUSE_S)  # an overloaded broker whose session has ended for a moment
            return
        self._handle(response, epoch)

    def _handle(self, response: Any, epoch: int) -> None:
        check_response(response.error_code, f"ConsumerGroupHeartbeat of epoch {epoch}")
        self.generation = int(response.member_epoch)
        if response.assignment is not None:
            given = response.assignment.topic_partitions
            self.owned = sum(len(one.partitions) for one in given)
            self._unreported = tuple(TopicPartitions(topic_id=one.topic_id, partitions=one.partitions) for one in given)

    def close(self) -> None:
        self.channel.close()


def unchanged_epoch_of(response: bytearray) -> int | None:
    """The epoch in a response to ConsumerGroupHeartbeat. None for an error or an assignment."""
    if response[ERROR_CODE] != NO_ERROR or response[ASSIGNMENT_AT] != NULL:
        return None
    return int(INT32.unpack_from(response, len(response) + EPOCH_AT)[0])


class RepeatedRequest:
    """A request that one member sends again and again, encoded once. `epoch`: the only field that
    changes, if any does."""

    def __init__(self, channel: Channel, request: Any, epoch: str | None = None) -> None:
        self._channel = channel
        self._key, self._version = int(request.__api_key__), channel.latest_usable_version(request)
        self._frame = self._encode(request)
        self._epoch_at: int | None = None
        if epoch is not None:
            frames = [self._encode(replace(request, **{epoch: i32(value)})) for value in (0, -1)]
            self._epoch_at = next(at for at, (one, other) in enumerate(zip(*frames, strict=True)) if one != other)

    def _encode(self, request: Any) -> bytearray:
        return write_request(self._key, self._version, 0, "bench", request)

    async def send(self, epoch: int = 0) -> bytearray:
        """The response without its size."""
        correlation_id = self._channel.next_correlation_id()
        frame = bytearray(self._frame)
        INT32.pack_into(frame, CORRELATION_ID_AT, correlation_id)
        if self._epoch_at is not None:
            INT32.pack_into(frame, self._epoch_at, epoch)
        return await self._channel.send_frame(correlation_id, [frame])

    def decode(self, response: bytearray) -> Any:
        return read_response(bytes(response), self._key, self._version)


@dataclass(eq=False)
class ClassicMember:
    """`partitions`: number of the topic's partitions, which the group's leader spreads over the
    members."""

    channel: Channel
    group: str
    topic: str
    partitions: int
    id: str = ""
    generation: int = NO_GENERATION
    owned: int = 0
    _requests: "ClassicRequests | None" = None

    async def join(self) -> None:
        """Returns when the member is in a generation and has its assignment."""
        while True:
            joined = await self._send_join()
            self.id = joined.member_id or self.id
            if joined.error_code in (ErrorCode.member_id_required, *REJOIN):
                continue
            check_response(joined.error_code, "JoinGroup")
            if await self._sync(int(joined.generation_id), [one.member_id for one in joined.members]):
                return

    async def _send_join(self) -> Any:
        if not self.id:
            return await self.channel.send(join_request(self))
        if self._requests is None:
            self._requests = ClassicRequests.of(self)
        return self._requests.join.decode(await self._requests.join.send())

    async def _sync(self, generation: int, members: Sequence[str]) -> bool:
        """False when the group rebalances again. `members`: empty, but for the leader."""
        assert self._requests is not None, "a member that has joined has an id"
        if members:
            assignments = tuple(
                SyncGroupRequestAssignment(member_id=member, assignment=self._assign(at, len(members)))
                for at, member in enumerate(members)
            )
            synced = await self.channel.send(
                replace(sync_request(self), generation_id=i32(generation), assignments=assignments)
            )
        else:
            synced = self._requests.sync.decode(await self._requests.sync.send(generation))
        if synced.error_code in REJOIN:
            return False
        check_response(synced.error_code, "SyncGroup")
        self.generation = generation
        self.owned = sum(len(one.partitions) for one in read_assignment(synced.assignment).assigned)
        return True

    def _assign(self, at: int, members: int) -> bytes:
        """Every `members`-th partition, from `at` on."""
        return encode_assignment({self.topic: frozenset(range(at, self.partitions, members))}, 1)

    async def heartbeat(self) -> None:
        assert self._requests is not None, "a member that has joined has an id"
        response = await self._requests.heartbeat.send(self.generation)
        if response[ERROR_CODE] == NO_ERROR:
            return
        code = self._requests.heartbeat.decode(response).error_code
        if code in REJOIN:
            await self.join()
        else:
            check_response(code, "Heartbeat")

    async def leave(self) -> None:
        response = await self.channel.send(
            LeaveGroupRequest(group_id=GroupId(self.group), members=(MemberIdentity(member_id=self.id),))
        )
        check_response(response.error_code, "LeaveGroup")
        self.id, self.generation, self.owned, self._requests = "", NO_GENERATION, 0, None

    def close(self) -> None:
        self.channel.close()


def join_request(member: ClassicMember) -> JoinGroupRequest:
    name = member.topic.encode()
    # Version 1 of ConsumerProtocolSubscription: one topic, no user data, nothing owned.
    subscription = struct.pack(f">hih{len(name)}sii", 1, 1, len(name), name, -1, 0)
    return JoinGroupRequest(
        group_id=GroupId(member.group),
        session_timeout=SESSION_TIMEOUT,
        rebalance_timeout=REBALANCE_TIMEOUT,
        member_id=member.id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=subscription),),
    )


def sync_request(member: ClassicMember) -> SyncGroupRequest:
    """Of a member that is not the leader, in generation 0."""
    return SyncGroupRequest(
        group_id=GroupId(member.group),
        generation_id=i32(0),
        member_id=member.id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(),
    )


@dataclass(frozen=True)
class ClassicRequests:
    """The requests of a member that has its id."""

    join: RepeatedRequest
    sync: RepeatedRequest
    heartbeat: RepeatedRequest

    @classmethod
    def of(cls, member: ClassicMember) -> "ClassicRequests":
        heartbeat = HeartbeatRequest(group_id=GroupId(member.group), generation_id=i32(0), member_id=member.id)
        return cls(
            RepeatedRequest(member.channel, join_request(member)),
            RepeatedRequest(member.channel, sync_request(member), "generation_id"),
            RepeatedRequest(member.channel, heartbeat, "generation_id"),
        )


def check_response(code: ErrorCode, what: str) -> None:
    """Raises RuntimeError: a member of a healthy group gets no other errors."""
    if code is not ErrorCode.none:
        raise RuntimeError(f"{what}: {code.name}")


async def open_members(protocol: str, port: int, group: str, topic: str, partitions: int, count: int) -> list[Member]:
    """Members that are connected and not in the group yet. `protocol`: classic or consumer."""
    channels = [await open_channel(HOST, port, "bench") for _ in range(count)]
    if protocol == "classic":
        return [ClassicMember(channel, group, topic, partitions) for channel in channels]
    return [ConsumerMember(channel, group, topic) for channel in channels]
