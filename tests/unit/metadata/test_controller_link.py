"""A broker's way to the controller: through servers that come, go and change their office."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse
from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse
from kio.schema.envelope.v0.request import EnvelopeRequest
from kio.schema.envelope.v0.response import EnvelopeResponse
from kio.schema.types import BrokerId, ProducerId
from kio.static.primitive import i16, i32, i64

from ottla_broker.metadata.controller_channel import FORWARDING_SOFTWARE_NAME, ControllerChannel
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.principal import Principal
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import (
    read_request,
    read_request_header,
    read_response,
    request_class,
    write_request,
    write_response,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.forwarding import read_host, read_principal
from tests.unit.metadata.small_controller import on_a_loop, until

ALLOCATE = 67
ALICE = Principal("User", "alice")
QUESTION = AllocateProducerIdsRequest(broker_id=BrokerId(1), broker_epoch=i64(5))


def block(first: int, code: ErrorCode = ErrorCode.none) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time=NO_THROTTLE, error_code=code, producer_id_start=ProducerId(i64(first)), producer_id_len=i32(10)
    )


class Office:
    """A broker that others ask: `answers` gives what it says to the n-th question, or raises
    ConnectionError to hang up.
    """

    def __init__(self, answers: Callable[[int], Awaitable[Any]]) -> None:
        self._answers = answers
        self.asked = 0
        self.connections = 0
        self.software: set[str] = set()
        self.envelopes: list[EnvelopeRequest] = []

    async def open(self) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                header = read_request_header(frame)
                if header.api_key == ApiKey.API_VERSIONS:
                    hello = read_request(frame, header, request_class(ApiKey.API_VERSIONS, 3))
                    self.software.add(hello.client_software_name)
                    answer: Any = ApiVersionsResponse(
                        error_code=ErrorCode.none,
                        api_keys=tuple(
                            ApiVersion(api_key=i16(key), min_version=i16(0), max_version=i16(0))
                            for key in (ALLOCATE, ApiKey.ENVELOPE)
                        ),
                        throttle_time=NO_THROTTLE,
                    )
                else:
                    self.asked += 1
                    if header.api_key == ApiKey.ENVELOPE:
                        self.envelopes.append(read_request(frame, header, EnvelopeRequest))
                    answer = await self._answers(self.asked)
                writer.write(write_response(header.api_key, header.version, header.correlation_id, answer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def close(self) -> None:
        self._server.close()


class Leader:
    def __init__(self, address: tuple[str, int] | None = None) -> None:
        self.is_active_controller = False
        self.address = address

    def controller_address(self) -> tuple[str, int] | None:
        return self.address


@on_a_loop
async def test_what_is_asked_waits_for_a_controller_and_goes_to_the_next_one() -> None:
    async def not_me(_: int) -> Any:
        return block(0, ErrorCode.not_controller)

    async def me(number: int) -> Any:
        if number == 1:
            raise ConnectionResetError
        return block(70)

    old, new = Office(not_me), Office(me)
    leader = Leader()
    link = ControllerChannel(leader, "me")
    asking = asyncio.create_task(link.send_request(QUESTION))
    await asyncio.sleep(0)
    leader.address = await old.open()
    await until(lambda: old.asked)
    leader.address = await new.open()
    assert (await asking).producer_id_start == 70
    assert new.asked == 2  # the first answer was lost
    assert new.software == {FORWARDING_SOFTWARE_NAME}
    link.close()
    old.close()
    new.close()


@on_a_loop
async def test_a_controller_that_says_nothing_is_left_when_there_is_another() -> None:
    async def never(_: int) -> Any:
        await asyncio.Event().wait()

    async def me(_: int) -> Any:
        return block(70)

    stuck, new = Office(never), Office(me)
    leader = Leader(await stuck.open())
    link = ControllerChannel(leader, "me")
    asking = asyncio.create_task(link.send_request(QUESTION))
    await until(lambda: stuck.asked)
    leader.address = await new.open()
    assert (await asking).producer_id_start == 70
    link.close()
    stuck.close()
    new.close()


@on_a_loop
async def test_a_slow_question_holds_up_no_other_and_connections_are_used_again() -> None:
    gate = asyncio.Event()

    async def me(number: int) -> Any:
        if number == 1:
            await gate.wait()
        return block(number)

    office = Office(me)
    link = ControllerChannel(Leader(await office.open()), "me")
    slow = asyncio.create_task(link.send_request(QUESTION))
    await until(lambda: office.asked)
    for number in (2, 3, 4):
        assert (await link.send_request(QUESTION)).producer_id_start == number
    assert office.connections == 2
    gate.set()
    assert (await slow).producer_id_start == 1
    link.close()
    office.close()


@on_a_loop
async def test_in_the_controller_itself_nothing_goes_over_a_wire() -> None:
    leader = Leader()
    codes = [ErrorCode.not_controller, ErrorCode.none]

    async def here(request: Any) -> Any:
        assert request is QUESTION
        return block(3, codes.pop(0))

    link = ControllerChannel(leader, "me", here)
    leader.is_active_controller = True
    assert (await link.send_request(QUESTION)).producer_id_start == 3
    assert codes == []
    assert await link.forward_frame(b"", ALICE, "10.0.0.7") is None


@on_a_loop
async def test_without_a_controller_the_end_is_not_controller() -> None:
    link = ControllerChannel(Leader(), "me")
    with pytest.raises(
        KafkaError, match=r"no controller answered within 0\.05 s: no broker is the controller"
    ) as caught:
        await link.send_request(QUESTION, timeout_s=0.05)
    assert caught.value.code is ErrorCode.not_controller


@on_a_loop
async def test_a_forwarded_request_reaches_the_controller_with_its_client_and_is_answered_under_its_own_id() -> None:
    async def me(_: int) -> Any:
        inner = write_response(ALLOCATE, 0, 4711, block(70))
        return EnvelopeResponse(response_data=bytes(inner[4:]), error_code=ErrorCode.none)

    office = Office(me)
    link = ControllerChannel(Leader(await office.open()), "me")
    frame = bytes(write_request(ALLOCATE, 0, 4711, "somebody", QUESTION)[4:])
    answers = await asyncio.gather(
        link.forward_frame(frame, ALICE, "10.0.0.7"), link.forward_frame(frame, ALICE, "2001:db8::7")
    )
    assert sorted(
        (bytes(it.request_data), read_principal(it.request_principal or b""), read_host(it.client_host_address))
        for it in office.envelopes
    ) == [(frame, ("User", "alice"), "10.0.0.7"), (frame, ("User", "alice"), "2001:db8::7")]
    for answer in answers:
        assert answer is not None
        assert int.from_bytes(answer[:4]) == len(answer) - 4
        assert int.from_bytes(answer[4:8]) == 4711
        assert read_response(answer[4:], ALLOCATE, 0) == block(70)
    link.close()
    office.close()
