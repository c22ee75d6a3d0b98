"""One of the two brokers that a walk goes through: its connections, and the steps put to it."""

import asyncio
from typing import Any, Final

from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.codec import read_response, request_class
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_reader import MalformedMessage
from tests.clients.asking import KEYS, build
from tests.clients.walks.memory import Memory
from tests.clients.walks.steps import Step

CLIENT: Final = "walk"
OTHER: Final = "other"  # a topic and a group that no walk knows
SETTLES_WITHIN_S: Final = 10.0
CLOSED: Final = "the connection is closed"


class Side:
    """`pause_s`: how long what the controller has changed may take to reach all of the broker after it answered."""

    def __init__(self, bootstrap: str, pause_s: float) -> None:
        host, _, port = bootstrap.partition(":")
        self._address = (host, int(port))
        self._pause_s = pause_s
        self._main: Channel | None = None
        self._spare: list[Channel] = []
        self._held: list[Channel] = []  # of requests that wait

    async def versions(self) -> dict[int, tuple[int, int]]:
        return (await self._channel()).versions

    async def ask(self, step: Step, sent: dict[str, Any]) -> Any:
        """The answer as it came, or CLOSED. What may wait for others goes on a connection of its own."""
        if step.api in ("describe_groups", "list_groups"):
            await self._commit()
        channel = await self._free() if step.may_wait else await self._channel()
        if step.may_wait:
            self._held.append(channel)
        key = KEYS[step.api]
        try:
            frame = await channel.send_in_version(key, step.version, build(request_class(key, step.version), sent))
        except ConnectionError:
            return CLOSED
        if step.may_wait:
            self._held.remove(channel)
            self._spare.append(channel)
        try:
            return read_response(bytes(frame), key, step.version)
        except MalformedMessage as reason:
            return f"not to be read: {reason} in {bytes(frame)!r}"

    async def settle(self, step: Step, memory: Memory) -> None:
        """Waits until what a step has changed is the same wherever one asks."""
        if step.api in ("create_topics", "create_partitions", "delete_topics"):
            async with asyncio.timeout(SETTLES_WITHIN_S):
                while not await self._as_told(memory):  # noqa: ASYNC110 - another process is waited for
                    await asyncio.sleep(0.003)
        if step.api in (
            "create_topics",
            "create_partitions",
            "delete_topics",
            "alter_configs",
            "incremental_alter_configs",
        ):
            await asyncio.sleep(self._pause_s)
        if step.api == "delete_topics":
            await asyncio.sleep(self._pause_s * 2)  # the coordinator hears of it last
            await self._commit()  # behind the tombstones of what was committed for them

    async def _as_told(self, memory: Memory) -> bool:
        names = [*memory.topics, *memory.gone]
        seen = await self._do("metadata", topics=[{"topic_id": None, "name": name} for name in names])
        for topic in seen.topics:
            if topic.name in memory.gone:
                if topic.error_code is ErrorCode.none:
                    return False
            elif len(topic.partitions) != memory.topics[topic.name] or any(
                each.error_code is not ErrorCode.none for each in topic.partitions
            ):
                return False
        for topic in seen.topics:
            if topic.name in memory.topics:
                memory.seen_topic(topic.name, topic.topic_id)
        wanted = [
            {
                "name": name,
                "partitions": [{"partition_index": at, "timestamp": -2} for at in range(memory.topics.get(name, 1))],
            }
            for name in names
        ]
        found = await self._do("list_offsets", replica_id=-1, topics=wanted)
        return all(
            (each.error_code is ErrorCode.none) == (topic.name in memory.topics)
            for topic in found.topics
            for each in topic.partitions
        )

    async def _commit(self) -> None:
        """Kafka tells of a new group only when something has been written since, by whatever group of the same
        partition (there is one partition only)."""
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        topics = [{"name": OTHER, "partitions": partitions}]
        await self._do("offset_commit", group_id=OTHER, topics=topics, generation_id_or_member_epoch=-1, member_id="")

    async def _do(self, api: str, **fields: Any) -> Any:
        channel = await self._channel()
        key = KEYS[api]
        version = {"metadata": 12, "list_offsets": 9, "delete_topics": 6, "offset_commit": 8}[api]
        frame = await channel.send_in_version(key, version, build(request_class(key, version), fields))
        return read_response(bytes(frame), key, version)

    async def _channel(self) -> Channel:
        if self._main is None or not self._main.is_open:
            self._main = await open_channel(*self._address, CLIENT)
        return self._main

    async def _free(self) -> Channel:
        while self._spare:
            if (channel := self._spare.pop()).is_open:
                return channel
        return await open_channel(*self._address, CLIENT)

    async def tidy(self, memory: Memory) -> None:
        """Gives up what still waits, and removes the walk's topics, so that thousands of walks fit one broker."""
        while self._held:
            self._held.pop().close()
        if memory.topics:
            topics = [{"name": name, "topic_id": None} for name in memory.topics]
            await self._do("delete_topics", topics=topics, timeout=10_000)

    def close(self) -> None:
        for channel in (*self._spare, *self._held, *((self._main,) if self._main else ())):
            channel.close()
