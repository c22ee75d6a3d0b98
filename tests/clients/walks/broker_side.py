"""One of the two brokers of a walk: its connections, and the steps sent to it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from ottla_broker.wire.channel import Channel
from ottla_broker.wire.codec import read_response, request_class
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_reader import MalformedMessage
from tests.clients.api_session import KEYS, build_message, exchange
from tests.clients.walks.steps import Step
from tests.clients.walks.walk_state import Rule, WalkState

HELPER_NAME: Final = "other"  # a topic and a group that no walk uses
SETTLES_WITHIN_S: Final = 10.0
ASSIGNED_WITHIN_S: Final = 3.0
DECIDED: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
ANY_RULE: Final = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
DESCRIBING: Final = (
    "describe_groups",
    "list_groups",
    "consumer_group_describe",
    "streams_group_describe",
    "share_group_describe",
)
CLOSED: Final = "the connection is closed"


class BrokerSide:
    """One broker. `open_as` connects as the user with this name, or as a super user if it is empty.
    `pause_s` is how long the controller's changes may take to reach all of the broker's components.
    """

    def __init__(self, open_as: Callable[[str], Awaitable[Channel]], pause_s: float) -> None:
        self._open_as = open_as
        self._pause_s = pause_s
        self._main: dict[str, Channel] = {}  # by user
        self._spare: dict[str, list[Channel]] = {}
        self._held: list[Channel] = []  # with requests in progress

    async def versions(self) -> dict[int, tuple[int, int]]:
        return (await self._channel()).versions

    async def send_step(self, step: Step, sent: dict[str, Any]) -> Any:
        """Sends a step; returns the response, CLOSED, or a text about a malformed response. A
        request that may wait for others has its own connection.
        """
        if step.api in DESCRIBING:
            await self._commit()
        channel = await (self._spare_channel(step.user) if step.may_wait else self._channel(step.user))
        if step.may_wait:
            self._held.append(channel)
        key = KEYS[step.api]
        try:
            frame = await channel.send_in_version(
                key, step.version, build_message(request_class(key, step.version), sent)
            )
        except ConnectionError:
            return CLOSED
        if step.may_wait:
            self._held.remove(channel)
            self._spare.setdefault(step.user, []).append(channel)
        try:
            return read_response(bytes(frame), key, step.version)
        except MalformedMessage as reason:
            return f"malformed response: {reason} in {bytes(frame)!r}"

    async def settle(self, step: Step, state: WalkState) -> None:
        """Returns when a step's change is visible in all components of the broker."""
        if step.api in ("create_topics", "create_partitions", "delete_topics"):
            async with asyncio.timeout(SETTLES_WITHIN_S):
                while not await self._has_topics_of(state):  # noqa: ASYNC110 - waits for another process
                    await asyncio.sleep(0.003)
        if state.internal_topics:
            await self._settle_internal_topics(state)
        if step.fields.get("share_session_epoch") == -1:  # Kafka releases records after the response
            await asyncio.sleep(self._pause_s * 2)
        if step.api in ("init_producer_id", "end_txn"):
            await self._settle_transactions(state)
        if step.api in ("create_acls", "delete_acls"):
            await self._settle_rules(state)
        if step.api in (
            "create_topics",
            "create_partitions",
            "delete_topics",
            "alter_configs",
            "incremental_alter_configs",
        ):
            await asyncio.sleep(self._pause_s)
        if step.api == "delete_topics":
            await asyncio.sleep(self._pause_s * 2)  # the coordinator learns of it last
            await self._commit()  # a write after the tombstones of the topics' committed offsets

    async def _has_topics_of(self, state: WalkState) -> bool:
        """True if the walk's topics have leaders, and its deleted ones are gone. Adds the ids of
        the topics to `state`.
        """
        names = [*state.topics, *state.deleted]
        metadata = await self._send("metadata", topics=[{"topic_id": None, "name": name} for name in names])
        for topic in metadata.topics:
            if topic.name in state.deleted:
                if topic.error_code is ErrorCode.none:
                    return False
            elif len(topic.partitions) != state.topics[topic.name] or any(
                each.error_code is not ErrorCode.none for each in topic.partitions
            ):
                return False
        for topic in metadata.topics:
            if topic.name in state.topics:
                state.add_topic_id(topic.name, topic.topic_id)
        wanted = [
            {
                "name": name,
                "partitions": [{"partition_index": at, "timestamp": -2} for at in range(state.topics.get(name, 1))],
            }
            for name in names
        ]
        found = await self._send("list_offsets", replica_id=-1, topics=wanted)
        return all(
            (each.error_code is ErrorCode.none) == (topic.name in state.topics)
            for topic in found.topics
            for each in topic.partitions
        )

    async def _settle_internal_topics(self, state: WalkState) -> None:
        """Returns when the topics that a streams group waits for exist."""
        async with asyncio.timeout(SETTLES_WITHIN_S):
            while state.internal_topics:
                wanted = [{"topic_id": None, "name": name} for name in state.internal_topics]
                for topic in (await self._send("metadata", topics=wanted)).topics:
                    if topic.error_code is ErrorCode.none:
                        state.internal_topics.discard(topic.name)
                        state.topics[topic.name] = len(topic.partitions)
            while not await self._has_topics_of(state):  # noqa: ASYNC110 - waits for another process
                await asyncio.sleep(0.003)
        await asyncio.sleep(self._pause_s * 2)

    async def initialize_shares(self, fields: dict[str, Any]) -> None:
        """Joins a share group, stays until the share state of its topics is initialized, at most
        for ASSIGNED_WITHIN_S, and leaves. If a topic does not exist, its state is never
        initialized.
        """
        joining = {**fields, "member_id": "AAAAAAAAAAAAAAAAAAAA-g"}
        with suppress(TimeoutError):
            async with asyncio.timeout(ASSIGNED_WITHIN_S):
                await self._heartbeat_until_initialized(joining)
        await self._send("share_group_heartbeat", **{**joining, "member_epoch": -1, "subscribed_topic_names": None})

    async def _heartbeat_until_initialized(self, joining: dict[str, Any]) -> None:
        epoch = 0
        while True:
            found = await self._send("share_group_heartbeat", **{**joining, "member_epoch": epoch})
            if found.assignment is not None and found.assignment.topic_partitions:
                described = {"group_id": joining["group_id"], "topics": None}
                offsets = await self._send("describe_share_group_offsets", groups=[described])
                if len(offsets.groups[0].topics) == len(joining["subscribed_topic_names"]):
                    return
            epoch = max(int(found.member_epoch), 0)
            await asyncio.sleep(0.003)

    async def _settle_transactions(self, state: WalkState) -> None:
        """Returns when every decided transaction of the walk is completed."""
        async with asyncio.timeout(SETTLES_WITHIN_S):
            while True:
                found = await self._send(
                    "list_transactions", state_filters=DECIDED, producer_id_filters=(), duration_filter=-1
                )
                if not any(one.transactional_id.startswith(state.prefix) for one in found.transaction_states):
                    return
                await asyncio.sleep(0.003)

    async def _settle_rules(self, state: WalkState) -> None:
        """Returns when the broker has exactly the rules of the walk."""
        async with asyncio.timeout(SETTLES_WITHIN_S):
            while await self._rules() != state.rules:  # noqa: ASYNC110 - waits for another process
                await asyncio.sleep(0.003)
        await asyncio.sleep(self._pause_s)

    async def _rules(self) -> set[Rule]:
        found = await self._send("describe_acls", **ANY_RULE)
        return {
            (
                of.resource_type,
                of.resource_name,
                of.pattern_type,
                it.principal,
                it.host,
                it.operation,
                it.permission_type,
            )
            for of in found.resources
            for it in of.acls
        }

    async def _commit(self) -> None:
        """Commits an offset: Kafka lists a new group only after a later write to the same offsets
        partition.
        """
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        topics = [{"name": HELPER_NAME, "partitions": partitions}]
        await self._send(
            "offset_commit", group_id=HELPER_NAME, topics=topics, generation_id_or_member_epoch=-1, member_id=""
        )

    async def _send(self, api: str, **fields: Any) -> Any:
        channel = await self._channel()
        version = {
            "metadata": 12,
            "list_offsets": 9,
            "delete_topics": 6,
            "offset_commit": 8,
            "describe_acls": 3,
            "delete_acls": 3,
            "list_transactions": 1,
            "share_group_heartbeat": 1,
            "describe_share_group_offsets": 0,
        }[api]
        return await exchange(channel, api, version, fields)

    async def _channel(self, user: str = "") -> Channel:
        if user not in self._main or not self._main[user].is_open:
            self._main[user] = await self._open_as(user)
        return self._main[user]

    async def _spare_channel(self, user: str) -> Channel:
        spare = self._spare.get(user, [])
        while spare:
            if (channel := spare.pop()).is_open:
                return channel
        return await self._open_as(user)

    async def clean_up(self, state: WalkState) -> None:
        """Cancels pending requests and deletes the walk's topics and rules, so that thousands of
        walks fit on one broker.
        """
        while self._held:
            self._held.pop().close()
        if state.topics:
            topics = [{"name": name, "topic_id": None} for name in state.topics]
            await self._send("delete_topics", topics=topics, timeout=10_000)
        if state.rules:
            await self._send("delete_acls", filters=[ANY_RULE])
            state.rules.clear()
            await self._settle_rules(state)

    def close(self) -> None:
        spare = [channel for channels in self._spare.values() for channel in channels]
        for channel in (*spare, *self._held, *self._main.values()):
            channel.close()
