"""The controller channel: requests find the active controller while it changes or does not
respond.
"""

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

from ottla_broker.metadata.controller_channel import (
    CONTROLLER_CHECK_INTERVAL_S,
    FORWARDING_SOFTWARE_NAME,
    ControllerChannel,
)
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.principal import Principal
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_request, read_response, request_class, write_request, write_response
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.forwarding import read_host, read_principal
from ottla_broker.wire.request_header import read_request_header
from tests.unit.async_tests import async_test, wait_until

ALLOCATE = 67
ALICE = Principal("User", "alice")
REQUEST = AllocateProducerIdsRequest(broker_id=BrokerId(1), broker_epoch=i64(5))


def block(first: int, code: ErrorCode = ErrorCode.none) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time=NO_THROTTLE, error_code=code, producer_id_start=ProducerId(i64(first)), producer_id_len=i32(10)
    )


class ScriptedBroker:
    """A broker whose responses a test defines: `respond(n)` returns the response to the n-th
    request, or raises ConnectionError to close the connection.
    """

    def __init__(self, respond: Callable[[int], Awaitable[Any]]) -> None:
        self._respond = respond
        self.request_count = 0
        self.connection_count = 0
        self.client_software: set[str] = set()
        self.envelopes: list[EnvelopeRequest] = []

    async def open(self) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                header = read_request_header(frame)
                if header.api_key == ApiKey.API_VERSIONS:
                    api_versions_request = read_request(frame, header, request_class(ApiKey.API_VERSIONS, 3))
                    self.client_software.add(api_versions_request.client_software_name)
                    answer: Any = ApiVersionsResponse(
                        error_code=ErrorCode.none,
                        api_keys=tuple(
                            ApiVersion(api_key=i16(key), min_version=i16(0), max_version=i16(0))
                            for key in (ALLOCATE, ApiKey.ENVELOPE)
                        ),
                        throttle_time=NO_THROTTLE,
                    )
                else:
                    self.request_count += 1
                    if header.api_key == ApiKey.ENVELOPE:
                        self.envelopes.append(read_request(frame, header, EnvelopeRequest))
                    answer = await self._respond(self.request_count)
                writer.write(write_response(header.api_key, header.version, header.correlation_id, answer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def close(self) -> None:
        self._server.close()


class QuorumView:
    """A broker's view of the quorum. `address`: the active controller's; None if unknown."""

    def __init__(self, address: tuple[str, int] | None = None) -> None:
        self.is_active_controller = False
        self.address = address

    def controller_endpoint(self) -> tuple[str, int] | None:
        return self.address


@async_test
async def test_a_request_waits_for_a_controller_and_is_sent_again_to_its_successor() -> None:
    async def answer_not_controller(_: int) -> Any:
        return block(0, ErrorCode.not_controller)

    async def answer_block(count: int) -> Any:
        if count == 1:
            raise ConnectionResetError
        return block(70)

    old, new = ScriptedBroker(answer_not_controller), ScriptedBroker(answer_block)
    quorum = QuorumView()
    channel = ControllerChannel(quorum, "me")
    pending = asyncio.create_task(channel.send_request(REQUEST))
    await asyncio.sleep(0)
    quorum.address = await old.open()
    await wait_until(lambda: old.request_count)
    quorum.address = await new.open()
    assert (await pending).producer_id_start == 70
    assert new.request_count == 2  # the first response was lost
    assert new.client_software == {FORWARDING_SOFTWARE_NAME}
    channel.close()
    old.close()
    new.close()


@async_test
async def test_a_request_to_a_silent_controller_is_sent_again_to_a_new_one() -> None:
    async def never_answer(_: int) -> Any:
        await asyncio.Event().wait()

    async def answer_block(_: int) -> Any:
        return block(70)

    silent, new = ScriptedBroker(never_answer), ScriptedBroker(answer_block)
    quorum = QuorumView(await silent.open())
    channel = ControllerChannel(quorum, "me")
    pending = asyncio.create_task(channel.send_request(REQUEST))
    await wait_until(lambda: silent.request_count)
    quorum.address = await new.open()
    assert (await pending).producer_id_start == 70
    channel.close()
    silent.close()
    new.close()


@async_test
async def test_a_request_in_flight_is_not_sent_again_while_no_controller_is_known() -> None:
    may_answer = asyncio.Event()

    async def answer_late(_: int) -> Any:
        await may_answer.wait()
        return block(70)

    slow = ScriptedBroker(answer_late)
    address = await slow.open()
    quorum = QuorumView(address)
    channel = ControllerChannel(quorum, "me")
    pending = asyncio.create_task(channel.send_request(REQUEST))
    await wait_until(lambda: slow.request_count)
    quorum.address = None
    await asyncio.sleep(2 * CONTROLLER_CHECK_INTERVAL_S)
    quorum.address = address
    await asyncio.sleep(2 * CONTROLLER_CHECK_INTERVAL_S)
    may_answer.set()
    assert (await pending).producer_id_start == 70
    assert slow.request_count == 1
    channel.close()
    slow.close()


@async_test
async def test_a_slow_request_delays_no_other_and_connections_are_reused() -> None:
    release = asyncio.Event()

    async def answer_block(count: int) -> Any:
        if count == 1:
            await release.wait()
        return block(count)

    controller = ScriptedBroker(answer_block)
    channel = ControllerChannel(QuorumView(await controller.open()), "me")
    slow_request = asyncio.create_task(channel.send_request(REQUEST))
    await wait_until(lambda: controller.request_count)
    for count in (2, 3, 4):
        assert (await channel.send_request(REQUEST)).producer_id_start == count
    assert controller.connection_count == 2
    release.set()
    assert (await slow_request).producer_id_start == 1
    channel.close()
    controller.close()


@async_test
async def test_the_controller_answers_its_own_requests_without_a_connection() -> None:
    quorum = QuorumView()
    codes = [ErrorCode.not_controller, ErrorCode.none]

    async def answer_locally(request: Any) -> Any:
        assert request is REQUEST
        return block(3, codes.pop(0))

    channel = ControllerChannel(quorum, "me", answer_locally)
    quorum.is_active_controller = True
    assert (await channel.send_request(REQUEST)).producer_id_start == 3
    assert codes == []
    assert await channel.forward_frame(b"", ALICE, "10.0.0.7") is None


@async_test
async def test_a_request_without_a_controller_fails_with_not_controller() -> None:
    channel = ControllerChannel(QuorumView(), "me")
    with pytest.raises(
        KafkaError, match=r"no controller answered within 0\.05 s: no broker is the controller"
    ) as caught:
        await channel.send_request(REQUEST, timeout_s=0.05)
    assert caught.value.code is ErrorCode.not_controller


@async_test
async def test_a_forwarded_request_carries_the_principal_and_keeps_its_correlation_id() -> None:
    async def answer_block(_: int) -> Any:
        inner = write_response(ALLOCATE, 0, 4711, block(70))
        return EnvelopeResponse(response_data=bytes(inner[4:]), error_code=ErrorCode.none)

    controller = ScriptedBroker(answer_block)
    channel = ControllerChannel(QuorumView(await controller.open()), "me")
    frame = bytes(write_request(ALLOCATE, 0, 4711, "somebody", REQUEST)[4:])
    responses = await asyncio.gather(
        channel.forward_frame(frame, ALICE, "10.0.0.7"), channel.forward_frame(frame, ALICE, "2001:db8::7")
    )
    assert sorted(
        (bytes(it.request_data), read_principal(it.request_principal or b""), read_host(it.client_host_address))
        for it in controller.envelopes
    ) == [(frame, ("User", "alice", False), "10.0.0.7"), (frame, ("User", "alice", False), "2001:db8::7")]
    for answer in responses:
        assert answer is not None
        assert int.from_bytes(answer[:4]) == len(answer) - 4
        assert int.from_bytes(answer[4:8]) == 4711
        assert read_response(answer[4:], ALLOCATE, 0) == block(70)
    channel.close()
    controller.close()
