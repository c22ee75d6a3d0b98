"""Questions put to a broker in one version of one API, and what it answered in a form that two brokers can share.

`Talk` builds kio's request of any version out of one set of fields (a version takes those it has; a field that it must
have and that is not given is zero), asks, and keeps the answer as JSON without what differs from run to run: ids,
ports, paths, clocks, and the wording of messages (that there is one is kept).
"""

import asyncio
import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from types import UnionType
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.codec import read_response, request_class, write_request
from ottla_broker.wire.records import Record, encode_batch, iter_records

VERSIONS = {ApiKey(key).name.lower(): versions for key, versions in SERVED_VERSIONS.items()}
"""First and last version by name of the API."""
KEYS = {name: int(ApiKey[name.upper()]) for name in VERSIONS}
ANSWERS_WITHIN_S = 5.0
START_MS = 1_700_000_000_000
# Fields whose value is the broker's own affair: all that counts is whether there is one.
OWN = frozenset({"cluster_id", "log_dir", "port", "producer_id", "session_id", "total_bytes", "usable_bytes"})
SAID = frozenset({"batch_index_error_message", "documentation"})
DROPPED = frozenset({"throttle_time", "error_message"})  # Kafka often has no words where we do, and "" or null for none
NONE: tuple[Any, ...] = (-1, None, "")
NO_SESSION: tuple[Any, ...] = (0, None)
NAMES = ("name", "topic", "group_id", "resource_name")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Json = Any


class Talk:
    """One API in one version; `answers` by case. Names made by `name` belong to this talk alone."""

    def __init__(self, host: str, port: int, run: str, api: str, version: int) -> None:
        self.api = api
        self.version = version
        self.answers: dict[str, Json] = {}
        self.ids: dict[str, UUID | None] = {}
        self._address = (host, port)
        self._prefix = f"{run}-{api}-{version}."
        self._channels: dict[str, Channel] = {}

    def name(self, suffix: str) -> str:
        return self._prefix + suffix

    async def ask(self, case: str, *, on: str = "", mine: bool = False, **fields: Any) -> Any:
        """Asks and keeps the answer; also returned as it came, None when the broker closed the connection. `on`: a
        connection of that name (each has its own order of requests). `mine`: the answer lists what others made too."""
        assert case not in self.answers, f"{case} was asked before"
        self.answers[case] = None
        try:
            answer = await self._exchange(KEYS[self.api], self.version, fields, on)
        except TimeoutError as reason:
            raise AssertionError(f"{self.api} {self.version}, {case}: no answer") from reason
        except ConnectionError:
            self.answers[case] = "the connection is closed"
            return None
        self.answers[case] = self._shared_form(answer, mine)
        return answer

    async def ask_without_answer(self, case: str, **fields: Any) -> None:
        """A Produce with acks=0: what is kept is whether the connection outlives it."""
        channel = await self._channel("")
        key, after = KEYS[self.api], KEYS["find_coordinator"]
        frames = [
            write_request(key, self.version, -1, "asking", build(request_class(key, self.version), fields)),
            write_request(after, 3, -2, "asking", build(request_class(after, 3), {"key": "any"})),
        ]
        try:
            await asyncio.wait_for(channel.send_frame(-2, frames), ANSWERS_WITHIN_S)
        except ConnectionError:
            self.answers[case] = "the connection is closed"
        else:
            self.answers[case] = "no answer"

    async def do(self, api: str, *, on: str = "", version: int | None = None, **fields: Any) -> Any:
        """What a case needs first: asked in the highest version unless that is given, and not kept."""
        channel = await self._channel(on)
        if version is None:
            version = min(VERSIONS[api][1], channel.versions[KEYS[api]][1])
        return await self._exchange(KEYS[api], version, fields, on)

    async def topic(self, suffix: str, partitions: int = 1, batches: Sequence[bytes] = (), **configs: object) -> str:
        """A new topic, with batches written to its partition 0; its id is in `ids`."""
        name = self.name(suffix)
        settings = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        made = await self.do("create_topics", topics=[wanted], timeout=10_000)
        assert made.topics[0].error_code is ErrorCode.none, made
        self.ids[name] = made.topics[0].topic_id
        await self._until_led(name, partitions)
        for records in batches:
            where = {"name": name, "topic_id": self.ids[name]}
            written = await self.do(
                "produce",
                acks=-1,
                timeout=10_000,
                topic_data=[{**where, "partition_data": [{"index": 0, "records": records}]}],
            )
            assert written.responses[0].partition_responses[0].error_code is ErrorCode.none, written
        return name

    async def _until_led(self, name: str, partitions: int) -> None:
        """A new topic's partitions have no leader yet for some milliseconds."""
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            while True:
                wanted = [{"topic_id": None, "name": name}]
                seen = await self.do("metadata", topics=wanted, allow_auto_topic_creation=False)
                offsets = await self.do(
                    "list_offsets",
                    replica_id=-1,
                    topics=[
                        {
                            "name": name,
                            "partitions": [{"partition_index": index, "timestamp": -2} for index in range(partitions)],
                        }
                    ],
                )
                codes = {partition.error_code for partition in seen.topics[0].partitions}
                codes |= {partition.error_code for partition in offsets.topics[0].partitions}
                if codes == {ErrorCode.none} and len(seen.topics[0].partitions) == partitions:
                    return
                await asyncio.sleep(0.01)

    async def _exchange(self, key: int, version: int, fields: Mapping[str, Any], on: str) -> Any:
        channel = await self._channel(on)
        request = build(request_class(key, version), fields)
        frame = await asyncio.wait_for(channel.send_in_version(key, version, request), ANSWERS_WITHIN_S)
        return read_response(bytes(frame), key, version)

    async def _channel(self, on: str) -> Channel:
        channel = self._channels.get(on)
        if channel is None or not channel.is_open:
            channel = self._channels[on] = await open_channel(*self._address, f"asking{on}")
        return channel

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    # --- the form that two brokers share

    def _shared_form(self, value: Any, mine: bool, field: str = "") -> Json:
        if field in SAID:
            return "…" if value else value
        if isinstance(value, ErrorCode):
            return value.name
        if dataclasses.is_dataclass(value):
            pairs = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            return {name: self._shared_form(inner, mine, name) for name, inner in pairs.items() if name not in DROPPED}
        if isinstance(value, tuple | list):
            kept = [each for each in value if not mine or self._is_mine(each)]
            shared = [self._shared_form(each, mine, field) for each in kept]
            return sorted(shared, key=repr)
        if isinstance(value, bytes | bytearray | memoryview):
            return records_in(bytes(value)) if field == "records" else bytes(value).decode("latin-1")
        if isinstance(value, str):
            value = _UUID.sub("<uuid>", value.replace(self._prefix, ""))
        if isinstance(value, timedelta):
            value = value // timedelta(milliseconds=1)
        if isinstance(value, UUID) or (field in OWN and value not in (NO_SESSION if field == "session_id" else NONE)):
            return f"<{field}>"
        if isinstance(value, datetime):
            return "<time>"
        return value

    def _is_mine(self, entry: Any) -> bool:
        name = next((getattr(entry, field) for field in NAMES if hasattr(entry, field)), None)
        return name is None or name.startswith(self._prefix)


def records_in(data: bytes) -> Json:
    """What was fetched: offset, leader's epoch and value (long ones cut) of each record, and bytes of a batch that is
    not whole."""
    whole, at = 0, 0
    while at + 12 <= len(data):
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
        whole = at if at <= len(data) else whole
    found = [
        f"{record.offset} at epoch {header.leader_epoch}: {(record.value or b'')[:9]!r}"
        for header, record in iter_records(data[:whole])
    ]
    return [*found, f"{len(data) - whole} bytes more"] if whole < len(data) else found


def batch(*values: bytes | None, at_ms: int = START_MS, key: bytes | None = b"k", **header: Any) -> bytes:
    """A batch of these values, timestamps one millisecond apart."""
    records = [Record(at_ms + number, key, value) for number, value in enumerate(values)]
    return encode_batch(records, **header)


# --- requests out of fields


@cache
def hints_of(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def build(cls: type, given: Mapping[str, Any]) -> Any:
    """kio's class out of plain values: mappings for structures, sequences for arrays, milliseconds for spans of time."""
    values = {}
    for field in dataclasses.fields(cls):
        hint = hints_of(cls)[field.name]
        if field.name in given:
            values[field.name] = _as(hint, given[field.name])
        elif field.default is dataclasses.MISSING:
            values[field.name] = _zero(hint)
    return cls(**values)


def _as(hint: Any, value: Any) -> Any:
    """`value` as the type that `hint` names."""
    if typing.get_origin(hint) in (UnionType, typing.Union):
        if value is None:
            return None
        hint = next(each for each in typing.get_args(hint) if each is not type(None))
    if typing.get_origin(hint) is tuple:
        return tuple(_as(typing.get_args(hint)[0], each) for each in value)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value)
    if _is_span(hint):
        return timedelta(milliseconds=value)
    return value


def _zero(hint: Any) -> Any:
    if typing.get_origin(hint) in (UnionType, typing.Union):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if _is_span(hint):
        return timedelta()
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), {})
    while not isinstance(hint, type):
        hint = hint.__supertype__
    return next(zero for base, zero in ((bool, False), (int, 0), (str, ""), (bytes, b"")) if issubclass(hint, base))


def _is_span(hint: Any) -> bool:
    return "Timedelta" in getattr(hint, "__name__", "")
