"""Processes that are kept, found again, and told apart: small scripts stand for brokers."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla_operator.local import processes
from ottla_operator.local.home import Home, HomeLocked
from ottla_operator.local.keeper import Keeper
from ottla_operator.local.live_view import State
from ottla_operator.local.ports import in_use
from ottla_operator.plan.backoff import RestartDelays
from tests.unit.operator.loop import on_loop

SERVE = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
)
DEAF = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


@dataclass
class Told:
    """What a keeper tells, and a way to wait for it."""

    states: list[tuple[State, str]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, state: State, note: str, pid: int | None) -> None:
        self.states.append((state, note))
        self.news.set()

    async def until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not seen():
                self.news.clear()
                await self.news.wait()


def keeper(folder: Path, script: str, told: Told, **more: object) -> Keeper:
    command = [sys.executable, "-S", "-c", script]
    return Keeper(folder, command, more.pop("hash", "h"), told.tell, lambda output: "up\n" in output, **more)  # type: ignore[arg-type]


def states(told: Told) -> list[State]:
    return [state for state, _ in told.states]


@on_loop
async def test_it_starts_serves_and_stops(tmp_path: Path) -> None:
    told = Told()
    kept = keeper(tmp_path, SERVE, told)
    running = asyncio.create_task(kept.run())
    await asyncio.wait_for(kept.ready.wait(), 20)
    assert (tmp_path / "process.json").exists()
    assert await kept.stop()
    await running
    assert states(told) == [State.starting, State.starting, State.ready, State.stopping, State.stopped]
    assert not (tmp_path / "process.json").exists()


@on_loop
async def test_one_that_does_not_listen_is_killed_and_told_of(tmp_path: Path) -> None:
    told = Told()
    kept = keeper(tmp_path, DEAF, told, grace_s=0.2)
    running = asyncio.create_task(kept.run())
    await asyncio.wait_for(kept.ready.wait(), 20)
    assert not await kept.stop()
    await running
    assert "was killed" in told.states[-1][1]


@on_loop
async def test_one_that_falls_is_started_again_with_its_last_words_told(tmp_path: Path) -> None:
    told = Told()
    mark = tmp_path / "mark"
    script = f"import os, sys, signal\nif not os.path.exists({str(mark)!r}):\n open({str(mark)!r}, 'w').close(); sys.exit('no disk')\n{SERVE}"
    kept = keeper(tmp_path, script, told)
    running = asyncio.create_task(kept.run())
    await told.until(lambda: State.ready in states(told))
    assert (State.retrying, "no disk; again in 1 s") in told.states
    await kept.stop()
    await running


@on_loop
async def test_one_that_waits_for_its_next_start_need_not_be_waited_for(tmp_path: Path) -> None:
    told = Told()
    kept = keeper(tmp_path, "import sys; sys.exit('no disk')", told, pace=RestartDelays(300.0, 300.0, 300.0, 600.0))
    running = asyncio.create_task(kept.run())
    await told.until(lambda: (State.retrying, "no disk; again in 300 s") in told.states)
    async with asyncio.timeout(20):
        assert await kept.stop()
        await running


@on_loop
async def test_one_that_is_hopeless_is_left(tmp_path: Path) -> None:
    told = Told()
    await keeper(tmp_path, "import sys; print('node.id: bad'); sys.exit(2)", told).run()
    assert told.states[-1] == (State.failed, "node.id: bad")


@on_loop
async def test_one_that_is_done_is_finished(tmp_path: Path) -> None:
    told = Told()
    await keeper(tmp_path, "print('up')", told, done=(0,)).run()
    assert states(told)[-1] is State.finished


@on_loop
async def test_what_is_in_the_way_is_told_and_nothing_started(tmp_path: Path) -> None:
    told = Told()
    kept = keeper(tmp_path, SERVE, told, in_the_way=lambda: "port 9 is in use")
    running = asyncio.create_task(kept.run())
    await told.until(lambda: bool(told.states))
    assert told.states == [(State.retrying, "port 9 is in use; again in 1 s")]
    await kept.stop()
    await running


async def left_running(folder: Path, hash_: str = "h") -> processes.Process:
    """A process whose keeper is gone."""
    return await processes.start(folder, [sys.executable, "-S", "-c", SERVE], hash_)


@on_loop
async def test_one_left_behind_is_taken_over_and_stopped(tmp_path: Path) -> None:
    process = await left_running(tmp_path)
    told = Told()
    kept = keeper(tmp_path, SERVE, told)
    running = asyncio.create_task(kept.run())
    await told.until(lambda: State.ready in states(told))
    assert states(told) == [State.ready]
    # Its parent has to take note of its end, or it stays as a zombie, which counts as gone.
    stopped, _ = await asyncio.gather(kept.stop(), process.child.wait() if process.child else asyncio.sleep(0))
    await running
    assert stopped


@on_loop
async def test_one_left_behind_with_other_settings_is_replaced(tmp_path: Path) -> None:
    process = await left_running(tmp_path, "old")
    told = Told()
    kept = keeper(tmp_path, SERVE, told, hash="new")
    running = asyncio.create_task(kept.run())
    await told.until(lambda: State.ready in states(told))
    assert states(told)[0] is State.stopping
    assert not processes.is_alive(process.identity)
    await kept.stop()
    await running


@on_loop
async def test_a_pid_that_somebody_else_has_is_not_ours(tmp_path: Path) -> None:
    mark = processes.start_mark(os.getpid())
    assert mark is not None
    (tmp_path / "process.json").write_text(f'{{"pid": {os.getpid()}, "started": "another time", "hash": "h"}}')
    assert processes.left_behind(tmp_path) is None
    assert not (tmp_path / "process.json").exists()
    assert processes.is_alive(processes.Identity(os.getpid(), mark, "h"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
@on_loop
async def test_a_broken_note_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "process.json").write_text(text)
    assert processes.left_behind(tmp_path) is None


@on_loop
async def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    told = Told()
    kept = Keeper(tmp_path, ["/nothing/here"], "h", told.tell, lambda _: True)
    running = asyncio.create_task(kept.run())
    await told.until(lambda: State.retrying in states(told))
    assert "cannot be started: /nothing/here: No such file" in told.states[-1][1]
    await kept.stop()
    await running


@on_loop
async def test_only_the_run_at_hand_counts(tmp_path: Path) -> None:
    """What an earlier run printed must not make the next one look ready."""
    (tmp_path / "output.log").write_text("up\n")
    process = await processes.start(tmp_path, [sys.executable, "-S", "-c", "print('new')"], "h")
    assert await process.wait() == 0
    assert process.output() == "new\n"


@on_loop
async def test_last_words_are_the_last_however_much_was_said_before(tmp_path: Path) -> None:
    script = "for n in range(200_000): print('line', n)\nprint('out of memory')"
    process = await processes.start(tmp_path, [sys.executable, "-S", "-c", script], "h")
    assert await process.wait() == 0
    assert process.last_words() == "out of memory"


@on_loop
async def test_a_signal_has_a_number(tmp_path: Path) -> None:
    process = await left_running(tmp_path)
    process.kill()
    assert await process.wait() == -signal.SIGKILL


def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    held = Home(tmp_path / ".ottla").lock()
    with pytest.raises(HomeLocked, match=f"pid {os.getpid()}"):
        Home(tmp_path / ".ottla").lock()
    os.close(held)
    os.close(Home(tmp_path / ".ottla").lock())


def test_a_port_in_use_names_who_has_it() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = in_use(port)
        assert said is not None
        assert said.startswith(f"port {port} is in use")
        if sys.platform == "linux":
            assert f"by pid {os.getpid()} (" in said
    assert in_use(port) is None
