"""Requests of one API in one version, and the broker's responses in a form that can be compared
between brokers.

`ApiSession` builds kio's request of any version from one set of fields: a version takes the fields
that it has, and a mandatory field that is missing is zero. It sends the request and stores the
response as JSON without what differs between runs: ids, ports, paths, times, the wording of texts
and whole error messages.
"""

import asyncio
import dataclasses
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
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
RESPONSE_WITHIN_S = 5.0
START_MS = 1_700_000_000_000
# Fields whose values differ between brokers: only whether there is a value is compared.
BROKER_SPECIFIC_FIELDS = frozenset(
    {"cluster_id", "log_dir", "port", "producer_id", "session_id", "total_bytes", "usable_bytes"}
)
TEXT_FIELDS = frozenset({"batch_index_error_message", "documentation", "status_detail"})
# Throttle times depend on load. Kafka often has "" or null where Ottla has an error message.
IGNORED_FIELDS = frozenset({"throttle_time", "error_message", "acknowledge_error_message"})
NO_VALUE: tuple[Any, ...] = (-1, None, "")
NO_SESSION: tuple[Any, ...] = (0, None)
NAME_FIELDS = ("name", "topic", "group_id", "resource_name")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Json = Any


class ApiSession:
    """One API in one version. `responses` has the normalized response of each case, `ids` the id of
    each created topic by name. Names from `unique_name` belong to this session.
    """

    def __init__(self, host: str, port: int, run: str, api: str, version: int) -> None:
        self.api = api
        self.version = version
        self.responses: dict[str, Json] = {}
        self.ids: dict[str, UUID | None] = {}
        self._address = (host, port)
        self._prefix = f"{run}-{api}-{version}."
        self._channels: dict[str, Channel] = {}

    def unique_name(self, suffix: str) -> str:
        return self._prefix + suffix

    async def send_case(self, case: str, *, connection: str = "", only_own: bool = False, **fields: Any) -> Any:
        """Sends a request and stores the response, which is also returned; None if the broker
        closes the connection.

        Requests on the same `connection` keep their order. `only_own`: entries of other
        sessions in the response are not stored.
        """
        assert case not in self.responses, f"duplicate case {case}"
        self.responses[case] = None
        try:
            answer = await self._exchange(self.api, self.version, fields, connection)
        except TimeoutError as reason:
            raise AssertionError(f"{self.api} {self.version}, {case}: no response") from reason
        except ConnectionError:
            self.responses[case] = "the connection is closed"
            return None
        self.store(case, answer, only_own=only_own)
        return answer

    def store(self, case: str, answer: Any, *, only_own: bool = False) -> None:
        """Stores a response, as `send_case` does."""
        self.responses[case] = self._normalize(answer, only_own)

    async def send_case_without_response(self, case: str, **fields: Any) -> None:
        """Sends a Produce request with acks=0, and stores whether the connection stays open."""
        channel = await self._channel("")
        key, after = KEYS[self.api], KEYS["find_coordinator"]
        frames = [
            write_request(key, self.version, -1, "asking", build_message(request_class(key, self.version), fields)),
            write_request(after, 3, -2, "asking", build_message(request_class(after, 3), {"key": "any"})),
        ]
        try:
            await asyncio.wait_for(channel.send_frame(-2, frames), RESPONSE_WITHIN_S)
        except ConnectionError:
            self.responses[case] = "the connection is closed"
        else:
            self.responses[case] = "no answer"

    async def send(self, api: str, *, connection: str = "", version: int | None = None, **fields: Any) -> Any:
        """Sends a request that a case needs first, in the highest common version by default. The
        response is not stored.
        """
        channel = await self._channel(connection)
        if version is None:
            version = min(VERSIONS[api][1], channel.versions[KEYS[api]][1])
        return await self._exchange(api, version, fields, connection)

    async def create_topic(
        self, suffix: str, partitions: int = 1, batches: Sequence[bytes] = (), **configs: object
    ) -> str:
        """Creates a topic and writes batches to its partition 0; its id is in `ids`."""
        name = self.unique_name(suffix)
        settings = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        made = await self.send("create_topics", topics=[wanted], timeout=10_000)
        assert made.topics[0].error_code is ErrorCode.none, made
        self.ids[name] = made.topics[0].topic_id
        await self._wait_for_leaders(name, partitions)
        for records in batches:
            await self.produce(name, records)
        return name

    async def produce(self, topic: str, records: bytes, transactional_id: str | None = None) -> None:
        """Writes a batch to partition 0 of a topic that `create_topic` has created."""
        where = {"name": topic, "topic_id": self.ids[topic], "partition_data": [{"index": 0, "records": records}]}
        fields: dict[str, Any] = {"acks": -1, "timeout": 10_000, "transactional_id": transactional_id}
        written = await self.send("produce", **fields, topic_data=[where])
        assert written.responses[0].partition_responses[0].error_code is ErrorCode.none, written

    async def _wait_for_leaders(self, name: str, partitions: int) -> None:
        """Returns when the partitions of a new topic have leaders, which takes some
        milliseconds."""
        async with asyncio.timeout(RESPONSE_WITHIN_S):
            while True:
                wanted = [{"topic_id": None, "name": name}]
                metadata = await self.send("metadata", topics=wanted, allow_auto_topic_creation=False)
                offsets = await self.send(
                    "list_offsets",
                    replica_id=-1,
                    topics=[
                        {
                            "name": name,
                            "partitions": [{"partition_index": index, "timestamp": -2} for index in range(partitions)],
                        }
                    ],
                )
                codes = {partition.error_code for partition in metadata.topics[0].partitions}
                codes |= {partition.error_code for partition in offsets.topics[0].partitions}
                if codes == {ErrorCode.none} and len(metadata.topics[0].partitions) == partitions:
                    return
                await asyncio.sleep(0.01)

    async def _exchange(self, api: str, version: int, fields: Mapping[str, Any], connection: str) -> Any:
        channel = await self._channel(connection)
        return await asyncio.wait_for(exchange(channel, api, version, fields), RESPONSE_WITHIN_S)

    async def _channel(self, connection: str) -> Channel:
        channel = self._channels.get(connection)
        if channel is None or not channel.is_open:
            channel = self._channels[connection] = await open_channel(*self._address, f"asking{connection}")
        return channel

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    # --- responses without what differs between brokers

    def _normalize(self, value: Any, only_own: bool, field: str = "") -> Json:
        if field in TEXT_FIELDS:
            return "…" if value else value
        if isinstance(value, ErrorCode):
            return value.name
        if dataclasses.is_dataclass(value):
            pairs = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            return {
                name: self._normalize(inner, only_own, name)
                for name, inner in pairs.items()
                if name not in IGNORED_FIELDS
            }
        if isinstance(value, tuple | list):
            if field == "acquired_records":
                return merge_spans(value)
            kept = [each for each in value if not only_own or self._is_own(each)]
            shared = [self._normalize(each, only_own, field) for each in kept]
            return sorted(shared, key=repr)
        if isinstance(value, bytes | bytearray | memoryview):
            return describe_records(bytes(value)) if field == "records" else bytes(value).decode("latin-1")
        if isinstance(value, str):
            value = _UUID.sub("<uuid>", value.replace(self._prefix, ""))
        if isinstance(value, timedelta):
            value = value // timedelta(milliseconds=1)
        if isinstance(value, UUID) or (
            field in BROKER_SPECIFIC_FIELDS and value not in (NO_SESSION if field == "session_id" else NO_VALUE)
        ):
            return f"<{field}>"
        if isinstance(value, datetime):
            return "<time>"
        return value

    def _is_own(self, entry: Any) -> bool:
        name = next((getattr(entry, field) for field in NAME_FIELDS if hasattr(entry, field)), None)
        return name is None or name.startswith(self._prefix)


async def exchange(channel: Channel, api: str, version: int, fields: Mapping[str, Any]) -> Any:
    """Sends a request of an API, built from `fields`, and returns the response."""
    key = KEYS[api]
    frame = await channel.send_in_version(key, version, build_message(request_class(key, version), fields))
    return read_response(bytes(frame), key, version)


def merge_spans(acquired: Iterable[Any]) -> Json:
    """Ranges of acquired records with their delivery counts. Adjacent ranges of equal counts are
    joined, because brokers may split them differently.
    """
    found: list[list[int]] = []
    for one in sorted(acquired, key=lambda span: int(span.first_offset)):
        if found and found[-1][1] == one.first_offset - 1 and found[-1][2] == one.delivery_count:
            found[-1][1] = int(one.last_offset)
        else:
            found.append([int(one.first_offset), int(one.last_offset), int(one.delivery_count)])
    return [f"{first} to {last}, delivery {count}" for first, last, count in found]


def describe_records(data: bytes) -> Json:
    """Offset, leader epoch and value (shortened) of each fetched record, and the size of an
    incomplete batch at the end.
    """
    whole = whole_batches(data)
    found = [
        f"{record.offset} at epoch {header.leader_epoch}: {(record.value or b'')[:9]!r}"
        for header, record in iter_records(whole)
    ]
    return [*found, f"{len(data) - len(whole)} bytes more"] if len(whole) < len(data) else found


def whole_batches(data: bytes) -> bytes:
    """The data without an incomplete batch at its end."""
    whole, at = 0, 0
    while at + 12 <= len(data):
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
        whole = at if at <= len(data) else whole
    return data[:whole]


def encode_values(*values: bytes | None, at_ms: int = START_MS, key: bytes | None = b"k", **header: Any) -> bytes:
    """A batch with these values; timestamps are one millisecond apart."""
    records = [Record(at_ms + number, key, value) for number, value in enumerate(values)]
    return encode_batch(records, **header)


# --- building requests

ZERO_VALUES = ((bool, False), (int, 0), (float, 0.0), (str, ""), (bytes, b""), (UUID, UUID(int=0)))


@cache
def type_hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def build_message(cls: type, fields: Mapping[str, Any]) -> Any:
    """Builds kio's class from plain values: mappings, sequences, and milliseconds for durations."""
    values = {}
    for field in dataclasses.fields(cls):
        hint = type_hints(cls)[field.name]
        if field.name in fields:
            values[field.name] = _convert(hint, fields[field.name])
        elif field.default is dataclasses.MISSING:
            values[field.name] = _zero_value(hint)
    return cls(**values)


def _convert(hint: Any, value: Any) -> Any:
    """Converts `value` to the type `hint`."""
    if typing.get_origin(hint) in (UnionType, typing.Union):
        if value is None:
            return None
        hint = next(each for each in typing.get_args(hint) if each is not type(None))
    if typing.get_origin(hint) is tuple:
        return tuple(_convert(typing.get_args(hint)[0], each) for each in value)
    if dataclasses.is_dataclass(hint):
        return build_message(typing.cast(type, hint), value)
    if _is_duration(hint):
        return timedelta(milliseconds=value)
    return value


def _zero_value(hint: Any) -> Any:
    if typing.get_origin(hint) in (UnionType, typing.Union):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if _is_duration(hint):
        return timedelta()
    if dataclasses.is_dataclass(hint):
        return build_message(typing.cast(type, hint), {})
    while not isinstance(hint, type):
        hint = hint.__supertype__
    return next(zero for base, zero in ZERO_VALUES if issubclass(hint, base))


def _is_duration(hint: Any) -> bool:
    return "Timedelta" in getattr(hint, "__name__", "")


def has_message_class(api: str, version: int) -> bool:
    """True if kio has a class for this version; it has none for the oldest versions."""
    try:
        request_class(KEYS[api], version)
    except RuntimeError:
        return False
    return True
