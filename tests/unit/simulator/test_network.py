"""The simulated network as programs see it, through asyncio's streams and the broker's channel."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from random import Random
from typing import Any

import pytest

from tests.sim.network import SimulatedNetwork
from tests.sim.processes import SimulatedLoop, SimulatedProcess


def run_on_network(main: Callable[[SimulatedLoop, SimulatedNetwork], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    loop = SimulatedLoop()
    loop.run_until_complete(main(loop, SimulatedNetwork(loop, Random(seed))))


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


async def serve_echo(loop: SimulatedLoop) -> SimulatedProcess:
    """Starts a process on the host `server` that echoes what it receives on port 1."""
    process = SimulatedProcess(loop, "server")

    async def serving() -> None:
        await loop.create_server(Echo, "server", 1)

    await process.run(serving())
    return process


async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.create_connection(lambda: protocol, "server", 1)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_however_segments_are_split(seed: int) -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        await serve_echo(loop)
        reader, writer = await connect()
        sent = Random(seed).randbytes(2_000_000)
        for at in range(0, len(sent), 77_777):
            writer.write(sent[at : at + 77_777])
        assert await reader.readexactly(len(sent)) == sent

    run_on_network(main, seed)


def test_writer_to_a_paused_reader_is_paused() -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        process = await serve_echo(loop)
        process.pause()
        reader, writer = await connect()
        writer.write(bytes(1 << 20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 10)
        process.resume()
        await asyncio.wait_for(writer.drain(), 10)
        assert len(await reader.readexactly(1 << 20)) == 1 << 20

    run_on_network(main)


def test_closed_port_refuses_and_killed_process_closes_connections() -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        with pytest.raises(ConnectionRefusedError):
            await connect()
        process = await serve_echo(loop)
        reader, _writer = await connect()
        process.kill()
        assert await asyncio.wait_for(reader.read(), 1) == b""
        with pytest.raises(ConnectionRefusedError):
            await connect()

    run_on_network(main)


def test_data_on_a_cut_link_arrives_when_the_link_is_restored() -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        await serve_echo(loop)
        reader, writer = await connect()
        network.cut_link("driver", "server")
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(5), 60)
        network.restore_link("driver", "server")
        assert await asyncio.wait_for(reader.readexactly(5), 1) == b"hello"

    run_on_network(main)


def test_link_slowed_twice_is_restored_when_both_faults_end() -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        link = network.link("a", "b")
        normal_s = link.latency_s
        network.slow_link("a", "b", 0.1)
        network.slow_link("a", "b", 0.3)
        network.restore_latency("a", "b", 0.1)
        assert link.latency_s == 0.3
        network.restore_latency("a", "b", 0.3)
        assert link.latency_s == normal_s

    run_on_network(main)


def test_host_without_power_is_silent_and_resets_when_back() -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        process = await serve_echo(loop)
        reader, writer = await connect()
        network.lose_power("server")
        process.kill()
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(5), 60)
        network.power_on("server")
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(5), 1)

    run_on_network(main)


def test_dead_process_runs_nothing_not_even_its_cleanup() -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        done = []

        async def work() -> None:
            try:
                await asyncio.sleep(1)
            finally:
                done.append("cleaned up")

        process = SimulatedProcess(loop, "somewhere")
        process.run(work())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(10)
        assert done == []

    run_on_network(main)


def test_delayed_packet_holds_up_only_its_own_connection() -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        await serve_echo(loop)
        lost, other = await connect(), await connect()
        with network.packets_delayed(lambda direction, piece: direction[1] == "server" and piece == b"lost", 2.0):
            lost[1].write(b"lost")
            lost[1].write(b"behind it")
            other[1].write(b"past it")
            assert await asyncio.wait_for(other[0].readexactly(7), 1) == b"past it"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(lost[0].readexactly(1), 1)
        assert await asyncio.wait_for(lost[0].readexactly(13), 2) == b"lostbehind it"
        lost[1].write(b"lost")
        assert await asyncio.wait_for(lost[0].readexactly(4), 1) == b"lost"  # the rule has ended

    run_on_network(main)


def test_stalled_connection_delivers_in_order_when_the_stall_ends() -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        await serve_echo(loop)
        stalled, other = await connect(), await connect()
        with network.connections_stalled(lambda _, piece: piece.startswith(b"lost")) as ends:
            stalled[1].write(b"lost")
            stalled[1].write(b"behind it")
            other[1].write(b"past it")
            assert await asyncio.wait_for(other[0].readexactly(7), 1) == b"past it"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stalled[0].readexactly(1), 60)
            assert len(ends) == 1
        assert await asyncio.wait_for(stalled[0].readexactly(13), 1) == b"lostbehind it"

    run_on_network(main)


@pytest.mark.parametrize("loses_power", [False, True])
def test_data_of_a_stalled_connection_arrives_unless_the_sender_loses_power(loses_power: bool) -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        received: list[bytes] = []

        class Sink(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                received.append(data)

        await loop.create_server(Sink, "server", 1)
        reader, writer = await connect()
        with network.connections_stalled(lambda *_: True) as ends:
            writer.write(b"late")
            if loses_power:
                network.lose_power("driver")
            else:
                ends[0].receive_reset()
                with pytest.raises(ConnectionResetError):
                    await reader.read(1)
            await asyncio.sleep(10)
            assert received == []
        await asyncio.sleep(1)
        assert b"".join(received) == (b"" if loses_power else b"late")

    run_on_network(main)


@pytest.mark.parametrize(
    "fault",
    [
        lambda network: network.links_cut([("driver", "server"), ("server", "driver")]),
        lambda network: network.links_slowed([("driver", "server"), ("server", "driver")], 3.0),
        lambda network: network.packets_delayed(lambda *_: True, 5.0),
        lambda network: network.connections_stalled(lambda *_: True),
    ],
)
def test_fault_ends_when_its_block_fails(fault: Callable[[SimulatedNetwork], AbstractContextManager[object]]) -> None:
    async def main(loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        await serve_echo(loop)
        reader, writer = await connect()
        with pytest.raises(TimeoutError), fault(network):
            writer.write(b"late")
            await asyncio.wait_for(reader.readexactly(4), 1)
        assert await asyncio.wait_for(reader.readexactly(4), 10) == b"late"
        writer.write(b"fast")
        assert await asyncio.wait_for(reader.readexactly(4), 1) == b"fast"

    run_on_network(main)
