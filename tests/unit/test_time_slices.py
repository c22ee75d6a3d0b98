"""Long work on the event loop in slices: what runs between them, and how long they are."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ottla_broker.time_slices import ITEMS_PER_BATCH, ITERATIONS_PER_PAUSE, MAX_SLICE_S, MIN_SLICE_S, TimeSlices

ITEM_S = 1e-6


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def slice_sizes(count: int, *, iteration_s: float) -> list[int]:
    """The number of items in each slice, of `count` items in all. `iteration_s`: the time that
    other tasks take in one iteration of the event loop."""
    clock, loop, done = Clock(), asyncio.get_running_loop(), 0
    slices = TimeSlices(clock)
    seen: list[int] = []

    def run_other_tasks() -> None:
        clock.now_s += iteration_s
        seen.append(done)
        loop.call_soon(run_other_tasks)

    loop.call_soon(run_other_tasks)
    async for batch in slices.batches(range(count)):
        done += len(batch)
        clock.now_s += ITEM_S * len(batch)
    ends = list(dict.fromkeys(seen))
    assert all(seen.count(end) == ITERATIONS_PER_PAUSE for end in ends)
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def items_in_slice(slice_s: float) -> int:
    """The number of items that a slice takes; its last batch is a whole one."""
    return -(-round(slice_s / ITEM_S) // ITEMS_PER_BATCH) * ITEMS_PER_BATCH


@pytest.mark.parametrize(
    ("iteration_s", "slice_s"),
    [
        pytest.param(0.0, MIN_SLICE_S, id="an idle loop"),
        pytest.param(0.0002, MIN_SLICE_S, id="a loop with some work"),
        pytest.param(0.004, 0.001, id="a busy loop: an eighth of the pause"),
        pytest.param(10.0, MAX_SLICE_S, id="a stalled loop"),
    ],
)
def test_slices_are_short_and_longer_on_a_busy_loop(iteration_s: float, slice_s: float) -> None:
    first, *others = asyncio.run(slice_sizes(10_000, iteration_s=iteration_s))
    assert first == items_in_slice(MIN_SLICE_S)
    assert set(others) == {items_in_slice(slice_s)}


def test_request_that_arrives_in_a_slice_is_answered_before_the_next_one() -> None:
    """On uvloop, as brokers run. The socket's reader leaves the answer to a later call of the loop,
    as brokers do with small Produce requests."""

    async def scenario() -> None:
        loop, (client, server) = asyncio.get_running_loop(), socket.socketpair()
        requests: list[bytes] = []
        answered: list[bytes] = []
        slices = TimeSlices(iter(range(1_000_000)).__next__)  # each reading of the clock is after the slice's end
        with client, server:
            client.setblocking(False)

            def read() -> None:
                requests.append(server.recv(1))
                loop.call_soon(answered.append, requests[-1])

            loop.add_reader(server, read)
            async for batch in slices.batches(range(100 * ITEMS_PER_BATCH)):
                assert len(answered) == batch[0] // ITEMS_PER_BATCH
                client.send(b"r")
            loop.remove_reader(server)

    run_on_uvloop(scenario)


def run_on_uvloop(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
