"""Processes that are supervised, adopted and identified. Small scripts stand in for brokers."""

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
from ottla_operator.local.live_view import State
from ottla_operator.local.processes import find_port_conflict
from ottla_operator.local.supervisor import ProcessStatus, Supervisor
from ottla_operator.plan.backoff import RestartDelays
from tests.unit.async_tests import async_test

SERVE = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
)
IGNORES_SIGTERM = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


@dataclass
class Reports:
    """The reports of a supervisor, and a way to wait for them. `notes`: state and note of each
    report.
    """

    notes: list[tuple[State, str]] = field(default_factory=list)
    reported: asyncio.Event = field(default_factory=asyncio.Event)

    def report(self, status: ProcessStatus) -> None:
        self.notes.append((status.state, status.note))
        self.reported.set()

    @property
    def states(self) -> list[State]:
        return [state for state, _ in self.notes]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.reported.clear()
                await self.reported.wait()


def supervise(folder: Path, script: str, reports: Reports, **more: object) -> Supervisor:
    command = [sys.executable, "-S", "-c", script]
    hash_ = more.pop("hash", "h")
    return Supervisor(folder, command, hash_, reports.report, lambda output: "up\n" in output, **more)  # type: ignore[arg-type]


@async_test
async def test_a_process_is_started_ready_and_stopped(tmp_path: Path) -> None:
    reports = Reports()
    supervisor = supervise(tmp_path, SERVE, reports)
    running = asyncio.create_task(supervisor.run())
    await asyncio.wait_for(supervisor.ready.wait(), 20)
    assert (tmp_path / "process.json").exists()
    assert await supervisor.stop()
    await running
    assert reports.states == [State.starting, State.starting, State.ready, State.stopping, State.stopped]
    assert not (tmp_path / "process.json").exists()


@async_test
async def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    reports = Reports()
    supervisor = supervise(tmp_path, IGNORES_SIGTERM, reports, grace_s=0.2)
    running = asyncio.create_task(supervisor.run())
    await asyncio.wait_for(supervisor.ready.wait(), 20)
    assert not await supervisor.stop()
    await running
    assert "killed: still running" in reports.notes[-1][1]


@async_test
async def test_a_process_that_exits_is_restarted_and_its_last_line_reported(tmp_path: Path) -> None:
    reports = Reports()
    mark = tmp_path / "mark"
    script = (
        f"import os, sys, signal\nif not os.path.exists({str(mark)!r}):\n open({str(mark)!r}, "
        f"'w').close(); sys.exit('no disk')\n{SERVE}"
    )
    supervisor = supervise(tmp_path, script, reports)
    running = asyncio.create_task(supervisor.run())
    await reports.until(lambda: State.ready in reports.states)
    assert (State.retrying, "no disk; restarting in 1 s") in reports.notes
    await supervisor.stop()
    await running


@async_test
async def test_a_process_that_waits_for_its_restart_is_stopped_at_once(tmp_path: Path) -> None:
    reports = Reports()
    supervisor = supervise(
        tmp_path, "import sys; sys.exit('no disk')", reports, delays=RestartDelays(300.0, 300.0, 300.0, 600.0)
    )
    running = asyncio.create_task(supervisor.run())
    await reports.until(lambda: (State.retrying, "no disk; restarting in 300 s") in reports.notes)
    async with asyncio.timeout(20):
        assert await supervisor.stop()
        await running


@async_test
async def test_a_process_with_a_permanent_exit_code_is_not_restarted(tmp_path: Path) -> None:
    reports = Reports()
    await supervise(tmp_path, "import sys; print('node.id: bad'); sys.exit(2)", reports).run()
    assert reports.notes[-1] == (State.failed, "node.id: bad")


@async_test
async def test_a_process_with_a_success_code_is_finished(tmp_path: Path) -> None:
    reports = Reports()
    await supervise(tmp_path, "print('up')", reports, success_codes=(0,)).run()
    assert reports.states[-1] is State.finished


@async_test
async def test_a_process_whose_port_is_in_use_is_not_started(tmp_path: Path) -> None:
    reports = Reports()
    supervisor = supervise(tmp_path, SERVE, reports, find_obstacle=lambda: "port 9 is in use")
    running = asyncio.create_task(supervisor.run())
    await reports.until(lambda: bool(reports.notes))
    assert reports.notes == [(State.retrying, "port 9 is in use; restarting in 1 s")]
    await supervisor.stop()
    await running


async def start_orphan(folder: Path, hash_: str = "h") -> processes.Process:
    """Starts a process that no supervisor runs."""
    return await processes.start_process(folder, [sys.executable, "-S", "-c", SERVE], hash_)


@async_test
async def test_an_orphaned_process_is_adopted_and_stopped(tmp_path: Path) -> None:
    process = await start_orphan(tmp_path)
    reports = Reports()
    supervisor = supervise(tmp_path, SERVE, reports)
    running = asyncio.create_task(supervisor.run())
    await reports.until(lambda: State.ready in reports.states)
    assert reports.states == [State.ready]
    # A zombie counts as exited, and this process, its parent, has to reap it.
    stopped, _ = await asyncio.gather(supervisor.stop(), process.child.wait() if process.child else asyncio.sleep(0))
    await running
    assert stopped


@async_test
async def test_an_orphaned_process_with_other_settings_is_replaced(tmp_path: Path) -> None:
    process = await start_orphan(tmp_path, "old")
    reports = Reports()
    supervisor = supervise(tmp_path, SERVE, reports, hash="new")
    running = asyncio.create_task(supervisor.run())
    await reports.until(lambda: State.ready in reports.states)
    assert reports.states[0] is State.stopping
    assert not processes.is_running(process.identity)
    await supervisor.stop()
    await running


@async_test
async def test_a_pid_of_another_process_is_not_adopted(tmp_path: Path) -> None:
    started = processes.start_time(os.getpid())
    assert started is not None
    (tmp_path / "process.json").write_text(f'{{"pid": {os.getpid()}, "started": "another time", "hash": "h"}}')
    assert processes.find_process(tmp_path) is None
    assert not (tmp_path / "process.json").exists()
    assert processes.is_running(processes.ProcessIdentity(os.getpid(), started, "h"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
@async_test
async def test_an_unreadable_process_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "process.json").write_text(text)
    assert processes.find_process(tmp_path) is None


@async_test
async def test_a_command_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    reports = Reports()
    supervisor = Supervisor(tmp_path, ["/nothing/here"], "h", reports.report, lambda _: True)
    running = asyncio.create_task(supervisor.run())
    await reports.until(lambda: State.retrying in reports.states)
    assert "cannot start: /nothing/here: No such file" in reports.notes[-1][1]
    await supervisor.stop()
    await running


@async_test
async def test_output_of_an_earlier_run_is_not_read(tmp_path: Path) -> None:
    """Otherwise the output of the earlier run would make the next run look ready."""
    (tmp_path / "output.log").write_text("up\n")
    process = await processes.start_process(tmp_path, [sys.executable, "-S", "-c", "print('new')"], "h")
    assert await process.wait() == 0
    assert process.output() == "new\n"


@async_test
async def test_the_last_line_is_found_after_much_output(tmp_path: Path) -> None:
    script = "for n in range(200_000): print('line', n)\nprint('out of memory')"
    process = await processes.start_process(tmp_path, [sys.executable, "-S", "-c", script], "h")
    assert await process.wait() == 0
    assert process.last_line() == "out of memory"


@async_test
async def test_a_killed_process_has_a_negative_exit_code(tmp_path: Path) -> None:
    process = await start_orphan(tmp_path)
    process.kill()
    assert await process.wait() == -signal.SIGKILL


def test_a_locked_home_cannot_be_locked_again_and_the_error_names_the_process(tmp_path: Path) -> None:
    held = Home(tmp_path / ".ottla").lock()
    with pytest.raises(HomeLocked, match=f"pid {os.getpid()}"):
        Home(tmp_path / ".ottla").lock()
    os.close(held)
    os.close(Home(tmp_path / ".ottla").lock())


def test_a_port_conflict_names_the_process() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        conflict = find_port_conflict(port)
        assert conflict is not None
        assert conflict.startswith(f"port {port} is in use")
        if sys.platform == "linux":
            assert f"by pid {os.getpid()} (" in conflict
    assert find_port_conflict(port) is None
