"""One worker: a broker process that is restarted when it exits.

Workers run in sessions of their own, so that Ctrl-C reaches only the command, which stops them in
order. On Linux the kernel sends SIGTERM to a worker whose command has been killed. Otherwise the
worker would keep its ports and directories from the workers of the next command.
"""

import asyncio
import contextlib
import ctypes
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

from ottla_broker.event_timeout import wait_for_event
from ottla_broker.workers.restart_backoff import RestartBackoff
from ottla_broker.workers.worker_plan import WorkerPlan

logger = logging.getLogger(__name__)

CANNOT_START: Final = 2
"""Exit code of a broker that cannot start. It has printed the reason."""
STOP_TIMEOUT_S: Final = 30.0
PR_SET_PDEATHSIG: Final = 1


class WorkerFailed(Exception):
    """A worker could not start for the first time, or the HTTP server of all workers could not."""


class WorkerProcess:
    """`command`: of the broker. `ready`: set while the process serves clients. `restarts`: how
    often the process was started again.
    """

    def __init__(self, plan: WorkerPlan, command: Sequence[str]) -> None:
        self.plan = plan
        self.ready = asyncio.Event()
        self.restarts = 0
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._stop = asyncio.Event()
        self._was_ready = False

    async def run(self) -> None:
        """Returns when the worker has stopped after `stop` or `kill`. Raises WorkerFailed."""
        loop = asyncio.get_running_loop()
        backoff = RestartBackoff()
        while not self._stop.is_set():
            started_s = loop.time()
            code = await self._run_once()
            if self._stop.is_set():
                return
            if code == CANNOT_START and not self._was_ready:
                raise WorkerFailed(f"broker {self.plan.node_id} cannot start")
            backoff = backoff.after_run(loop.time() - started_s)
            logger.warning("restarting broker %d in %g s (%s)", self.plan.node_id, backoff.delay_s, describe_exit(code))
            await wait_for_event(self._stop, backoff.delay_s)
            self.restarts += not self._stop.is_set()

    async def stop(self) -> None:
        """Sends SIGTERM, upon which the broker hands its partitions over, and SIGKILL after
        STOP_TIMEOUT_S. Returns when the process has exited, or SIGKILL is sent; `run` returns when
        it has exited.
        """
        self._stop.set()
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            logger.warning("killing broker %d: still running %g s after SIGTERM", self.plan.node_id, STOP_TIMEOUT_S)
            self.kill()

    def kill(self) -> None:
        self._stop.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _run_once(self) -> int:
        """Runs the process once. Returns its exit code, negative for a signal."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_terminate_with_parent(),
        )
        assert self._process.stdout is not None
        if self._stop.is_set():  # while the process was being created
            self._process.terminate()
        try:
            async for line in self._process.stdout:
                sys.stdout.write(line.decode(errors="replace"))
                sys.stdout.flush()
                if line.startswith(f"ottla broker {self.plan.node_id} ready on ".encode()):
                    self._was_ready = True
                    self.ready.set()
            return await self._process.wait()
        finally:
            self.ready.clear()


def describe_exit(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


def _terminate_with_parent() -> Callable[[], object] | None:
    """A function for the new process to call, so that the kernel signals it when this one exits.
    None where the system is not Linux.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
