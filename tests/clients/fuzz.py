"""Almost valid requests: generated from the messages' schemas or recorded from clients, then
mutated.

`python -m tests.clients.fuzz HOST:PORT SECONDS [SEED]` sends them to a running broker and prints
the result.
"""

import asyncio
import random
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from kio.schema.api_versions.v3.request import ApiVersionsRequest

from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response, request_class, write_request
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_schema import FieldSchema, MessageSchema, schema_of
from ottla_broker.wire.records import Record, encode_batch

HELLO = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
NAMES = ("fuzz", "__consumer_offsets", "", "a" * 249, "a" * 300, "no/such")
NUMBERS = (0, 1, -1, -2, 2, 5, 127, 128, 255, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
RESPONSE_TIMEOUT_S = 10.0
# Creating thousands of partitions is not the kind of fault that is tested here.
CREATES_TOPICS = frozenset({"create_topics", "create_partitions"})
FEW = 4
FETCH, JOIN_GROUP = 1, 11
FETCH_WITHOUT_REPLICA = 15  # from this version on max_wait is the first field
FLEXIBLE_FETCH = 12


@dataclass
class FuzzResult:
    """Outcomes of the requests. `hung` must stay empty; `closed` counts hung requests too."""

    request_count: int = 0
    answered: int = 0
    closed: int = 0
    hung: list[bytes] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.request_count} requests sent: {self.answered} answered, {self.closed} closed their connection, "
            f"{len(self.hung)} hung"
        )


class RequestGenerator:
    """Generates requests from a seed; half of them from `recorded` ones, if there are any."""

    def __init__(self, seed: int, recorded: Sequence[bytes] = ()) -> None:
        self.random = random.Random(seed)
        # The response to JoinGroup may take long.
        self._recorded = [request for request in recorded if int.from_bytes(request[:2]) != JOIN_GROUP]
        self._apis = [
            (key, version, ApiKey(key).name.lower())
            for key, (first, last) in SERVED_VERSIONS.items()
            for version in range(3 if key == ApiKey.PRODUCE else first, last + 1)
        ]

    def next_frame(self) -> bytes:
        """A size and a request, which is valid, mutated, truncated or arbitrary. One size in a
        hundred is wrong.
        """
        random = self.random
        body = bytearray(self._valid_request())
        kind = random.random()
        if kind < 0.3:
            pass
        elif kind < 0.8:
            for _ in range(random.choice((1, 1, 2, 4, 16))):
                self._mutate(body)
        elif kind < 0.9:
            del body[random.randrange(len(body)) :]
        else:
            body[10:] = random.randbytes(random.randrange(200))
        shorten_fetch_wait(body)
        if kind > 0.99:  # a wrong size
            return struct.pack(">i", random.choice((*NUMBERS[:10], 2**31 - 1, -1)) & 0x7FFFFFFF) + bytes(body)
        return len(body).to_bytes(4) + bytes(body)

    def _valid_request(self) -> bytes:
        random = self.random
        if self._recorded and random.random() < 0.5:
            return random.choice(self._recorded)
        key, version, name = random.choice(self._apis)
        message = self.message(key, version, name)
        return bytes(write_request(key, version, random.randrange(1 << 31), "fuzz", message))[4:]

    def _mutate(self, body: bytearray) -> None:
        random = self.random
        at = random.randrange(len(body))
        what = random.randrange(5)
        if what == 0:
            body[at] ^= 1 << random.randrange(8)
        elif what == 1:
            body[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif what == 2:
            body[at : at + 4] = (random.choice(NUMBERS) & 0xFFFFFFFF).to_bytes(4)
        elif what == 3:
            del body[at : at + random.randrange(1, 9)]
            body += b"\0" * (1 if not body else 0)
        else:
            body[at:at] = random.randbytes(random.randrange(1, 9))

    def message(self, key: int, version: int, name: str) -> object:
        return self._entity(schema_of(request_class(key, version)), small=name in CREATES_TOPICS)

    def _entity(self, schema: MessageSchema, *, small: bool) -> object:
        values = {field.name: self._field(field, small=small) for field in schema.all_fields}
        made: object = schema.cls(**values)
        return made

    def _field(self, field: FieldSchema, *, small: bool) -> object:
        random = self.random
        if field.nullable and field.tag is None and random.random() < 0.2:
            return None
        if field.array:
            return tuple(self._value(field, small=small) for _ in range(random.choice((0, 1, 1, 2))))
        return self._value(field, small=small)

    def _value(self, field: FieldSchema, *, small: bool) -> object:
        random = self.random
        if field.entity is not None:
            return self._entity(field.entity, small=small)
        if field.kind in BITS:
            if field.name in ("partition", "partition_index", "index", "acks"):
                return random.choice((0, 0, 0, -1, 1))
            if small:
                return random.randrange(-1, FEW)
            bits = BITS[field.kind]
            return max(-(1 << bits), min(random.choice(NUMBERS), (1 << bits) - 1))
        if field.kind == "string":
            return random.choice(NAMES)
        if field.kind in ("bytes", "records"):
            return self._records() if field.kind == "records" else random.randbytes(random.randrange(40))
        if field.kind in ("timedelta_i32", "timedelta_i64"):
            return type(field.default)(milliseconds=random.choice((0, 1, 5, 20)))
        if field.kind == "uuid":
            return UUID(int=random.choice((0, 1, random.getrandbits(128))))
        return random.choice((True, False)) if field.kind == "bool" else field.default

    def _records(self) -> bytes:
        batch = bytearray(encode_batch([Record(1, b"k", b"v"), Record(2, None, None)]))
        if self.random.random() < 0.5:
            self._mutate(batch)
        return bytes(batch)


def shorten_fetch_wait(body: bytearray) -> None:
    """Sets a Fetch request's max_wait to 20 ms; a broker may wait for records until it is over."""
    key, version = int.from_bytes(body[:2]), int.from_bytes(body[2:4])
    if key == FETCH:
        at = 10 + max(0, int.from_bytes(body[8:10], signed=True))
        if version >= FLEXIBLE_FETCH:
            at = end_of_tagged_fields(body, at)
        if version < FETCH_WITHOUT_REPLICA:
            at += 4
        if len(body) >= at + 4:
            body[at : at + 4] = (20).to_bytes(4)


def end_of_tagged_fields(body: bytes | bytearray, at: int) -> int:
    """The position after the tagged fields at `at` (KIP-482). It may be beyond the body: a mutation
    may have changed their lengths.
    """

    def read_varint() -> int:
        nonlocal at
        value = shift = 0
        while at < len(body):
            value |= (body[at] & 0x7F) << shift
            shift += 7
            at += 1
            if body[at - 1] < 0x80:
                break
        return value

    fields = read_varint()
    while fields and at < len(body):
        read_varint()  # the tag
        size = read_varint()
        at += size
        fields -= 1
    return at


async def send_frames(port: int, host: str, frames: list[bytes], result: FuzzResult) -> None:
    """Sends requests over one connection until the broker closes it or a request hangs.

    After each request the broker must either close the connection or answer a valid request.
    """
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
    try:
        for frame in frames:
            result.request_count += 1
            if not await _send_one(reader, writer, frame, result):
                result.closed += 1
                return
    finally:
        writer.close()


async def _send_one(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes, result: FuzzResult
) -> bool:
    """Sends a request and a valid one. Returns True once the valid one is answered; False if the
    broker closes the connection or does not respond to the valid one in time.
    """
    hello = bytes(write_request(ApiKey.API_VERSIONS, 3, 0x0F0F0F0F, "fuzz", HELLO))
    try:
        writer.write(frame)
        writer.write(hello)
        if int.from_bytes(frame[:4]) != len(frame) - 4:
            writer.write_eof()  # otherwise the broker correctly waits for the rest
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                answer = await reader.readexactly(size)
                if answer.startswith(b"\x0f\x0f\x0f\x0f"):
                    result.answered += 1
                    return True
    except TimeoutError:  # before OSError, its base class
        result.hung.append(frame)
        return False
    except (asyncio.IncompleteReadError, OSError):
        return False


async def is_responding(host: str, port: int) -> bool:
    """True if the broker responds to another connection."""
    async with asyncio.timeout(RESPONSE_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(write_request(ApiKey.API_VERSIONS, 3, 1, "other", HELLO))
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        writer.close()
    return bool(read_response(answer, ApiKey.API_VERSIONS, 3).error_code is ErrorCode.none)


async def fuzz(
    host: str,
    port: int,
    seconds: float,
    seed: int,
    watch: Callable[[], None] = lambda: None,
    recorded: Sequence[bytes] = (),
    at_least: int = 0,
) -> FuzzResult:
    """Sends requests over four connections at a time, for `seconds` and at least `at_least`
    requests. Ends early after a request that hangs.

    `watch` is called between rounds.
    """
    loop = asyncio.get_running_loop()
    result, generator = FuzzResult(), RequestGenerator(seed, recorded)
    deadline = loop.time() + seconds
    while (loop.time() < deadline or result.request_count < at_least) and not result.hung:
        connections = [[generator.next_frame() for _ in range(8)] for _ in range(4)]
        await asyncio.gather(*(send_frames(port, host, frames, result) for frames in connections))
        watch()
        assert await is_responding(host, port)
    return result


def main(arguments: list[str]) -> None:
    host, _, port = arguments[0].rpartition(":")
    seed = int(arguments[2]) if len(arguments) > 2 else 1
    result = asyncio.run(fuzz(host, int(port), float(arguments[1]), seed))
    print(f"seed {seed}: {result}")
    for frame in result.hung:
        print("hung:", frame.hex())


if __name__ == "__main__":
    main(sys.argv[1:])
