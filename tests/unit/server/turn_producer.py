"""A producer whose requests a broker receives in one turn of the event loop."""

from typing import Any

from kio.schema.errors import ErrorCode

from ottla_broker.wire.codec import read_response, write_request
from tests.unit.api.brokers import RawConnection, batch
from tests.unit.api.requests import produce_request

VERSION = 9


class Producer:
    """A connection whose requests are sent at once, so that the broker receives them in one
    turn.
    """

    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection

    @classmethod
    async def open(cls, port: int) -> "Producer":
        """A producer that the broker knows: its first request is answered."""
        producer = cls(await RawConnection.open(port))
        assert await producer.produce((0, batch(b"first"))) == [(0, ErrorCode.none)]
        return producer

    def send(self, *batches: tuple[int, bytes], acks: int = -1, more: bytes = b"") -> None:
        """One request for each batch, with its partition; the n-th has correlation id n."""
        requests = [
            write_request(0, VERSION, number, "me", produce_request({("a", partition): data}, acks))
            for number, (partition, data) in enumerate(batches)
        ]
        self.connection.writer.write(b"".join(requests) + more)

    async def receive(self, count: int) -> list[tuple[int, ErrorCode]]:
        """(correlation id, error) of the next responses."""
        return [(number, error) for number, error, _ in await self.receive_offsets(count)]

    async def receive_offsets(self, count: int) -> list[tuple[int, ErrorCode, int]]:
        found = []
        for _ in range(count):
            frame = await self.connection.receive()
            response: Any = read_response(frame, 0, VERSION)
            (partition,) = response.responses[0].partition_responses
            found.append((int.from_bytes(frame[:4]), partition.error_code, partition.base_offset))
        return found

    async def produce(self, *batches: tuple[int, bytes], acks: int = -1) -> list[tuple[int, ErrorCode]]:
        self.send(*batches, acks=acks)
        return await self.receive(len(batches))
